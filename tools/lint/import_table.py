"""Who may import what: the dependency rules of the architecture, as data.

A rule belongs to the longest path prefix that matches a file. The standard library is always
allowed, except for the modules named at the end. Names of first-party packages are top-level
folders; a package may always import itself.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Allowed:
    """What the files below one path may import, besides the standard library and themselves."""

    first_party: frozenset[str] = frozenset()
    third_party: frozenset[str] = frozenset()
    # Further first-party packages for *_test.py files.
    tests: frozenset[str] = frozenset()


def _allowed(first_party: str = "", third_party: str = "", tests: str = "") -> Allowed:
    return Allowed(*(frozenset(names.split()) for names in (first_party, third_party, tests)))


EVERYTHING_BUT_SERVING = (
    "coordinator errors identity manifest model oracle program simulation wire worker"
)

TABLE = {
    "errors": _allowed(),
    "identity": _allowed(),
    "wire": _allowed("errors"),
    "program": _allowed("errors"),
    "manifest": _allowed("errors", "google"),
    "model": _allowed("errors program", "numpy", tests="oracle"),
    "worker": _allowed("errors program wire", tests="model"),
    # The only place where the worker meets the maths.
    "worker/main.py": _allowed("errors identity model program wire"),
    "coordinator": _allowed(
        "errors identity manifest program wire", "runfiles", tests="model simulation worker"
    ),
    # The composition root: the only place where a run meets its judge.
    "coordinator/main.py": _allowed("errors identity manifest oracle program wire"),
    # The only arrays of the coordinator: sums of partials.
    "coordinator/reduce.py": _allowed("errors program wire", "numpy"),
    "coordinator/reduce_test.py": _allowed("errors program wire", "numpy"),
    # The HTTP front end: whatever serves, renders and measures requests, and no arrays.
    "coordinator/serving": _allowed(
        "errors identity manifest program wire",
        "h11 jinja2 prometheus_client starlette tokenizers uvicorn",
        tests="model simulation tools worker",
    ),
    "simulation": _allowed("coordinator errors identity manifest model program wire worker"),
    "evidence": _allowed(EVERYTHING_BUT_SERVING, "numpy runfiles", tests="verifier"),
    # Independent by construction: a fault of ours can't hide in it.
    "oracle": _allowed(),
    "verifier/independent": _allowed(),
    # The model's maths, to compute a case's numbers again; the independent verifier has its own.
    "verifier/package": _allowed("errors evidence model oracle program wire", tests="simulation"),
    "testdata": _allowed(EVERYTHING_BUT_SERVING, "numpy"),
    "tools": _allowed(EVERYTHING_BUT_SERVING + " evidence testdata", "google numpy runfiles"),
    "tools/bench": _allowed(
        EVERYTHING_BUT_SERVING + " evidence testdata", "google httpx2 numpy runfiles"
    ),
    # Drives a browser, and plays the server that it looks at.
    "tools/browser": _allowed("errors testdata", "runfiles starlette uvicorn websockets"),
    "tools/golden": _allowed("testdata", "numpy safetensors torch transformers"),
    "tools/python/pytest_main.py": _allowed("", "hypothesis pytest"),
    "tools/tiny_model": _allowed("testdata", "numpy safetensors tokenizers torch transformers"),
}

FIRST_PARTY = frozenset(path.split("/")[0] for path in TABLE)

# What any test may use.
TEST_LIBRARIES = frozenset(
    {"httpx2", "hypothesis", "numpy", "openai", "pytest", "runfiles", "websockets"}
)
TEST_PACKAGES = frozenset({"testdata"})
# And the one module that says which of their cases are for every run.
TEST_MODULES = ("tools.python.tiers.",)

# These execute or unpack whatever they are given, or open files by content.
BANNED_MODULES = frozenset({"dill", "marshal", "pickle", "shelve"})
BANNED_CALLS = frozenset({"eval", "exec", "__import__"})
# An array file may carry a pickle; the product's readers take bytes and check them. Goldens are
# arrays of ours that only tests read.
ARRAY_FILES = frozenset({"numpy.load", "numpy.loadtxt", "numpy.save", "numpy.savez"})
ARRAY_FILE_HOMES = ("testdata/golden/", "tools/golden/")
# May only be given as the literal False.
FALSE_KEYWORDS = frozenset({"allow_pickle"})

# Sockets have one home; everything else talks through a pipe. Tests may play a peer.
SOCKET_HOMES = ("wire/socket_pipe.py", "coordinator/serving/", "tools/")
SOCKET_MODULES = frozenset({"asyncio", "socket", "socketserver", "ssl"})

# Cores: their result is a function of their arguments. No clock, chance, environment or log.
PURE = (
    "coordinator/admission.py",
    "coordinator/reduce.py",
    "coordinator/scheduler.py",
    "errors/",
    "manifest/",
    "model/",
    "oracle/",
    "program/",
    "wire/canonical.py",
    "wire/connection.py",
    "wire/frame.py",
    "wire/frame_reader.py",
    "wire/ledger.py",
    "wire/link.py",
    "wire/metadata.py",
    "wire/recorder.py",
    "wire/session.py",
    "wire/tape.py",
    "worker/core.py",
    "worker/executor.py",
)
IMPURE_MODULES = frozenset({"datetime", "logging", "random", "secrets", "time"})
IMPURE_ATTRIBUTES = frozenset({"os.environ", "os.getenv"})
