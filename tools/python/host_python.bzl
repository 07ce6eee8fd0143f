"""A Python runtime for py_binary/py_test made of the host's CPython of a fixed minor version and an empty site-packages."""

_PROBE = """
import sys, sysconfig
print(sys._base_executable); print("%d.%d" % sys.version_info[:2]); print(sys.version.split()[0]); print(sys.implementation.cache_tag)
"""

_BUILD = """
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")

package(default_visibility = ["//visibility:public"])

exports_files(["bin/python3"])

filegroup(
    name = "files",
    srcs = ["pyvenv.cfg", "version.txt"],
)

py_runtime(
    name = "runtime",
    bootstrap_template = "@//tools/python:bootstrap.sh.tpl",
    files = [":files"],
    interpreter = "bin/python3",
    python_version = "PY3",
    stub_shebang = "{shebang}",
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

def _impl(rctx):
    want = rctx.attr.version
    tried = []
    exe = None
    out = []
    for name in [rctx.os.environ.get("RANKPROOF_PYTHON", ""), "python" + want, "python3"]:
        exe = rctx.path(name) if name.startswith("/") else (rctx.which(name) if name else None)
        if not exe:
            continue
        res = rctx.execute([exe, "-I", "-S", "-c", _PROBE])
        out = res.stdout.splitlines()
        if res.return_code == 0 and len(out) == 4 and out[1] == want:
            break
        tried.append("{} ({})".format(exe, out[1] if len(out) == 4 else "does not run"))
        exe = None
    if not exe:
        fail("no Python {} found; tried: {}. Set RANKPROOF_PYTHON=/path/to/python{}.".format(want, tried, want))
    base = out[0]
    rctx.file("WORKSPACE", "workspace(name = \"{}\")\n".format(rctx.name))

    # The layout of a virtual environment: a link to the interpreter, pyvenv.cfg above it, no site-packages.
    rctx.symlink(base, "bin/python3")
    rctx.file("pyvenv.cfg", "home = {}\ninclude-system-site-packages = false\nversion = {}\n".format(rctx.path(base).dirname, out[2]))
    rctx.file("version.txt", "{}\n{}\n".format(out[2], out[3]))
    rctx.file("BUILD.bazel", _BUILD.format(shebang = rctx.attr.stub_shebang))

host_python = repository_rule(
    implementation = _impl,
    attrs = {
        "version": attr.string(mandatory = True),
        "stub_shebang": attr.string(default = "#!/bin/sh"),
    },
    environ = ["RANKPROOF_PYTHON", "PATH"],
    local = True,
)
