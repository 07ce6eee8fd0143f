"""The compiled library of this package, and what of it this processor runs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

_LIBRARY: Final = Path(__file__).with_name("libproducts.so")
# Bytes of a cache line.
_ALIGNMENT: Final = 64

Function = Callable[..., None]


class Aligned:
    """Memory that is not cleared. address: of its first byte, that a cache line begins with."""

    def __init__(self, count: int) -> None:
        self._bytes: npt.NDArray[np.uint8] = np.empty(count + _ALIGNMENT, np.uint8)
        self.address = -(-self._bytes.ctypes.data // _ALIGNMENT) * _ALIGNMENT


@cache
def library() -> ctypes.CDLL:
    """Raises OSError where it is missing: it is a part of the package."""
    return ctypes.CDLL(str(_LIBRARY))


@cache
def function(name: str, pointers: int, integers: int) -> Function:
    """Takes so many addresses and then so many integers, and returns nothing.

    It is called without the interpreter's lock, and checks nothing.
    """
    found = library()[name]
    found.argtypes = [ctypes.c_void_p] * pointers + [ctypes.c_long] * integers
    found.restype = None
    return found
