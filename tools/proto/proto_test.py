"""Generated modules: importable from the repository root, and with a stub for the type checker."""

from __future__ import annotations

from pathlib import Path

from tools.proto import demo_pb2


def test_round_trip() -> None:
    demo = demo_pb2.Demo(rank=3, names=["a", "b"])
    assert demo_pb2.Demo.FromString(demo.SerializeToString()) == demo


def test_the_type_stub_lies_beside_the_module() -> None:
    assert "class Demo" in Path(demo_pb2.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
