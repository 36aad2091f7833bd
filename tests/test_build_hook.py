"""The build hook: the kernel is built where that is possible, and an install never fails for it."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
NATIVE = Path("src", "ebbflow", "engines", "native")
SOURCES = ("softmax.c", "dense.c")
SMALL = """
#ifdef __AVX512F__
int ebbflow_NAME_avx512(void) { return 512; }
#else
int ebbflow_NAME(void) { return 256; }
#endif
"""
compiles = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")


class Interface:
    """Stands for hatchling's interface, which need not be installed to try the hook."""


class Built(NamedTuple):
    """What a build gave: what hatchling is told, and the warnings."""

    data: dict[str, Any]
    warnings: list[str]


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import the hook."""
    name = "hatchling.builders.hooks.plugin.interface"
    for length in range(1, 6):
        part = ".".join(name.split(".")[:length])
        monkeypatch.setitem(sys.modules, part, ModuleType(part))
    sys.modules[name].BuildHookInterface = Interface  # type: ignore[attr-defined]
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with sources that are compiled in no time; the hook does not read them."""
    folder = tmp_path / "checkout with 'quotes'"
    (folder / NATIVE).mkdir(parents=True)
    for name in SOURCES:
        (folder / NATIVE / name).write_text(SMALL.replace("NAME", name.removesuffix(".c")))
    return folder


def build(hook: ModuleType, checkout: Path, version: str = "standard") -> Built:
    """Run the hook as hatchling does."""
    warnings: list[str] = []
    own = hook.BuildKernel()
    own.root, own.target_name = str(checkout), "wheel"
    own.app = SimpleNamespace(display_warning=warnings.append)
    data: dict[str, Any] = {"artifacts": [], "pure_python": True, "infer_tag": False}
    own.initialize(version, data)
    return Built(data, warnings)


def compiler(folder: Path, script: str) -> str:
    """Write a program that stands for a compiler, and return its path."""
    path = folder / "fake-cc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def assert_without_kernel(built: Built, checkout: Path, reason: str) -> None:
    """Check that the wheel is the pure one and that one warning says why."""
    assert built.data == {"artifacts": [], "pure_python": True, "infer_tag": False}
    (warning,) = built.warnings
    assert warning.startswith("the native kernels were not built: ")
    assert reason in warning
    assert "ebbflow works without them" in warning
    left = sorted(path.name for path in (checkout / NATIVE).iterdir() if path.is_file())
    assert left == sorted(SOURCES)


@compiles
@pytest.mark.parametrize(
    "named",
    ["", " ", "cc", "cc -O2 -DNAME='two words'", '"{cc}" -Wall'],
    ids=["unset", "blank", "name", "arguments", "quotes"],
)
def test_the_kernel_is_built_with_any_way_to_name_a_compiler(
    hook: ModuleType, checkout: Path, monkeypatch: pytest.MonkeyPatch, named: str, tmp_path: Path
) -> None:
    spaced = tmp_path / "a folder" / "cc"
    spaced.parent.mkdir()
    spaced.symlink_to(str(shutil.which("cc")))
    monkeypatch.setenv("CC", named.replace("{cc}", str(spaced)))
    built = build(hook, checkout)
    assert built.warnings == []
    assert built.data["artifacts"] == [str(NATIVE / "_kernels.so")]
    assert built.data["pure_python"] is False
    assert built.data["tag"] == f"py3-none-{hook.platform_tag()}"
    assert {path.name for path in (checkout / NATIVE).iterdir()} == {"_kernels.so", *SOURCES}
    library = ctypes.CDLL(str(checkout / NATIVE / "_kernels.so"))
    assert hasattr(library, "ebbflow_softmax")
    assert hasattr(library, "ebbflow_dense")


def test_products_and_sums_are_joined_whatever_the_compiler_does_by_default(
    hook: ModuleType, checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The kernels' bits depend on it; what is said last counts."""
    note = tmp_path / "arguments"
    script = f'echo "$@" >> {shlex.quote(str(note))}; exit 1'
    monkeypatch.setenv("CC", f"{shlex.quote(compiler(tmp_path, script))} -ffp-contract=off")
    build(hook, checkout)
    told = [word for word in note.read_text().split() if word.startswith("-ffp-contract")]
    assert told == ["-ffp-contract=off", "-ffp-contract=fast"]


def test_the_library_knows_nothing_of_python() -> None:
    """So that a wheel may be tagged py3-none: no symbol of Python's, and no library of its."""
    library = ROOT / NATIVE / "_kernels.so"
    if not library.exists():
        pytest.skip("no library was built here")
    content = library.read_bytes()
    assert b"ebbflow_softmax" in content
    assert b"ebbflow_dense_backward" in content
    assert b"libpython" not in content
    assert b"\0Py" not in content and b"\0_Py" not in content


def test_the_platform_is_one_that_pip_accepts_here(hook: ModuleType) -> None:
    tags = pytest.importorskip("packaging.tags")
    platform = hook.platform_tag()
    assert platform in set(tags.platform_tags())
    assert not platform.startswith(("manylinux", "musllinux"))
    assert f"py3-none-{platform}" in set(map(str, tags.sys_tags()))


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ("/nonexistent", "/nonexistent cannot be run (No such file or directory)"),
        ("nosuch -O3", "nosuch cannot be run (No such file or directory)"),
        ("/", "/ cannot be run (Permission denied)"),
        ("cc 'unbalanced", "CC=cc 'unbalanced cannot be read (No closing quotation)"),
    ],
)
def test_a_compiler_that_cannot_be_run_costs_only_the_kernel(
    hook: ModuleType, checkout: Path, monkeypatch: pytest.MonkeyPatch, named: str, reason: str
) -> None:
    monkeypatch.setenv("CC", named)
    assert_without_kernel(build(hook, checkout), checkout, reason)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo no such luck >&2; exit 3", "fake-cc failed (no such luck)"),
        ("exit 3", "fake-cc failed (exit code 3)"),
        ("kill -9 $$", "fake-cc failed (exit code -9)"),
        (r"printf '\377 bytes'; exit 1", "fake-cc failed (\ufffd bytes)"),
        ("exit 0", "ended well, but wrote no library"),
        ('while [ "$1" != -o ]; do shift; done; : > "$2"', "ended well, but wrote no library"),
    ],
    ids=["fails", "silent", "killed", "bytes", "nothing", "empty"],
)
def test_a_compiler_that_fails_costs_only_the_kernel(
    hook: ModuleType,
    checkout: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    script: str,
    reason: str,
) -> None:
    monkeypatch.setenv("CC", shlex.quote(compiler(tmp_path, script)))
    assert_without_kernel(build(hook, checkout), checkout, reason)


