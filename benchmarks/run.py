"""Runs suites by name, each in a fresh process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

from benchmarks.results import Suite
from ebbflow.core.errors import EbbflowError, unknown

SUITES = {
    "W1": "benchmarks.suites:w1",
    "W1-AVX2": "benchmarks.avx2:w1_avx2",
    "W2": "benchmarks.suites:w2",
    "W3": "benchmarks.suites:w3",
    "W4": "benchmarks.suites:w4",
    "W5": "benchmarks.suites:w5",
    "modules": "benchmarks.modules:modules",
    "texts": "benchmarks.texts:texts",
    "before": "benchmarks.before:before",
    "cells": "benchmarks.cells:cells",
    "perceptrons": "benchmarks.cells:perceptrons",
    "scaling": "benchmarks.scaling:scaling",
    "histories": "benchmarks.histories:histories",
    "profile": "benchmarks.profile:profile",
}
"""The module and function of each suite; it takes the number of repeats and the peers' folder."""

P = ParamSpec("P")
T = TypeVar("T")


def chosen(names: Sequence[str]) -> list[str]:
    """Return the named suites in the order of the page; all of them if none is named.

    >>> chosen(["scaling", "w1"])
    ['W1', 'scaling']
    """
    by_lower = {name.lower(): name for name in SUITES}
    wanted = set()
    for name in names:
        if name.lower() not in by_lower:
            raise unknown(name, SUITES, "benchmark", "NAME")
        wanted.add(by_lower[name.lower()])
    return [name for name in SUITES if name in wanted or not names]


def _suite(place: str, repeats: int, peers: Path | None, **options: str) -> Suite:
    module, _, function = place.partition(":")
    suite: Callable[..., Suite] = getattr(import_module(module), function)
    return suite(repeats, peers, **options)


def in_new_process(name: str, function: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Return what a function returns that is called in a new process, which nothing has affected.

    ``name`` says what is measured there, in case that the process is killed.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        try:
            return process.submit(function, *given, **named).result()
        except BrokenProcessPool:
            raise EbbflowError(
                f"the process that measured {name} was killed, perhaps for lack of memory"
            ) from None


def measure(name: str, repeats: int, peers: Path | None = None, **options: str) -> Suite:
    """Measure a suite in a new process, so that no earlier suite affects it.

    ``options`` are those that this suite alone has.
    """
    return in_new_process(name, _suite, SUITES[name], repeats, peers, **options)
