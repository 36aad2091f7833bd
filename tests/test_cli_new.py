"""ebbflow new: a starter project that runs as it is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebbflow.cli.new import starter_files
from ebbflow.models import MODELS
from ebbflow.runs.trust import FOLDER
from ebbflow.starts import STARTS
from tests.test_cli import ebbflow

FILES = {
    "README.md",
    "data.py",
    "experiment.toml",
    "my_model.py",
    "my_start.py",
    "test_project.py",
    "trace.csv",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new project with its data."""
    folder = tmp_path_factory.mktemp("new") / "my project"
    answer = ebbflow("new", str(folder))
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines()[1:] == [
        f"next: cd '{folder}' && python data.py",
        "then: ebbflow compare experiment.toml",
    ]
    assert {path.name for path in folder.iterdir()} == FILES
    made = in_project(folder, "data.py")
    assert made.stdout == "960 patients of 12 wards are in patients.csv\n"
    return folder


@pytest.fixture
def inside(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in the folder of the project; afterwards its plugins are unloaded."""
    monkeypatch.chdir(project)
    monkeypatch.setenv(FOLDER, str(project.parent / "state"))
    yield project
    STARTS.unregister("halfway")
    MODELS.unregister("small_net")
    for name in [name for name in sys.modules if name.startswith("ebbflow_plugin_")]:
        del sys.modules[name]


def in_project(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the folder of a project, and expect it to succeed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, FOLDER: str(folder.parent / "state")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_its_commands_work_in_this_order(inside: Path) -> None:
    shown = ebbflow("data", "show", "experiment.toml")
    assert shown.code == 0, shown.err
    assert "patients, natural" in shown.out
    assert "ward-12" in shown.out
    assert "same devices" not in shown.out
    assert "halfway" not in STARTS  # who only looks runs no plugin before the first run
    trace = ebbflow("trace", "show", "trace.csv", "--interval", "3d")
    assert "10 sessions" in trace.out
    assert re.search(r"odd +nothing", trace.out)
    short = ("--rounds", "1", "--seeds", "1", "--out", "run")
    compared = ebbflow("compare", "experiment.toml", *short)
    assert compared.code == 0, compared.err
    methods = tomllib.loads((inside / "experiment.toml").read_text())["methods"]
    rows = re.findall(r"^│ (\w+) +│ +\d", compared.out, flags=re.MULTILINE)
    assert rows[-len(methods) :] == methods
    assert ebbflow("resume", "run").code == 0


def test_its_own_test_passes(project: Path) -> None:
    done = in_project(project, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert "1 passed" in done.stdout


def test_its_readme_names_every_file_and_five_commands(project: Path) -> None:
    page = (project / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in FILES - {"README.md"})
    assert len(re.findall(r"^\$ ", page, flags=re.MULTILINE)) == 5


def test_templates_are_no_modules_of_ours() -> None:
    assert starter_files().keys() == FILES


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_nothing_is_overwritten(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "taken"
    if kind == "folder":
        target.mkdir()
        (target / "mine.txt").write_text("mine")
    else:
        target.write_text("mine")
    answer = ebbflow("new", str(target))
    assert answer.code == 2
    assert "exists and is not an empty folder: choose another one" in answer.err
    assert sum(path.is_file() for path in tmp_path.rglob("*")) == 1


def test_an_empty_folder_is_used_and_an_impossible_one_named(tmp_path: Path) -> None:
    assert ebbflow("new", str(tmp_path)).code == 0
    answer = ebbflow("new", str(tmp_path / "README.md" / "below"))
    assert answer.code == 2
    assert "cannot be" in answer.err
    long = ebbflow("new", str(tmp_path / ("x" * 300)))
    assert long.code == 2
    assert "choose another folder" in long.err
