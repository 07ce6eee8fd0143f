"""The compiled library of this package, and what of it this processor runs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

_LIBRARY: Final = Path(__file__).with_name("libproducts.so")

Function = Callable[..., None]


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
