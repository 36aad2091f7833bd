"""Checks of the installation, the machine and the data: what `ebbflow doctor` prints.

A check that raises is one that failed: the others are made all the same, also where torch is
missing or broken.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, Literal, NamedTuple

import platformdirs

from ebbflow.config.merge import Layers
from ebbflow.core import processor
from ebbflow.core.errors import EbbflowError
from ebbflow.data.download import ENVIRONMENT, SOURCES, data_folders, find

HealthState = Literal["ok", "missing", "broken"]
"""``missing`` is what ebbflow can do without, ``broken`` what it cannot."""

_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[^]]*\])?\s*(?:>=\s*([\d.]+))?\s*")
_EXTRA = re.compile(r"""\s*extra\s*==\s*["']([\w-]+)["']\s*""")
_DEVELOPERS = "dev"
_AGREEMENT = 1e-4  # relative; single precision leaves about 1e-7 of a sum over a round's steps


class HealthCheck(NamedTuple):
    """The outcome of one check: a sentence for people, and the facts behind it for programs."""

    name: str
    state: HealthState
    detail: str
    facts: dict[str, Any]


class PackageNeed(NamedTuple):
    """A package that ebbflow needs, or that one of its extras does."""

    package: str
    least: str
    extra: str

    def problem(self) -> str:
        """Return what is wrong with the package as it is installed; nothing if all is well."""
        try:
            here = version(self.package)
        except PackageNotFoundError:
            return f"{self.package} is missing"
        if _numbers(here) < _numbers(self.least):
            return f"{self.package} {here} is older than {self.least}"
        return ""


def check_installation() -> Iterator[HealthCheck]:
    """Yield the checks in the order in which a user would ask for them."""
    checks: dict[str, Callable[[], Iterable[HealthCheck]]] = {
        "ebbflow": _ebbflow,
        "packages": _packages,
        "extras": _extras,
        "kernel": _kernel,
        "training": _training,
        "machine": _machine,
        "folders": _folders,
        "data": _data,
    }
    for name, check in checks.items():
        try:
            yield from check()
        except EbbflowError as error:
            yield HealthCheck(name, "broken", str(error), {})
        except Exception as error:  # whatever a damaged installation may raise
            reason = str(error).partition("\n")[0]
            yield HealthCheck(name, "broken", f"{type(error).__name__}: {reason}", {})


# --- ebbflow and its packages --------------------------------------------------------------------


def _ebbflow() -> Iterator[HealthCheck]:
    package = Path(__file__).parents[1]
    try:
        own = version("ebbflow")
    except PackageNotFoundError:
        yield HealthCheck(
            "ebbflow", "broken", f"found in {package}, but not installed: pip install .", {}
        )
    else:
        facts = {"version": own, "folder": str(package)}
        yield HealthCheck("ebbflow", "ok", f"{own} in {package}", facts)
    yield _command(Path(sysconfig.get_path("scripts")) / "ebbflow", shutil.which("ebbflow"))
    python = platform.python_version()
    state: HealthState = "ok" if sys.version_info >= (3, 11) else "broken"
    facts = {"version": python, "executable": sys.executable}
    yield HealthCheck("python", state, f"{python}, {sys.executable}", facts)


def _command(own: Path, found: str | None) -> HealthCheck:
    """Say where the command is: this Python's own, and the one that a shell would run."""
    here = own.is_file()
    facts = {"path": str(own) if here else found, "on PATH": found}
    if found is not None and (not here or own.samefile(found)):
        return HealthCheck("command", "ok", found, facts)
    if not here:
        instead = f"there is none here: use `{sys.executable} -m ebbflow`"
        return HealthCheck("command", "missing", instead, facts)
    if found is not None:
        other = f"{own}, but the PATH leads to {found}, which is another installation's"
        return HealthCheck("command", "missing", other, facts)
    activate = own.with_name("activate")
    remedy = f"run `source {activate}`" if activate.is_file() else f"add {own.parent} to it"
    return HealthCheck("command", "missing", f"{own}, which is not on the PATH: {remedy}", facts)


def _packages() -> Iterator[HealthCheck]:
    needed = [each for each in _requirements() if not each.extra]
    troubles = {each.package: problem for each in needed if (problem := each.problem())}
    for package, problem in troubles.items():
        remedy = f"pip install --upgrade {package}"
        yield HealthCheck(package, "broken", f"{problem}: {remedy}", {"remedy": remedy})
    versions = {
        each.package: version(each.package) for each in needed if each.package not in troubles
    }
    shown = [f"{name} {versions[name]}" for name in ("torch", "numpy") if name in versions]
    others = f"{len(versions) - len(shown)} others"
    yield HealthCheck("packages", "ok", ", ".join([*shown, others]), {"versions": versions})


def _extras() -> Iterator[HealthCheck]:
    """Say which optional parts are here; one that asks for nothing is a name of the past."""
    wanted: dict[str, list[PackageNeed]] = {}
    for each in _requirements():
        if each.extra and each.extra != _DEVELOPERS:
            wanted.setdefault(each.extra, []).append(each)
    for extra, needed in wanted.items():
        problems = [problem for each in needed if (problem := each.problem())]
        name, remedy = f"extra {extra}", f'pip install "ebbflow[{extra}]"'
        if problems:
            detail = f"{', '.join(problems)}: {remedy}"
            yield HealthCheck(name, "missing", detail, {"remedy": remedy})
        else:
            versions = {each.package: version(each.package) for each in needed}
            detail = ", ".join(f"{package} {here}" for package, here in versions.items())
            yield HealthCheck(name, "ok", detail, {"versions": versions})


def _requirements() -> Iterator[PackageNeed]:
    """Yield what the installed ebbflow says it needs; without metadata, nothing is known.

    What is needed only on some systems (any other condition than an extra) is left to pip.
    """
    try:
        lines = requires("ebbflow") or []
    except PackageNotFoundError:
        return
    for line in lines:
        text, _, condition = line.partition(";")
        extra = _EXTRA.fullmatch(condition)
        found = _REQUIREMENT.match(text)
        if found and found[1] != "ebbflow" and (extra or not condition):
            yield PackageNeed(found[1], found[2] or "", extra[1] if extra else "")


def _numbers(release: str) -> tuple[int, ...]:
    """Return a version's numbers, to compare it with another.

    >>> _numbers("2.13.0+cpu") < _numbers("2.6"), _numbers("3")
    (False, (3,))
    """
    return tuple(int(part) for part in re.findall(r"\d+", release.partition("+")[0]))


# --- what computes -------------------------------------------------------------------------------


def _kernel() -> Iterator[HealthCheck]:
    """Say whether the fused kernel is here, and what it is worth."""
    from ebbflow.analysis.kernel_timing import time_kernel  # noqa: PLC0415 - imports torch
    from ebbflow.engines import native  # noqa: PLC0415
    from ebbflow.engines.native.loading import LIBRARY  # noqa: PLC0415

    if reason := native.why_missing():
        remedy = "" if LIBRARY.exists() else f"; {_how_to_build()}"
        detail = f"{reason}: softmax regression and dense networks take longer{remedy}"
        yield HealthCheck("kernel", "missing", detail, {"reason": reason})
        return
    timing = time_kernel()
    facts = {
        "seconds with": timing.fused,
        "seconds without": timing.mapped,
        "ratio": timing.ratio,
        "difference": timing.difference,
    }
    if not timing.difference < _AGREEMENT:
        detail = (
            f"{LIBRARY} computes something else than torch (a round differs by "
            f"{timing.difference:.1e}): delete it, or set engine.fused = false"
        )
        yield HealthCheck("kernel", "broken", detail, facts)
        return
    detail = (
        f"a round of softmax regression takes {1000 * timing.fused:.1f} ms, and "
        f"{1000 * timing.mapped:.1f} ms without it: {timing.ratio:.1f} times as fast"
    )
    yield HealthCheck("kernel", "ok", detail, facts)


def _how_to_build() -> str:
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        return "install a C compiler such as gcc, and then ebbflow once more"
    return f"there is a compiler now ({compiler}): `pip install -v --force-reinstall --no-deps .`"


def _training() -> Iterator[HealthCheck]:
    """Train two rounds with each of two engines and compare their losses."""
    from ebbflow import experiment  # noqa: PLC0415 - torch only when it is needed

    def scores(engine: str) -> list[float]:
        layers = Layers()
        layers.add({"sessions": 1, "rounds": 2, "seeds": [1], "partition": {"devices": 4}}, "")
        layers.add_key("engine.kind", engine, "")
        return [r.loss for r in experiment.run(layers.config()).rounds]

    apart = max(abs(a - b) for a, b in zip(scores("vectorised"), scores("sequential"), strict=True))
    state: HealthState = "ok" if apart < 1e-5 else "broken"
    detail = f"two engines, losses {apart:.1e} apart"
    yield HealthCheck("training", state, detail, {"difference": apart})


def _machine() -> Iterator[HealthCheck]:
    import torch  # noqa: PLC0415

    from ebbflow.simulation.ceilings import available_memory, in_words  # noqa: PLC0415

    used = processor.instructions()
    yield HealthCheck("processor", "ok", f"{platform.machine()}, {processor.described(used)}", used)
    cores, variable = len(os.sched_getaffinity(0)), os.environ.get("OMP_NUM_THREADS")
    limit = f", OMP_NUM_THREADS={variable}" if variable else ""
    detail = f"{cores} workers, one for each core of this process{limit}"
    threads = {"workers": cores, "torch": torch.get_num_threads(), "OMP_NUM_THREADS": variable}
    yield HealthCheck("threads", "ok", detail, threads)
    gpus = [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())]
    yield HealthCheck("gpu", "ok", ", ".join(gpus) or "none: the CPU computes", {"names": gpus})
    memory = available_memory()
    detail = "unknown" if memory is None else f"{in_words(memory)} available"
    yield HealthCheck("memory", "ok", detail, {"available": memory})


