"""Pruning of the lock file: only what nothing but an absent package asks for goes."""

from __future__ import annotations

from tools.python import lock

RESOLVED = """\
# a header
absent-child==1.0 \\
    --hash=sha256:aa
    # via absent
absent-grandchild==1.0 \\
    --hash=sha256:bb
    # via absent-child
asked-for==2.0 \\
    --hash=sha256:cc \\
    --hash=sha256:dd
    # via -r requirements.in
shared==3.0 \\
    --hash=sha256:ee
    # via
    #   absent-child
    #   asked-for

# The following packages were not pinned
# absent
"""


def test_prune() -> None:
    kept = lock.prune(lock.blocks(RESOLVED), frozenset({"absent"}))
    assert list(kept) == ["asked-for", "shared"]
    assert kept["asked-for"].count("--hash") == 2
    assert "not pinned" not in kept["shared"]


def test_every_locked_package_is_pinned_by_hash() -> None:
    for name, block in lock.blocks(lock.lock_file().read_text(encoding="utf-8")).items():
        assert "--hash=sha256:" in block, name
