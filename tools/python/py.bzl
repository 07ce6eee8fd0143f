"""pytest_test: a test whose sources are pytest files."""

load("@pypi//:requirements.bzl", "requirement")
load("@rules_python//python:defs.bzl", "py_test")

_MAIN = "//tools/python:pytest_main.py"

def pytest_test(name, srcs, deps = [], args = [], size = "small", tags = [], **kwargs):
    """Runs pytest files as one Bazel test: sharding, --test_filter, JUnit XML, no network.

    Args:
      name: target name; by convention the stem of the file it runs.
      srcs: pytest files, each passed to pytest as an argument.
      deps: what the files import; pytest itself is added.
      args: further arguments of pytest, before those of --test_arg.
      size: Bazel's test size.
      tags: further tags. "block-network" is always there: only the sandbox's own loopback exists.
      **kwargs: any other attribute of py_test.
    """
    py_test(
        name = name,
        size = size,
        srcs = srcs + [_MAIN],
        args = ["$(rootpath {})".format(src) for src in srcs] + args,
        main = _MAIN,
        tags = ["block-network"] + tags,
        deps = deps + [requirement("pytest")],
        **kwargs
    )
