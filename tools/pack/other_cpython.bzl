"""The compiled modules of a wheel for another version of CPython than the build's.

Their file names carry the version, so those of several versions lie side by side in one folder,
and each interpreter takes its own. The rest of the wheel is the same for all versions.
"""

_BUILD = """
load("@//tools/python:wheel_tree.bzl", "wheel_tree")

wheel_tree(
    name = "tree",
    only = ["*.cpython-{tag}-*.so"],
    visibility = ["//visibility:public"],
    whl = glob(["*.whl"]),
)
"""

# Newest first: pip takes the first that the index has.
_PLATFORMS = [
    "manylinux_2_28_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
]

def _locked(text, wheel):
    """The lock file's entry of one wheel: version and hashes."""
    entry = []
    for line in text.splitlines():
        if line.startswith(wheel + "==") or (entry and line.startswith("    --hash=")):
            entry.append(line)
        elif entry:
            return "\n".join(entry) + "\n"
    fail("{} is not in the lock file".format(wheel))

def _other_cpython_modules_impl(rctx):
    rctx.file("locked.txt", _locked(rctx.read(rctx.attr._lock), rctx.attr.wheel))
    command = [rctx.path(rctx.attr._python), "-m", "pip", "download"]
    command += ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
    command += ["--require-hashes", "--requirement=locked.txt", "--dest=."]
    command += ["--implementation=cp", "--python-version=" + rctx.attr.version]
    command += ["--platform=" + platform for platform in _PLATFORMS]

    # The pip that rules_python installs wheels with; the machine's own may be absent.
    pip = rctx.path(rctx.attr._pip).dirname
    result = rctx.execute(command, environment = {"PYTHONPATH": str(pip)}, timeout = 600)
    if result.return_code != 0:
        fail("{} for CPython {} can't be downloaded: {}".format(
            rctx.attr.wheel,
            rctx.attr.version,
            result.stderr,
        ))
    rctx.file("BUILD.bazel", _BUILD.format(tag = rctx.attr.version.replace(".", "")))

other_cpython_modules = repository_rule(
    implementation = _other_cpython_modules_impl,
    attrs = {
        "version": attr.string(mandatory = True, doc = "The minor version, as in 3.12."),
        "wheel": attr.string(mandatory = True, doc = "Its name in the lock file."),
        "_lock": attr.label(default = "//:requirements_lock.txt"),
        "_pip": attr.label(default = "@pypi__pip//:BUILD.bazel"),
        "_python": attr.label(default = "@python3_11//:bin/python3"),
    },
)