def test_a_compiler_that_hangs_is_ended_with_all_it_started(
    hook: ModuleType, checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    script = f"sleep 600 &\necho $! > {shlex.quote(str(note))}\nwait"
    monkeypatch.setenv("CC", shlex.quote(compiler(tmp_path, script)))
    monkeypatch.setattr(hook, "SECONDS", 1.0)
    begun = time.monotonic()
    assert_without_kernel(build(hook, checkout), checkout, "did not end within 1 s")
    assert time.monotonic() - begun < 30
    sleeper = int(note.read_text())
    while _runs(sleeper) and time.monotonic() - begun < 30:  # ended, and soon gone
        time.sleep(0.05)
    assert not _runs(sleeper)


def _runs(pid: int) -> bool:
    """Whether a process is there and not merely waiting for somebody to ask how it ended."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_without_any_compiler_the_warning_says_so(
    hook: ModuleType, checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    reason = "there is no C compiler (cc, gcc, clang), and CC is not set"
    assert_without_kernel(build(hook, checkout), checkout, reason)


def test_windows_is_told_that_the_kernel_is_not_for_it(
    hook: ModuleType, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert_without_kernel(build(hook, checkout), checkout, "it is not made for Windows")


@compiles
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_source_folder_that_is_read_only(hook: ModuleType, checkout: Path) -> None:
    (checkout / NATIVE).chmod(0o555)
    try:
        built = build(hook, checkout)
    finally:
        (checkout / NATIVE).chmod(0o755)
    assert_without_kernel(built, checkout, "cannot be written to (Permission denied)")


def _refuse_folder(*arguments: object, **named: object) -> None:
    raise OSError(30, "Read-only file system")


def test_a_source_folder_on_a_read_only_disk(
    hook: ModuleType, checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CC", shlex.quote(compiler(tmp_path, "exit 0")))
    monkeypatch.setattr(hook.tempfile, "mkdtemp", _refuse_folder)
    built = build(hook, checkout)
    assert_without_kernel(built, checkout, "cannot be written to (Read-only file system)")


@compiles
def test_a_library_that_cannot_be_replaced(
    hook: ModuleType, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CC", raising=False)
    (checkout / NATIVE / "_kernels.so").mkdir()
    assert_without_kernel(build(hook, checkout), checkout, "cannot be written to")


@pytest.mark.parametrize(("version", "kept"), [("editable", False), ("standard", True)])
def test_an_editable_install_forgets_a_library_that_may_not_fit_its_source(
    hook: ModuleType, checkout: Path, monkeypatch: pytest.MonkeyPatch, version: str, kept: bool
) -> None:
    old = checkout / NATIVE / "_kernels.so"
    old.write_bytes(b"of an earlier build")
    monkeypatch.setenv("CC", "/nonexistent")
    assert build(hook, checkout, version).data["artifacts"] == []
    assert old.exists() is kept


@compiles
def test_a_program_that_has_loaded_the_old_library_keeps_it(
    hook: ModuleType, checkout: Path
) -> None:
    """The new library is another file: writing into one that is mapped would end its users."""
    build(hook, checkout)
    before = (checkout / NATIVE / "_kernels.so").stat().st_ino
    with (checkout / NATIVE / "_kernels.so").open("rb"):
        build(hook, checkout)
        assert (checkout / NATIVE / "_kernels.so").stat().st_ino != before


@pytest.mark.parametrize("target", ["sdist", "custom"])
def test_only_a_wheel_gets_a_kernel(hook: ModuleType, checkout: Path, target: str) -> None:
    own = hook.BuildKernel()
    own.root, own.target_name = str(checkout), target
    data: dict[str, Any] = {}
    initialize: Callable[[str, dict[str, Any]], None] = own.initialize
    initialize("standard", data)
    assert data == {}
