"""Run folders are found where they are, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbflow.core.errors import EbbflowError
from ebbflow.runs.finding import run_folders, told_apart


def run_at(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "config.toml").write_text("", encoding="utf-8")
    return path


def test_a_run_is_itself_and_a_folder_is_what_it_holds(tmp_path: Path) -> None:
    first, second = run_at(tmp_path / "b" / "x"), run_at(tmp_path / "a")
    assert run_folders([first]) == [first]
    assert run_folders([tmp_path]) == [second, first]
    assert run_folders([first, tmp_path]) == [first, second]


def test_what_lies_inside_a_run_is_no_other_run(tmp_path: Path) -> None:
    outer = run_at(tmp_path / "outer")
    run_at(outer / "inner")
    assert run_folders([tmp_path]) == [outer]


def test_links_are_not_followed(tmp_path: Path) -> None:
    run_at(tmp_path / "far" / "run")
    here = tmp_path / "here"
    here.mkdir()
    (here / "link").symlink_to(tmp_path / "far")
    (here / "round").symlink_to(here)
    with pytest.raises(EbbflowError, match="holds no ebbflow run"):
        run_folders([here])


def test_what_is_no_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(EbbflowError, match="nowhere is no folder"):
        run_folders([tmp_path / "nowhere"])


def test_names_tell_runs_apart(tmp_path: Path) -> None:
    assert told_apart([]) == []
    assert told_apart([tmp_path / "a" / "x", tmp_path / "b" / "x"]) == ["a/x", "b/x"]
