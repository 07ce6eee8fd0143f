"""What a file needs, by its import statements."""

from __future__ import annotations

import pytest

from evidence.import_closure import import_closure

TREE = {
    "a/start.py": "import b.one\nfrom c import two, absent\nfrom d import thing\nimport numpy\n",
    "b/__init__.py": "from b.hidden import x\n",
    "b/one.py": "def f():\n    import late.module\n",
    "b/hidden.py": "",
    "c/two.py": "from a import start\n",
    "d/__init__.py": "thing = 1\n",
    "late/module.py": "from made import module_pb2\n",
    "made/module_pb2.py": "",
    "unused/other.py": "import a.start\n",
}


def test_everything_that_is_imported_and_nothing_else() -> None:
    assert import_closure("a/start.py", TREE.get).keys() == TREE.keys() - {
        "made/module_pb2.py",
        "unused/other.py",
    }


def test_a_file_that_is_not_there() -> None:
    assert import_closure("absent.py", TREE.get) == {}


def test_a_file_that_is_no_python() -> None:
    with pytest.raises(SyntaxError):
        import_closure("a.py", {"a.py": "def"}.get)
