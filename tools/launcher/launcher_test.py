"""Which Bazel tools/bazel runs, and the one sentence with which it refuses.

The launcher and the provisioning script run unchanged in a tree of their own, on a PATH that holds
exactly the programs that a case gives them: fakes that say what they were asked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPTS = ("tools/bazel", "tools/launcher/provision_bazel.sh", ".bazelversion")
# What the scripts use of any Linux.
SYSTEM = """
    awk bash basename cat chmod cut dirname env find flock grep head id ln ls mkdir mv printf
    readlink rm sed sha256sum sleep sort timeout tr uname
"""
VERSION = "7.7.1"
PYTHON = 'case "$*" in *version_info*) echo 3.11 ;; *) exit 0 ;; esac'
APT_SOURCES = "echo https://mirror.example/debian/"


@dataclass
class Machine:
    """A tree with the scripts, a PATH of its own, and a home outside /tmp by the scripts' rules."""

    root: Path
    home: str = "/nonexistent/home"

    @property
    def path(self) -> Path:
        """The only folder on PATH."""
        return self.root / "bin"

    @property
    def prefix(self) -> Path:
        """Where the private Bazel would be."""
        return self.root / "prefix"

    def add(self, name: str, script: str, folder: Path | None = None) -> Path:
        """Adds a program that runs this shell script."""
        program = (folder or self.path) / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.unlink(missing_ok=True)
        program.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
        program.chmod(0o755)
        return program

    def add_bazel(self, name: str, version: str, folder: Path | None = None) -> Path:
        """Adds a Bazel of this version. Run otherwise, it prints its name and arguments."""
        answer = f'[ "$1" != --version ] || {{ echo "bazel {version}"; exit; }}'
        return self.add(name, f"{answer}\nprintf '%s|' {name} \"$@\"", folder)

    def make_prefix(self) -> None:
        """Makes a complete private Bazel of this recipe."""
        self.add_bazel("private", VERSION)
        script = (self.root / SCRIPTS[1]).read_text(encoding="utf-8")
        recipe = next(line for line in script.splitlines() if line.startswith("recipe="))
        self.add("bazel", f'exec "{self.path}/private" "$@"', self.prefix / "bin")
        (self.prefix / "complete").write_text(f"{recipe} version={VERSION}\n", encoding="utf-8")

    def run(
        self, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs tools/bazel."""
        base = {
            "PATH": str(self.path),
            "HOME": self.home,
            "RANKPROOF_BAZEL_PREFIX": str(self.prefix),
            "RANKPROOF_PROBE_SECONDS": "1",
        }
        return subprocess.run(
            [str(self.root / SCRIPTS[0]), *arguments],
            env=base | dict(environment or {}),
            cwd=self.root,
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with a CPython 3.11, a compiler, and no Bazel."""
    made = Machine(tmp_path / "machine")
    for script in SCRIPTS:
        target = made.root / script
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path.cwd() / script, target)
    made.path.mkdir()
    for name in SYSTEM.split():
        found = shutil.which(name)
        if found is not None:
            (made.path / name).symlink_to(found)
    made.add("python3.11", PYTHON)
    made.add("python3", PYTHON)
    made.add("gcc", "")
    return made


def chosen(result: subprocess.CompletedProcess[str]) -> str:
    """The fake that ran in the end."""
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    return result.stdout.split("|")[0]


def sentence(result: subprocess.CompletedProcess[str]) -> str:
    """The refusal: exit code 2, one line, nothing on standard output."""
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("rankproof: ")
    assert line.endswith(".")
    return line


def test_arguments_pass_unchanged(machine: Machine) -> None:
    machine.add_bazel("bazel", VERSION)
    result = machine.run("test", "//...", "--test_arg=-k a b", "")
    assert result.stdout == "bazel|test|//...|--test_arg=-k a b||"


@pytest.mark.parametrize("name", ["bazel", "bazelisk"])
@pytest.mark.parametrize("version", [VERSION, "7.0.0"])
def test_an_installed_bazel_is_used(machine: Machine, name: str, version: str) -> None:
    machine.add_bazel(name, version)
    assert chosen(machine.run("info")) == name


def test_bazelisk_comes_before_bazel(machine: Machine) -> None:
    machine.add_bazel("bazel", VERSION)
    machine.add_bazel("bazelisk", VERSION)
    assert chosen(machine.run("info")) == "bazelisk"


def test_the_private_bazel_is_used_once_it_is_made(machine: Machine) -> None:
    machine.make_prefix()
    machine.add_bazel("bazelisk", VERSION)
    assert chosen(machine.run("info")) == "private"


