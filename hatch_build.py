"""Builds the optional kernels where there is a C compiler; without one nothing is missing."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/ebbflow/engines/native")
LIBRARY = "_kernels.so"
SOURCES = ("softmax.c", "dense.c")
COMPILERS = ("cc", "gcc", "clang")
SECONDS = 120.0  # the kernels are two small files: a compiler that takes longer hangs
# The optimiser joins products and sums to one operation, rounded once, wherever it can. GCC does so
# by default, other compilers less often, and the bits depend on it. It comes after what CC says.
COMMON = ("-std=gnu11", "-O3", "-ffp-contract=fast", "-fPIC")
# Fused multiply-add and 256-bit vectors, which every x86 processor of the last ten years has, and
# once more 512-bit vectors, under other names; the package asks the processor what it may use. That
# loops are otherwise compiled alike keeps the bits of both the same.
_X86 = {
    "avx2": ["-march=x86-64-v3"],
    "avx512": ["-march=x86-64-v3", "-mavx512f", "-mavx512dq", "-mprefer-vector-width=256"],
}
FLAGS: dict[str, dict[str, list[str]]] = {"x86_64": _X86, "AMD64": _X86}


class NotBuiltError(Exception):
    """The kernels cannot be built here; the message says why."""


class BuildKernel(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles the kernels beside their Python modules, also for an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and put the library into the wheel; say so and go on if that fails."""
        if self.target_name != "wheel":
            return
        folder = Path(self.root) / FOLDER
        try:
            build(folder)
        except NotBuiltError as reason:
            self.app.display_warning(
                f"the native kernels were not built: {reason}; ebbflow works without them, and "
                "trains softmax regression and dense networks more slowly"
            )
            if version == "editable":  # an old library may not fit the source that lies beside it
                forget(folder / LIBRARY)
            return
        build_data["artifacts"].append(str(FOLDER / LIBRARY))
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag()}"


def platform_tag() -> str:
    """Return this machine's platform as pip names it.

    The library is loaded with ctypes and knows nothing of Python, so one wheel serves every version
    of it. Which other systems have a C library that fits is not for us to promise: no manylinux.
    """
    from packaging.tags import platform_tags  # noqa: PLC0415 - comes with hatchling

    return next(tag for tag in platform_tags() if not tag.startswith(("manylinux", "musllinux")))


def build(folder: Path) -> None:
    """Compile the kernels' sources in a folder to one library beside them.

    The library is moved into place when it is whole: a program that runs with the old one goes on
    undisturbed.
    """
    if sys.platform == "win32":
        raise NotBuiltError("it is not made for Windows")
    compiler = find_compiler()
    try:
        with tempfile.TemporaryDirectory(prefix=".kernel-", dir=folder) as work:
            library = Path(work) / LIBRARY
            objects = []
            for name, flags in FLAGS.get(platform.machine(), {"any": []}).items():
                for source in SOURCES:
                    objects.append(f"{work}/{source}.{name}.o")
                    arguments = [*COMMON, *flags, "-c", str(folder / source)]
                    run_compiler([*compiler, *arguments, "-o", objects[-1]])
            run_compiler([*compiler, "-shared", "-o", str(library), *objects, "-lm"])
            if not library.is_file() or not library.stat().st_size:
                raise NotBuiltError(f"{shlex.join(compiler)} ended well, but wrote no library")
            library.replace(folder / LIBRARY)
    except OSError as error:
        raise NotBuiltError(f"{folder} cannot be written to ({error.strerror or error})") from error


def find_compiler() -> list[str]:
    """Return the compiler that CC names, with its arguments, or else the first that is found."""
    named = os.environ.get("CC", "")
    try:
        words = shlex.split(named)
    except ValueError as error:
        raise NotBuiltError(f"CC={named} cannot be read ({error})") from error
    found = next(filter(None, map(shutil.which, COMPILERS)), None)
    if not words and found is None:
        raise NotBuiltError(f"there is no C compiler ({', '.join(COMPILERS)}), and CC is not set")
    return words or [str(found)]


def run_compiler(command: list[str]) -> None:
    """Run a compiler, or raise an error with the reason if it cannot be run, fails or hangs."""
    try:
        # A session of its own, so that what the compiler started can be ended with it.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        reason = error.strerror or error
        raise NotBuiltError(f"{command[0]} cannot be run ({reason})") from error
    with process:
        try:
            output, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired as error:
            raise NotBuiltError(f"{command[0]} did not end within {SECONDS:g} s") from error
        finally:
            end_session(process)
    if process.returncode:
        said = output.decode(errors="replace").strip() or f"exit code {process.returncode}"
        raise NotBuiltError(f"{command[0]} failed ({said})")


def end_session(process: subprocess.Popen[bytes]) -> None:
    """End a process that was started in a session of its own, and all that it has started."""
    if process.returncode is None:
        with suppress(OSError):  # it has just ended by itself
            os.killpg(process.pid, signal.SIGKILL)


def forget(library: Path) -> None:
    """Remove a library, if there is one and that is possible."""
    with suppress(OSError):
        library.unlink(missing_ok=True)
