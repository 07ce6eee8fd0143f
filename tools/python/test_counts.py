"""Counts the test cases of runs of `bazel test`: test_counts.py EXIT_CODE [EVENTS]...

EVENTS is what --build_event_json_file wrote: one JSON object on each line. Only the tests of those
runs count, cached ones included. EXIT_CODE is that of the last one. Prints `N passed, N failed`; a
run that failed without a failed test case, as when a target does not build, counts as one failure.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree


def reports(events: str) -> Iterator[Path]:
    """The JUnit files of all tests: one for each shard, run and attempt."""
    for line in events.splitlines():
        event = json.loads(line)
        for output in event.get("testResult", {}).get("testActionOutput", []):
            if output.get("name") == "test.xml" and "uri" in output:
                yield Path(unquote(urlsplit(output["uri"]).path))


def count(report: Path) -> tuple[int, int]:
    """The passed and the failed test cases of one file."""
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = sum(
        case.find("failure") is not None or case.find("error") is not None for case in cases
    )
    return len(cases) - failed, failed


def main(argv: list[str]) -> int:
    """Prints the counts."""
    exit_code = int(argv[0])
    # An interrupted or refused run may have written nothing.
    files = [path for path in map(Path, argv[1:]) if path.exists()]
    found = [report for path in files for report in reports(path.read_text(encoding="utf-8"))]
    counts = [count(report) for report in found if report.exists()]
    passed = sum(pair[0] for pair in counts)
    failed = sum(pair[1] for pair in counts)
    if exit_code != 0 and failed == 0:
        failed = 1
    print(f"{passed} passed, {failed} failed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
