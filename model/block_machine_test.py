"""The block's bytes do not depend on the machine: not on its SIMD units, not on its BLAS.

The same steps run in fresh interpreters whose NumPy is told to leave CPU features unused and whose
OpenBLAS is told to be another processor's. Beside it, the source is searched for anything that
could depend on either; that search is itself tested on planted calls.
"""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest

from model import block, exact
from model.block_lockstep import digest_of_many

_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
import numpy as np
from model.block_lockstep import digest_of_many
simd = np.show_config(mode="dicts")["SIMD Extensions"]
print(json.dumps({"digest": digest_of_many(), "features": simd.get("found", [])}))
"""

# What this NumPy uses on this processor beyond its baseline, least first.
FEATURES: list[str] = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])


def run(environment: dict[str, str]) -> tuple[str, frozenset[str]]:
    """Digest of the block's outputs in a fresh interpreter, and the features its NumPy used."""
    done = subprocess.run(
        [sys.executable, "-B", "-W", "ignore", "-c", _PROGRAM, json.dumps(sys.path)],
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        check=True,
        text=True,
        timeout=120,
    )
    answer = json.loads(done.stdout)
    return answer["digest"], frozenset(answer["features"])


def test_the_bytes_are_the_same_whatever_the_processor_offers() -> None:
    reference = digest_of_many()
    assert run({}) == (reference, frozenset(FEATURES))
    for first in range(len(FEATURES)):
        left_out = FEATURES[first:]
        digest, used = run({"NPY_DISABLE_CPU_FEATURES": " ".join(left_out)})
        assert used.isdisjoint(left_out)
        assert digest == reference
    for processor in ("Prescott", "Haswell"):
        digest, _ = run({"OPENBLAS_CORETYPE": processor, "OPENBLAS_NUM_THREADS": "1"})
        assert digest == reference


# Correctly rounded or exact elementwise operations, and what moves or makes arrays.
_EXACT = """
add subtract multiply divide sqrt negative maximum minimum
arange array ascontiguousarray concatenate empty empty_like moveaxis stack where zeros
float32 float64 floating inf
"""
# Methods and functions whose order of operations, or whose libm, is the library's choice.
_FREE = """
cos cumprod cumsum dot einsum exp exp2 expm1 inner linalg log matmul mean norm outer power
prod sin std sum tensordot trace trapezoid var vdot
"""
ALLOWED, FORBIDDEN = frozenset(_EXACT.split()), frozenset(_FREE.split())


def suspicious(source: str) -> set[str]:
    """Names in `source` that may compute something in an order or a way we do not fix."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="np"), attr=name) if name not in ALLOWED:
                found.add(f"np.{name}")
            case ast.Attribute(attr=name) if name in FORBIDDEN:
                found.add(name)
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="np"), attr=of), attr=name):
                if (of, name) != ("maximum", "reduce"):
                    found.add(f"np.{of}.{name}")
            case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()):
                found.add("@")
            case ast.Call(func=ast.Name(id="sum" | "pow" as name)):
                found.add(name)
            case ast.Import(names=names):
                found |= {alias.name for alias in names} - {"numpy"}
            case ast.ImportFrom(module=module, names=names):
                if module in {"math", "cmath", "numpy", "scipy"}:
                    found.add(f"from {module}")
    return found


@pytest.mark.parametrize("module", [block, exact])
def test_only_operations_with_one_result_are_used(module: ModuleType) -> None:
    source = inspect.getsource(module)
    assert "import numpy as np" in source
    assert suspicious(source) == set()


@pytest.mark.parametrize(
    "line",
    [
        "y = x @ w",
        "x @= w",
        "y = np.dot(x, w)",
        "y = x.dot(w)",
        "y = np.exp(x)",
        "y = x.sum(0)",
        "y = np.add.reduce(x)",
        "y = np.linalg.norm(x)",
        "y = sum(x)",
        "import math",
        "from numpy import exp",
        "from math import exp",
    ],
)
def test_the_search_finds_what_it_looks_for(line: str) -> None:
    assert suspicious("import numpy as np\n" + line) != set()
