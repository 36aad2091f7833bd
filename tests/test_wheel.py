"""The wheel that users install: the simulator, whole and alone, and usable without a compiler."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from ebbflow import __version__

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
BUILD_FILES = ("LICENSE", "NOTICE", "README.md", "hatch_build.py", "pyproject.toml")
DIST_INFO = f"ebbflow-{__version__}.dist-info"


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
    """Build the wheel from a copy of the checkout: a build writes into its sources."""
    checkout, out = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("wheel")
    for name in BUILD_FILES:
        shutil.copy(ROOT / name, checkout / name)
    shutil.copytree(ROOT / "src", checkout / "src", ignore=shutil.ignore_patterns("*.so"))
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", str(out), str(checkout)],
        env=no_compiler,
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
    assert kinds == {".c", ".md", ".npz", ".py", ".toml", ".typed"}
    assert [name for name in names if name.endswith(".npz")] == ["ebbflow/data/files/digits.npz"]
    assert [name for name in names if name.endswith(".md")] == [
        "ebbflow/data/files/DIGITS_LICENSE.md"
    ]


def test_the_wheel_asks_for_what_the_project_declares(wheel: Path) -> None:
    metadata = message_from_bytes(zipfile.ZipFile(wheel).read(f"{DIST_INFO}/METADATA"))
    required = [text for text in metadata.get_all("Requires-Dist", []) if "extra" not in text]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert sorted(required) == sorted(project["dependencies"])
    assert not any(text.startswith("jinja2") for text in required)


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
