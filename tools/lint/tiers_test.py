"""Marks against targets: a marked test that nothing runs is refused, and a tier without a test."""

from __future__ import annotations

import pytest

from tools.lint import tiers
from tools.lint.build_targets import UnreadableError, read

PLAIN = "import pytest\n\ndef test_a() -> None: ...\n"
MARKED = "import pytest\n\n@pytest.mark.exhaustive\ndef test_a() -> None: ...\n"
ONE_CASE = (
    "import pytest\n\nTWO = pytest.param(2, marks=pytest.mark.exhaustive)\n"
    "@pytest.mark.parametrize('x', [1, TWO])\ndef test_a(x: int) -> None: ...\n"
)
BY_HELPER = "from tools.python.tiers import mostly_exhaustive\n"
WHOLE_FILE = "import pytest\n\npytestmark = pytest.mark.exhaustive\n"


def findings(source: str, attributes: str, kind: str = "pytest_test") -> list[str]:
    build = f'{kind}(\n    name = "a_test",\n    srcs = ["a_test.py"],\n{attributes})\n'
    targets = {"wire/BUILD.bazel": read("wire/BUILD.bazel", build)}
    return [str(finding) for finding in tiers.check(targets, {"wire/a_test.py": source})]


@pytest.mark.parametrize("kind", ["pytest_test", "browser_test"])
@pytest.mark.parametrize("source", [MARKED, ONE_CASE, BY_HELPER, WHOLE_FILE])
@pytest.mark.parametrize("attributes", ["", "    exhaustive = False,\n"])
def test_a_marked_test_that_nothing_runs(source: str, kind: str, attributes: str) -> None:
    (found,) = findings(source, attributes, kind)
    assert found.startswith("wire/a_test.py:")
    assert "//wire:a_test" in found
    assert findings(source, "    exhaustive = True,\n", kind) == []


def test_a_tier_without_a_test() -> None:
    (found,) = findings(PLAIN, "    exhaustive = True,\n")
    assert found.startswith("wire/BUILD.bazel:1:")
    assert findings(PLAIN, "") == []


def test_each_target_of_a_file_has_both_tiers() -> None:
    build = "".join(
        f'pytest_test(name = "{name}", srcs = ["a_test.py"], exhaustive = {value})\n'
        for name, value in [("a_test", True), ("again_test", False)]
    )
    targets = {"wire/BUILD.bazel": read("wire/BUILD.bazel", build)}
    (found,) = tiers.check(targets, {"wire/a_test.py": MARKED})
    assert "//wire:again_test" in found.text


def test_a_mark_in_a_library() -> None:
    (found,) = findings(BY_HELPER, "", "py_library")
    assert found.startswith("wire/a_test.py:1:")


def test_a_computed_attribute_is_refused() -> None:
    with pytest.raises(UnreadableError):
        findings(PLAIN, "    exhaustive = SOME,\n")