@pytest.mark.parametrize("stamp", ["", "recipe=0 version=7.7.1\n"])
def test_an_incomplete_or_older_private_bazel_is_not(machine: Machine, stamp: str) -> None:
    machine.make_prefix()
    (machine.prefix / "complete").write_text(stamp, encoding="utf-8")
    machine.add_bazel("bazel", VERSION)
    assert chosen(machine.run("info")) == "bazel"


def test_the_caller_s_choice_comes_first(machine: Machine) -> None:
    machine.make_prefix()
    mine = machine.add_bazel("mine", VERSION, machine.root / "elsewhere")
    real = machine.add_bazel("real", VERSION, machine.root / "elsewhere")
    environment = {"RANKPROOF_BAZEL": str(mine), "BAZEL_REAL": str(real)}
    assert chosen(machine.run("info", environment=environment)) == "mine"


def test_the_bazel_of_a_calling_bazelisk_is_used(machine: Machine) -> None:
    machine.make_prefix()
    real = machine.add_bazel("real", VERSION, machine.root / "elsewhere")
    assert chosen(machine.run("info", environment={"BAZEL_REAL": str(real)})) == "real"


@pytest.mark.parametrize("version", ["4.2.3", "8.0.0", "no version"])
def test_an_unsuitable_calling_bazel_is_passed_over(machine: Machine, version: str) -> None:
    machine.make_prefix()
    real = machine.add_bazel("real", version, machine.root / "elsewhere")
    assert chosen(machine.run("info", environment={"BAZEL_REAL": str(real)})) == "private"
    missing = {"BAZEL_REAL": "/usr/bin/bazel-9.9.9-absent"}
    assert chosen(machine.run("info", environment=missing)) == "private"


def test_a_bazel_that_does_not_answer_is_passed_over(machine: Machine) -> None:
    machine.add("bazelisk", "exec sleep 30")
    machine.add_bazel("bazel", VERSION)
    assert chosen(machine.run("info")) == "bazel"


def test_a_link_to_the_launcher_on_path_does_not_call_itself(machine: Machine) -> None:
    (machine.path / "bazel").symlink_to(machine.root / SCRIPTS[0])
    assert "apt-get" in sentence(machine.run("info"))


def test_a_chosen_bazel_of_another_version_is_refused(machine: Machine) -> None:
    other = machine.add_bazel("other", "8.0.0", machine.root / "elsewhere")
    result = machine.run("info", environment={"RANKPROOF_BAZEL": str(other)})
    assert str(other) in sentence(result)


def without_python(machine: Machine) -> dict[str, str]:
    machine.add("python3.11", "exit 127")
    machine.add("python3", "echo 3.12")
    return {}


def wrong_python(machine: Machine) -> dict[str, str]:
    return {"RANKPROOF_PYTHON": str(machine.add("python3.12", "echo 3.12"))}


def without_compiler(machine: Machine) -> dict[str, str]:
    (machine.path / "gcc").unlink()
    return {}


def old_compiler(machine: Machine) -> dict[str, str]:
    machine.add("gcc", "exit 1")
    return {}


def other_processor(machine: Machine) -> dict[str, str]:
    machine.add("uname", "echo Linux riscv64")
    return {}


def with_apt(machine: Machine, script: str = APT_SOURCES) -> dict[str, str]:
    """apt-get and its companions, and the keys of this test's own Debian."""
    for name in ("apt-cache", "dpkg-deb"):
        machine.add(name, "")
    machine.add("apt-get", script)
    script_path = machine.root / SCRIPTS[1]
    script_text = script_path.read_text(encoding="utf-8")
    for line in ("keyring=", "certificates="):
        old = next(text for text in script_text.splitlines() if text.startswith(line))
        script_text = script_text.replace(old, f"{line}{script_path}")
    # The sandbox's temporary folder stands for the folder of a user.
    script_text = script_text.replace("/tmp/* | /var/tmp/*", "/hidden/*")
    script_path.write_text(script_text, encoding="utf-8")
    return {}


def without_keys(machine: Machine) -> dict[str, str]:
    with_apt(machine)
    path = machine.root / SCRIPTS[1]
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(f"keyring={path}", "keyring=/absent"), encoding="utf-8")
    return {}


def without_pip(machine: Machine) -> dict[str, str]:
    with_apt(machine)
    machine.add("python3", 'case "$*" in *version_info*) echo 3.11 ;; *) exit 1 ;; esac')
    return {}


def hidden_prefix(machine: Machine) -> dict[str, str]:
    with_apt(machine)
    return {"RANKPROOF_BAZEL_PREFIX": "/hidden/bazel"}


def no_home(machine: Machine) -> dict[str, str]:
    with_apt(machine)
    return {"HOME": "", "RANKPROOF_BAZEL_PREFIX": ""}


