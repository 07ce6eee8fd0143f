"""Counts the test cases of one `bazel test`: test_counts.py EVENTS [EXIT_CODE]

EVENTS is what --build_event_json_file wrote: one JSON object on each line. Only the tests of that
run count, cached ones included. Prints `N passed, N failed`; a run that failed without a failed
test case, as when a target does not build, counts as one failure.
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
    events = Path(argv[0])
    exit_code = int(argv[1]) if len(argv) > 1 else 0
    # An interrupted or refused run may have written nothing.
    text = events.read_text(encoding="utf-8") if events.exists() else ""
    counts = [count(report) for report in reports(text) if report.exists()]
    passed = sum(pair[0] for pair in counts)
    failed = sum(pair[1] for pair in counts)
    if exit_code != 0 and failed == 0:
        failed = 1
    print(f"{passed} passed, {failed} failed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
