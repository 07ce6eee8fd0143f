"""Every package of this repository. A package that is missing here fails //tools/lint:coverage_test."""

PACKAGES = [
    "//",
    "//coordinator",
    "//coordinator/serving",
    "//docs/spec",
    "//errors",
    "//evidence",
    "//identity",
    "//manifest",
    "//model",
    "//oracle",
    "//program",
    "//simulation",
    "//testdata/golden",
    "//testdata/tiny-qwen35",
    "//testdata/vectors",
    "//tools",
    "//tools/bench",
    "//tools/launcher",
    "//tools/lint",
    "//tools/pack",
    "//tools/proto",
    "//tools/python",
    "//tools/tiny_model",
    "//verifier/independent",
    "//wire",
    "//worker",
]

# The packages whose sources produce a run; their digest is what --version prints and what a run
# and an evidence package record (docs/spec/evidence.md, E4).
RUN_PACKAGES = [
    "//coordinator",
    "//coordinator/serving",
    "//errors",
    "//identity",
    "//manifest",
    "//model",
    "//oracle",
    "//program",
    "//wire",
    "//worker",
]
