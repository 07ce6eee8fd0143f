"""Every package of this repository. A package that is missing here fails //tools/lint:coverage_test."""

PACKAGES = [
    "//",
    "//errors",
    "//identity",
    "//manifest",
    "//program",
    "//tools",
    "//tools/lint",
    "//tools/proto",
    "//tools/python",
]

# The packages whose sources produce a run; their digest is what --version prints and what a run
# and an evidence package record (docs/spec/evidence.md, E4).
RUN_PACKAGES = [
    "//errors",
    "//identity",
    "//manifest",
    "//program",
]
