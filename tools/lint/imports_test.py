"""The import rules, each shown to refuse a planted fault and to accept what they should."""

from __future__ import annotations

import pytest

from tools.lint import imports

REFUSED = {
    "errors imports nothing of ours": ("errors/tree.py", "import wire.frame"),
    "wire knows no program": ("wire/frame.py", "from program.spec import Stage"),
    "wire has no arrays": ("wire/frame.py", "import numpy as np"),
    "program has no arrays": ("program/spec.py", "import numpy"),
    "program knows no wire": ("program/plan.py", "from wire import limits"),
    "model knows no wire": ("model/ops.py", "from wire.frame import Frame"),
    "worker core knows no model": ("worker/core.py", "from model.block import BlockExecutor"),
    "coordinator has no model": ("coordinator/group.py", "import model.ops"),
    "coordinator has no arrays": ("coordinator/group.py", "import numpy as np"),
    "evidence has no serving": ("evidence/run.py", "import fastapi"),
    "oracle imports nothing of ours": ("oracle/block.py", "from errors import TPError"),
    "oracle is standard library": ("oracle/block.py", "import numpy"),
    "oracle tests are too, of ours": ("oracle/block_test.py", "from model.block import run"),
    "independent imports nothing of ours": ("verifier/independent/a.py", "import wire.frame"),
    "the verifiers are apart": (
        "verifier/package/a.py",
        "from verifier.independent import frames",
    ),
    "nothing imports a verifier": ("coordinator/main.py", "import verifier.package.main"),
    "relative": ("wire/frame.py", "from . import limits"),
    "relative module": ("wire/frame.py", "from .limits import MAGIC"),
    "pickle": ("tools/bench/bench.py", "import pickle"),
    "marshal": ("wire/tape.py", "from marshal import loads"),
    "shelve in a test": ("wire/tape_test.py", "import shelve"),
    "eval": ("manifest/text.py", "eval('1')"),
    "exec": ("tools/x.py", "exec('x = 1')"),
    "import by name": ("worker/main.py", "__import__('model')"),
    "numpy.load": ("model/checkpoint.py", "import numpy as np\nnp.load('x')"),
    "numpy.load by name": ("model/checkpoint.py", "from numpy import load\nload('x')"),
    "allow_pickle": ("testdata/golden/x.py", "f(allow_pickle=True)"),
    "allow_pickle computed": ("testdata/golden/x.py", "f(allow_pickle=bool(0))"),
    "socket outside its home": ("coordinator/accept.py", "import socket"),
    "asyncio": ("worker/main.py", "import asyncio"),
    "clock in a core": ("worker/core.py", "import time"),
    "chance in a core": ("coordinator/scheduler.py", "from random import random"),
    "log in a core": ("wire/session.py", "import logging"),
    "environment in a core": ("program/spec.py", "import os\nos.environ['X']"),
    "environment by name": ("program/spec.py", "from os import environ\nenviron['X']"),
    "unknown third party": ("model/ops.py", "import scipy"),
    "a path without a rule": ("helpers/x.py", "import sys"),
}

ACCEPTED = {
    "standard library": ("oracle/block.py", "import math, struct, json"),
    "itself": ("wire/frame.py", "from wire.limits import MAGIC"),
    "errors": ("wire/frame.py", "from errors import ProtocolError"),
    "future": ("errors/tree.py", "from __future__ import annotations"),
    "protobuf in manifest": ("manifest/text.py", "from google.protobuf import text_format"),
    "arrays in reduce": ("coordinator/reduce.py", "import numpy as np"),
    "main binds the model": ("worker/main.py", "from model.binding import open_program"),
    "socket in its home": ("wire/socket_pipe.py", "import socket"),
    "socket in a test": ("coordinator/accept_test.py", "import socket"),
    "clock outside the cores": ("coordinator/processes.py", "import time"),
    "clock in a core's test": ("worker/core_test.py", "import time"),
    "hypothesis in a test": ("wire/frame_test.py", "from hypothesis import given"),
    "oracle in a model test": ("model/block_test.py", "from oracle import block"),
    "golden arrays": (
        "testdata/golden/x.py",
        "import numpy as np\nnp.load('x', allow_pickle=False)",
    ),
}


@pytest.mark.parametrize(("path", "source"), REFUSED.values(), ids=REFUSED)
def test_refused(path: str, source: str) -> None:
    assert list(imports.check(path, source)) != []


@pytest.mark.parametrize(("path", "source"), ACCEPTED.values(), ids=ACCEPTED)
def test_accepted(path: str, source: str) -> None:
    assert list(imports.check(path, source)) == []


def test_bare_siblings_of_the_independent_verifier() -> None:
    beside = frozenset({"verifier/independent/frames.py", "verifier/independent/session.py"})
    path, source = "verifier/independent/session.py", "from frames import decode"
    assert list(imports.check(path, source, beside)) == []
    assert list(imports.check(path, source, frozenset({path}))) != []
    # Nobody else may do so.
    assert list(imports.check("wire/session.py", source, frozenset({"wire/frames.py"}))) != []


def test_the_support_of_tests_counts_as_a_test() -> None:
    path, source = "coordinator/fake_rank.py", "import pytest, socket"
    assert list(imports.check(path, source, test_only=frozenset({path}))) == []
    assert len(list(imports.check(path, source))) == 2


def test_a_finding_names_the_line() -> None:
    (finding,) = imports.check("wire/frame.py", "import struct\n\nimport numpy\n")
    assert (finding.path, finding.line, finding.rule) == ("wire/frame.py", 3, "imports")
