"""The wheels that users install: the simulator, whole and alone, with the kernel or without."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from email import message_from_bytes
from importlib.util import find_spec
from pathlib import Path

import pytest

from ebbflow import __version__

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
BUILD_FILES = ("LICENSE", "NOTICE", "README.md", "hatch_build.py", "pyproject.toml")
DIST_INFO = f"ebbflow-{__version__}.dist-info"
LIBRARY = Path("src", "ebbflow", "engines", "native", "_kernels.so")


@pytest.fixture(scope="module")
def no_compiler(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment whose PATH has no compiler."""
    folder = tmp_path_factory.mktemp("empty-path")
    kept = {key: value for key, value in os.environ.items() if key not in ("CC", "PYTHONPATH")}
    environment = {**kept, "PATH": str(folder)}
    assert shutil.which("cc", path=environment["PATH"]) is None
    return environment


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, no_compiler: dict[str, str]) -> Path:
    """Build the wheel where there is no compiler."""
    return build(tmp_path_factory.mktemp("pure"), no_compiler)


@pytest.fixture(scope="module")
def kernel_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel where there is a compiler."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler here")
    kept = {key: value for key, value in os.environ.items() if key not in ("CC", "PYTHONPATH")}
    return build(tmp_path_factory.mktemp("kernel"), kept)


def build(folder: Path, environment: Mapping[str, str]) -> Path:
    """Build a wheel from a copy of the checkout: a build writes into its sources."""
    checkout, out = folder / "checkout", folder / "out"
    checkout.mkdir()
    for name in BUILD_FILES:
        shutil.copy(ROOT / name, checkout / name)
    shutil.copytree(ROOT / "src", checkout / "src", ignore=shutil.ignore_patterns("*.so"))
    (checkout / LIBRARY).write_bytes(b"of an earlier build, on another machine")
    # Without isolation nothing has to be downloaded.
    alone = ["--no-build-isolation"] if find_spec("hatchling") else []
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", *alone, "-w", str(out), str(checkout)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if "No matching distribution found for hatchling" in done.stdout + done.stderr:
        pytest.skip("hatchling cannot be installed here")
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = out.iterdir()
    return path


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    assert wheel.name == f"ebbflow-{__version__}-py3-none-any.whl"
    package = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "ebbflow").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
    }
    about = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
    held = set(zipfile.ZipFile(wheel).namelist())
    assert held == package | {f"{DIST_INFO}/{name}" for name in (*about, "licenses/NOTICE")}


def test_the_wheel_holds_no_publication_no_benchmark_and_no_table(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if re.search("bench|chang2025|reproduc|published", name)] == []
    kinds = {Path(name).suffix for name in names if not name.startswith(DIST_INFO)}
    page = {".css", ".html", ".js"}
    assert kinds == {".c", ".md", ".npz", ".py", ".toml", ".txt", ".typed"} | page
    assert [name for name in names if name.endswith(".npz")] == ["ebbflow/data/files/digits.npz"]
    assert [name for name in names if name.endswith(".md")] == [
        "ebbflow/data/files/DIGITS_LICENSE.md"
    ]


def test_the_wheel_asks_for_what_the_project_declares(wheel: Path) -> None:
    metadata = message_from_bytes(zipfile.ZipFile(wheel).read(f"{DIST_INFO}/METADATA"))
    required = [text for text in metadata.get_all("Requires-Dist", []) if "extra" not in text]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert sorted(required) == sorted(project["dependencies"])


def test_the_demo_runs_from_the_wheel_without_a_compiler(
    wheel: Path, no_compiler: dict[str, str], tmp_path: Path
) -> None:
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    program = (
        "import sys, ebbflow\n"
        f"assert ebbflow.__file__.startswith({str(installed)!r}), ebbflow.__file__\n"
        "sys.argv = ['ebbflow', 'compare', '--preset', 'demo', '--out', 'run']\n"
        "from ebbflow.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**no_compiler, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "warm_start" in done.stdout
    assert (tmp_path / "run" / "summary.json").is_file()


@pytest.mark.parametrize(
    "named",
    ["/nonexistent", "sh -c 'exit 0'", "sh -c 'exit 1'", "cc 'unbalanced"],
    ids=["missing", "idle", "failing", "unbalanced"],
)
def test_a_broken_compiler_does_not_stop_the_install(named: str, tmp_path: Path) -> None:
    built = build(tmp_path, {**os.environ, "CC": named})
    assert built.name == f"ebbflow-{__version__}-py3-none-any.whl"
    assert not any(name.endswith(".so") for name in zipfile.ZipFile(built).namelist())


def test_the_pure_wheel_says_that_it_is_pure(wheel: Path) -> None:
    about = message_from_bytes(zipfile.ZipFile(wheel).read(f"{DIST_INFO}/WHEEL"))
    assert about["Root-Is-Purelib"] == "true"
    assert about.get_all("Tag") == ["py3-none-any"]


def test_a_wheel_with_the_kernel_serves_every_python_on_its_platform(kernel_wheel: Path) -> None:
    tags = pytest.importorskip("packaging.tags")
    found = re.fullmatch(
        rf"ebbflow-{re.escape(__version__)}-(py3-none-(\w+))\.whl", kernel_wheel.name
    )
    assert found is not None, kernel_wheel.name
    assert found[2] in set(tags.platform_tags())
    about = message_from_bytes(zipfile.ZipFile(kernel_wheel).read(f"{DIST_INFO}/WHEEL"))
    assert about["Root-Is-Purelib"] == "false"
    assert about.get_all("Tag") == [found[1]]
    for minor in (11, 12, 13, 14):
        accepted = {str(tag) for tag in tags.compatible_tags((3, minor), platforms=[found[2]])}
        assert found[1] in accepted


def test_the_kernel_works_from_where_pip_installs_the_wheel(
    kernel_wheel: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "fresh")], check=True)
    pip = [str(tmp_path / "fresh" / "bin" / "python"), "-m", "pip"]
    install = [*pip, "install", "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run([*install, str(kernel_wheel)], check=True, capture_output=True)
    program = (
        "from ebbflow.analysis.kernel_timing import time_kernel\n"
        "from ebbflow.engines import native\n"
        "from ebbflow.engines.native import dense, loading\n"
        f"assert str(loading.LIBRARY).startswith({str(target)!r}), loading.LIBRARY\n"
        "assert dense.why_missing() == native.why_missing()\n"
        "reason = native.why_missing()\n"
        "assert reason == '' or 'AVX2' in reason, reason\n"
        "assert time_kernel(rounds=1).difference < 1e-4\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(target)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