# --- folders and data ----------------------------------------------------------------------------


def _folders() -> Iterator[HealthCheck]:
    """Say where runs and caches are written, and how much room there is."""
    yield _writable(Path.cwd(), "here", "give runs another folder with --out")
    cache = platformdirs.user_cache_path("ebbflow")
    yield _writable(cache, "cache", f"set {ENVIRONMENT} to a folder for data sets")


def _writable(folder: Path, name: str, remedy: str) -> HealthCheck:
    from ebbflow.simulation.ceilings import (  # noqa: PLC0415 - imports torch
        existing_folder,
        in_words,
        room_on_disk,
    )

    try:
        with tempfile.TemporaryFile(dir=existing_folder(folder)):
            room = room_on_disk(folder)
    except OSError as error:
        detail = f"{folder} cannot be written to ({error.strerror}): {remedy}"
        return HealthCheck(name, "missing", detail, {"folder": str(folder)})
    detail = f"{folder}, {in_words(room)} free on its disk"
    return HealthCheck(name, "ok", detail, {"folder": str(folder), "free": room})


def _data() -> Iterator[HealthCheck]:
    folders = [str(folder) for folder in data_folders()]
    detail = f"looked for in {', '.join(folders)} (${ENVIRONMENT})"
    yield HealthCheck("data", "ok", detail, {"folders": folders})
    for name, source in SOURCES.items():
        if where := find(source):
            yield HealthCheck(name, "ok", str(where), {"folder": str(where)})
        else:
            remedy = f"ebbflow data get {name}"
            yield HealthCheck(name, "missing", f"not here: {remedy}", {"remedy": remedy})