def relative_prefix(machine: Machine) -> dict[str, str]:
    with_apt(machine)
    return {"RANKPROOF_BAZEL_PREFIX": "relative/bazel"}


def read_only(machine: Machine) -> dict[str, str]:
    with_apt(machine)
    return {"RANKPROOF_BAZEL_PREFIX": "/proc/rankproof/bazel"}


def no_mirror(machine: Machine) -> dict[str, str]:
    return with_apt(machine, "echo https://mirror.example/ubuntu/")


REFUSALS = {
    "no CPython 3.11": (without_python, "CPython 3.11"),
    "RANKPROOF_PYTHON of another version": (wrong_python, "RANKPROOF_PYTHON"),
    "no compiler": (without_compiler, "install gcc"),
    "an old compiler": (old_compiler, "gcc 11"),
    "unsupported processor": (other_processor, "riscv64"),
    "no apt": (lambda machine: {}, "no apt-get"),
    "no Debian keys": (without_keys, "debian-archive-keyring"),
    "no pip": (without_pip, "install python3-pip"),
    "a prefix that the sandbox hides": (hidden_prefix, "RANKPROOF_BAZEL_PREFIX"),
    "no home": (no_home, "set HOME"),
    "a relative prefix": (relative_prefix, "absolute path"),
    "a prefix that can't be written": (read_only, "can't be written"),
    "no Debian mirror": (no_mirror, "no Debian mirror"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_are_one_sentence_with_a_way_out(machine: Machine, name: str) -> None:
    prepare, part = REFUSALS[name]
    # What is checked after the announcement of the work comes with it.
    result = machine.run("info", environment=prepare(machine))
    last = result.stderr.splitlines()[-1]
    assert result.returncode == 2
    assert result.stdout == ""
    assert part in last
    assert [line for line in result.stderr.splitlines() if not line.startswith("rankproof: ")] == []
    assert sum(line.endswith(".") for line in result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("apt", "cache", "part"),
    [
        ("exit 100", "", "connect this machine"),
        ("", "echo Version: 9.0.0", "RANKPROOF_DEBIAN_SUITES"),
        ("", "", "RANKPROOF_DEBIAN_SUITES"),
    ],
    ids=["no network", "only another version", "no version"],
)
def test_failures_of_the_mirror(machine: Machine, apt: str, cache: str, part: str) -> None:
    with_apt(machine, f'case "$1" in indextargets) {APT_SOURCES} ;; *) {apt or ":"} ;; esac')
    machine.add("apt-cache", cache)
    result = machine.run("info")
    assert result.returncode == 2
    *progress, last = result.stderr.splitlines()
    assert part in last
    # First use is not silent.
    assert "making a private one" in progress[0]
    assert not machine.prefix.exists()


def test_an_unexpected_failure_is_one_sentence_too(machine: Machine) -> None:
    with_apt(machine, f'case "$1" in indextargets) {APT_SOURCES} ;; esac')
    machine.add("apt-cache", f"echo Version: {VERSION}+ds-8")
    machine.add("sort", "exit 9")
    result = machine.run("info")
    assert result.returncode == 2
    assert sum(line.endswith(".") for line in result.stderr.splitlines()) == 1
    assert "run this again" in result.stderr.splitlines()[-1]


def test_a_second_run_waits_for_the_first(machine: Machine) -> None:
    """The one that waits finds the other's result, and does nothing itself."""
    with_apt(machine)
    lock = machine.prefix.with_name("prefix.lock")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    holder.stdout.readline()
    waiting = subprocess.Popen(
        [str(machine.root / SCRIPTS[1])],
        env={"PATH": str(machine.path), "RANKPROOF_BAZEL_PREFIX": str(machine.prefix)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert waiting.stderr is not None
    assert "another run" in waiting.stderr.readline()
    machine.make_prefix()
    holder.communicate(b"\n", timeout=60)
    output, rest = waiting.communicate(timeout=60)
    assert (waiting.returncode, rest) == (0, "")
    assert output == f"{machine.prefix}/bin/bazel\n"


HOLD_LOCK = """
import fcntl, sys
with open(sys.argv[1], "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_the_way_in_does_not_depend_on_the_folder_of_the_call(machine: Machine) -> None:
    machine.add_bazel("bazel", VERSION)
    link = machine.root / "link"
    link.symlink_to(machine.root / SCRIPTS[0])
    environment = {"PATH": str(machine.path), "RANKPROOF_BAZEL_PREFIX": str(machine.prefix)}
    result = subprocess.run(
        [str(link), "info"], env=environment, cwd="/", check=True, stdout=subprocess.PIPE, text=True
    )
    assert result.stdout == "bazel|info|"
    assert os.path.lexists(link)
