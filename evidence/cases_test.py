"""Each of the 288 cases over real processes again: the same bytes as in the committed package.

One case alone: `bazel test //evidence:cases_test --test_filter=CASE_ID`. All cases that are
selected run side by side before the first of them is judged.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from errors import EvidenceError
from evidence.compare import explain
from evidence.matrix import Case, all_cases
from evidence.package import CASES, case_files
from evidence.pool import Finished, try_cases
from evidence.record import case_record
from evidence.tampering.committed import PACKAGE
from tools.python.tiers import mostly_exhaustive
from wire.canonical import encode_canonical

# Shards run side by side too.
JOBS = 6

Results = Mapping[str, Finished | EvidenceError]


def one_seed_each() -> list[Case]:
    """Every fault in every phase and every shape in both orders, with each of the seeds in turn."""
    groups: dict[str, list[Case]] = {}
    for case in all_cases():
        groups.setdefault(case.case_id.replace(f"-s{case.seed}", ""), []).append(case)
    return [group[place % len(group)] for place, group in enumerate(groups.values())]


ALWAYS = one_seed_each()


@pytest.fixture(scope="session")
def results(request: pytest.FixtureRequest) -> Results:
    """All cases that this process was asked for."""
    params = (
        item.callspec.params["case"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    )
    asked = [case for case in params if isinstance(case, Case)]
    return try_cases(asked, JOBS, lambda done, total, case_id: None)


@pytest.fixture(scope="session")
def records() -> dict[str, bytes]:
    """The committed line of each case."""
    lines = (PACKAGE / CASES).read_bytes().splitlines(keepends=True)
    return dict(zip((case.case_id for case in all_cases()), lines, strict=True))


@pytest.mark.parametrize(
    "case",
    mostly_exhaustive(all_cases(), lambda case: case in ALWAYS),
    ids=lambda case: case.case_id,
)
def test_a_case_is_the_same_bytes(case: Case, results: Results, records: dict[str, bytes]) -> None:
    result = results[case.case_id]
    assert isinstance(result, Finished), result
    rebuilt = case_files(result.run)
    folder = PACKAGE / "cases" / case.case_id
    committed = {
        path.relative_to(PACKAGE).as_posix(): path.read_bytes() for path in folder.iterdir()
    }
    committed[CASES] = records[case.case_id]
    rebuilt[CASES] = encode_canonical(case_record(result.run)) + b"\n"
    assert explain(committed, rebuilt) == ""
