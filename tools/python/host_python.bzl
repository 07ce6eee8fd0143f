"""A Python toolchain made of the host's CPython of one minor version and nothing else of the host.

The repository has the layout of a virtual environment without site-packages, so a child process
started with sys.executable is as hermetic as its parent (a wrapper script with -S -s would not
be: the child's sys.executable is the host's own). docs/adr/0002-hermetic-python.md.
"""

# A pyenv shim or a virtual environment names the real interpreter itself.
_PROBE = """
import sys
print(sys._base_executable)
print("%d.%d" % sys.version_info[:2])
print(sys.version.split()[0])
print(sys.implementation.cache_tag)
"""

_BUILD = """
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")

package(default_visibility = ["//visibility:public"])

exports_files(["bin/python3"])

filegroup(
    name = "files",
    srcs = [
        "pyvenv.cfg",
        "version.txt",
    ],
)

py_runtime(
    name = "runtime",
    bootstrap_template = "@//tools/python:bootstrap.sh.tpl",
    files = [":files"],
    interpreter = "bin/python3",
    python_version = "PY3",
    stub_shebang = "#!/bin/sh",
)

py_runtime_pair(
    name = "pair",
    py3_runtime = ":runtime",
)

toolchain(
    name = "toolchain",
    toolchain = ":pair",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
"""

_PYVENV = """\
home = {home}
include-system-site-packages = false
version = {version}
"""

def _find(rctx, want):
    """Returns the probe's lines for the first interpreter of the wanted minor version."""
    chosen = rctx.os.environ.get("RANKPROOF_PYTHON")
    tried = []
    for name in [chosen] if chosen else ["python" + want, "python3"]:
        path = rctx.path(name) if name.startswith("/") else rctx.which(name)
        if not path:
            tried.append("{} (not found)".format(name))
            continue
        result = rctx.execute([path, "-I", "-S", "-c", _PROBE])
        lines = result.stdout.splitlines()
        if result.return_code == 0 and len(lines) == 4 and lines[1] == want:
            return lines
        tried.append("{} ({})".format(path, lines[1] if len(lines) == 4 else "does not run"))
    fail("no CPython {want} was found (tried {tried}): install one, or set RANKPROOF_PYTHON to its path.".format(
        want = want,
        tried = ", ".join(tried),
    ))

def _host_python_impl(rctx):
    executable, _, version, cache_tag = _find(rctx, rctx.attr.version)
    rctx.file("WORKSPACE", "workspace(name = \"{}\")\n".format(rctx.name))
    rctx.symlink(executable, "bin/python3")
    rctx.file("pyvenv.cfg", _PYVENV.format(
        home = rctx.path(executable).dirname,
        version = version,
    ))

    # In every action key: another patch release compiles and behaves differently.
    rctx.file("version.txt", "{}\n{}\n".format(version, cache_tag))
    rctx.file("BUILD.bazel", _BUILD)

host_python = repository_rule(
    implementation = _host_python_impl,
    attrs = {
        "version": attr.string(mandatory = True, doc = "The minor version, as in 3.11."),
    },
    environ = [
        "PATH",
        "RANKPROOF_PYTHON",
    ],
    local = True,
)
