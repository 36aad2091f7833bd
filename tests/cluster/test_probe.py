"""Kernels that round otherwise are told from those that do not."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from ebbflow.cluster import probe
from ebbflow.engines import native
from ebbflow.engines.native import loading
from tests.engines.test_vector_widths import NATIVE, vectors_of, wide

here = pytest.mark.skipif(native.library() is None, reason="there are no kernels here")


def results_of(library: Path, capability: str = "AVX2") -> str:
    """Return what a library of kernels computes, by its 256-bit functions unless told otherwise."""
    with pytest.MonkeyPatch.context() as patch, vectors_of(capability):
        patch.setattr(loading, "LIBRARY", library)
        return probe.results()


@here
def test_the_same_kernels_elsewhere_give_the_same(tmp_path: Path) -> None:
    """Neither the place of a library nor what was in memory before matters."""
    copied = tmp_path / "another.so"
    shutil.copy(loading.LIBRARY, copied)
    assert results_of(copied) == results_of(loading.LIBRARY) == results_of(loading.LIBRARY)


@wide
def test_the_width_of_vectors_does_not_matter() -> None:
    assert results_of(loading.LIBRARY) == results_of(loading.LIBRARY, "AVX512")


@here
@pytest.mark.skipif(
    shutil.which("cc") is None or platform.machine() != "x86_64",
    reason="there is no C compiler for x86 here",
)
@pytest.mark.parametrize("damaged", ["softmax", "dense"])
def test_one_kernel_that_rounds_otherwise_is_found(damaged: str, tmp_path: Path) -> None:
    """By products and sums that are rounded one by one, as with another compiler's default."""
    sources = []
    for name in ("softmax", "dense"):
        joined = "off" if name == damaged else "fast"
        sources.append(tmp_path / f"{name}.o")
        subprocess.run(
            [
                *("cc", "-std=gnu11", "-O3", f"-ffp-contract={joined}", "-fPIC", "-w"),
                *("-march=x86-64-v3", "-c", str(NATIVE / f"{name}.c"), "-o", str(sources[-1])),
            ],
            check=True,
        )
    library = tmp_path / "kernels.so"
    subprocess.run(["cc", "-shared", "-o", str(library), *map(str, sources), "-lm"], check=True)
    assert results_of(library) != results_of(loading.LIBRARY)


def test_without_kernels_it_says_why(tmp_path: Path) -> None:
    assert results_of(tmp_path / "missing.so").startswith("nothing (it was not built when ")
