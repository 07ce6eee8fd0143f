"""checked_sources: what each package hands to the checks of //tools/lint and to //identity."""

_CHECKED = [
    "*.bzl",
    "*.c",
    "*.py",
    "*.pyi",
    "*.sh",
    "BUILD.bazel",
    "WORKSPACE",
]

# Tests never decide what a run computes.
_NOT_IN_A_RUN = ["**/*_test.py"]

def _below(patterns):
    """These patterns in this package and its folders that are no packages themselves."""
    if native.package_name() == "":
        # Folders of the root are packages, or links of Bazel's into its outputs.
        return patterns
    return ["**/" + pattern for pattern in patterns]

def checked_sources(name = "sources", test_support = []):
    """Declares the sources of this package; each BUILD.bazel calls it once.

    Args:
      name: of the filegroup of all sources that the checks read. A second one, NAME_of_run, holds
        those that decide what a run computes.
      test_support: files that only tests use and whose names do not end in _test.py.
    """
    native.filegroup(
        name = name,
        srcs = native.glob(_below(_CHECKED), allow_empty = True),
        visibility = ["//tools/lint:__pkg__"],
    )
    native.filegroup(
        name = name + "_of_run",
        srcs = native.glob(
            _below(["*.c", "*.proto", "*.py"]),
            allow_empty = True,
            exclude = _NOT_IN_A_RUN + test_support,
        ),
        visibility = ["//identity:__pkg__"],
    )
