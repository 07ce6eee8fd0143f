"""Records of all 288 cases without running any: for tests of what is computed from records."""

from __future__ import annotations

from typing import Any

from evidence.matrix import FAULT_CODES, all_cases
from evidence.record import fault_object, sha256_hex
from program.block import block_payload_bytes

Json = dict[str, Any]


def made_up_records() -> list[Json]:
    """A line of cases.jsonl for each case, with numbers that a run could have."""
    records = []
    for number, case in enumerate(all_cases()):
        code = FAULT_CODES[case.fault.kind] if case.fault else None
        shape = f"{case.batch}-{case.sequence}-{case.seed}"
        shape += "" if case.sum_order == "pairwise" else f"-{case.ranks}"
        records.append(
            {
                "batch": case.batch,
                "case": case.case_id,
                "epoch": 1,
                "error": (
                    {"code": code, "phase": case.fault.phase, "rank": case.fault.rank}
                    if case.fault
                    else None
                ),
                "fault": fault_object(case),
                "frames_received": 6 * case.ranks,
                "frames_sent": 13 * case.ranks,
                "header_bytes": 36 * 19 * case.ranks,
                "ledger_sha256": sha256_hex(b"ledger"),
                "max_abs_error": None if case.fault else f"1.{number:03}e-07",
                "metadata_bytes": 100 * case.ranks,
                "outcome": code.split(".")[0] if code else "ok",
                "output_bytes": None if case.fault else 64 * case.batch * case.sequence,
                "output_sha256": None if case.fault else sha256_hex(shape.encode()),
                "payload_bytes": block_payload_bytes(case.ranks, case.batch, case.sequence),
                "ranks": case.ranks,
                "relative_l2_error": None if case.fault else f"2.{number:03}e-07",
                "run_identity": sha256_hex(case.case_id.encode()),
                "seed": case.seed,
                "sequence": case.sequence,
                "sum_order": case.sum_order,
                "tape_sha256": sha256_hex(b"tape"),
            }
        )
    return records
