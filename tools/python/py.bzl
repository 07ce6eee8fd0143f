"""pytest_test: a test whose sources are pytest files."""

load("@pypi//:requirements.bzl", "requirement")
load("@rules_python//python:defs.bzl", "py_test")
load(":bytecode.bzl", "bytecode")

_MAIN = "//tools/python:pytest_main.py"

def pytest_test(name, srcs, deps = [], args = [], data = [], size = "small", tags = [], exhaustive = False, **kwargs):
    """Runs pytest files as one Bazel test: sharding, --test_filter, JUnit XML, no network.

    Args:
      name: target name; by convention the stem of the file it runs.
      srcs: pytest files, each passed to pytest as an argument.
      deps: what the files import; pytest itself is added.
      args: further arguments of pytest, before those of --test_arg.
      data: files and programs that the test uses.
      size: Bazel's test size.
      tags: further tags. "block-network" is always there: only the sandbox's own loopback exists.
      exhaustive: whether some tests have the marker of that name (docs/adr/0057). This target runs
        the others, and NAME_exhaustive, which .bazelrc leaves out but for --config=exhaustive, those.
      **kwargs: any other attribute of py_test; and exhaustive_shard_count, the shard_count of the
        second target, by default that of the first.
    """
    shard_count = kwargs.pop("shard_count", None)
    exhaustive_shard_count = kwargs.pop("exhaustive_shard_count", shard_count)
    bytecode(
        name = name + "_bytecode",
        testonly = True,
        tags = ["manual"],
        targets = deps + data,
    )
    attributes = dict(
        kwargs,
        srcs = srcs + [_MAIN],
        data = data + [name + "_bytecode"],
        main = _MAIN,
        deps = deps + [requirement("pytest")],
    )
    files = ["$(rootpath {})".format(src) for src in srcs]
    tags = ["block-network"] + tags
    py_test(
        name = name,
        size = size,
        args = files + (["-m 'not exhaustive'"] if exhaustive else []) + args,
        shard_count = shard_count,
        tags = tags,
        **attributes
    )
    if exhaustive:
        py_test(
            name = name + "_exhaustive",
            size = size,
            args = files + ["-m exhaustive"] + args,
            shard_count = exhaustive_shard_count,
            tags = tags + ["exhaustive"],
            **attributes
        )
