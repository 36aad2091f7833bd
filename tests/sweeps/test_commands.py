"""The commands of sweeps, from nothing to a table, and what they refuse."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import ebbflow as package
from ebbflow import experiment
from ebbflow.cli.default_command import DefaultCommandGroup
from ebbflow.core.errors import EbbflowError
from ebbflow.runs.records import METRICS
from ebbflow.sweeps.failures import Failures
from ebbflow.sweeps.folder import SweepFolder
from tests.sweeps.wishes import kept, planned
from tests.test_cli import ebbflow, process
from tests.test_plugins import forget

SMALL = (
    "--sessions", "4", "--rounds", "3", "--devices", "4", "--methods", "previous,average",
    "--set", "data.limit_train=300",
)  # fmt: skip
GRID = ("--grid", "alpha=0.3,0.7", "--seeds", "1-2")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a sweep that has been computed."""
    folder = tmp_path_factory.mktemp("swept") / "sweep"
    answer = ebbflow("sweep", *SMALL, *GRID, "--out", str(folder), "--workers", "2")
    assert answer.code == 0, answer
    assert "accuracy (%) over the first 10 rounds" in answer.out
    assert answer.out.endswith(f"records  {folder}\n")
    assert "4 cells in" in answer.err and "with 2 workers" in answer.err
    assert answer.err.count(": done, ") == 4
    return folder


def test_every_cell_has_the_bits_of_a_single_run(swept: Path, tmp_path: Path) -> None:
    for cell in SweepFolder(swept).plan().cells[::3]:
        experiment.run(cell.config, tmp_path / cell.name)
        ours = (swept / "cells" / cell.name / METRICS).read_bytes()
        assert ours == (tmp_path / cell.name / METRICS).read_bytes()


def test_a_sweep_that_is_done_is_not_computed_again(swept: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (swept / "cells").rglob("*")}
    again = ebbflow("sweep", "--out", str(swept), "--workers", "2", "--json")
    same = ebbflow("sweep", "run", *SMALL, *GRID, "--out", str(swept), "--workers", "2", "-q")
    assert (again.code, same.code) == (0, 0)
    assert json.loads(again.out)["counts"] == {"done": 4, "running": 0, "failed": 0, "waiting": 0}
    assert (same.out, same.err) == (f"{swept}\n", "")
    assert {path: path.stat().st_mtime_ns for path in (swept / "cells").rglob("*")} == before


def test_status_and_table(swept: Path, tmp_path: Path) -> None:
    found = ebbflow("sweep", "status", str(swept))
    assert found.code == 0
    assert found.out.endswith("4 of 4 cells done\n")
    table = ebbflow("sweep", "table", str(swept))
    assert "partition.alpha" in table.out.replace("\n", "") or "alpha" in table.out
    answer = ebbflow("sweep", "table", str(swept), "--json")
    content: dict[str, Any] = json.loads(answer.out)
    assert list(content) == ["scores", "records"]
    assert [row["settings"] for row in content["scores"]] == [
        {"partition.alpha": 0.3}, {"partition.alpha": 0.3},
        {"partition.alpha": 0.7}, {"partition.alpha": 0.7},
    ]  # fmt: skip
    assert {row["seeds"] for row in content["scores"]} == {2}
    path = tmp_path / "records.csv"
    parquet = tmp_path / "records.parquet"
    done = ebbflow("sweep", "table", str(swept), "--csv", str(path), "--parquet", str(parquet))
    assert (done.code, done.out) == (0, "")
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert len(rows) == len(content["records"]) == 4 * 4 * 3 * 2
    assert list(rows[0])[:3] == ["run", "partition.alpha", "algorithm"]
    assert {row["seed"] for row in rows} == {"1", "2"}
    assert parquet.stat().st_size > 1000
    mean = [
        sum(r["accuracy"] for r in content["records"] if _counted(r, alpha, "average")) / 6
        for alpha in (0.3, 0.7)
    ]
    told = [row["mean"] for row in content["scores"] if row["method"] == "average"]
    assert told == pytest.approx(mean)


def _counted(record: dict[str, Any], alpha: float, method: str) -> bool:
    """Whether a round counts for the score of the only transition."""
    return (record["partition.alpha"], record["method"], record["transition"]) == (alpha, method, 1)


def test_other_commands_take_a_sweep_for_a_folder_of_runs(swept: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert ebbflow("report", str(swept), "--out", str(page)).code == 0
    assert "alpha0.3-s1" in page.read_text(encoding="utf-8")
    exported = ebbflow("export", str(swept), "--table", "summary", "--csv")
    assert exported.code == 0 and "alpha0.7-s2" in exported.out
    runs = package.load(swept)
    assert isinstance(runs, package.Runs)
    assert runs.names == ["alpha0.3-s1", "alpha0.3-s2", "alpha0.7-s1", "alpha0.7-s2"]
    assert all(run.finished for run in runs)


@pytest.mark.slow
def test_from_python_a_sweep_takes_more_cells(swept: Path) -> None:
    arguments: dict[str, Any] = {"sessions": 4, "rounds": 3, "devices": 4}
    arguments |= {"methods": ["previous", "average"], "settings": {"data.limit_train": 300}}
    runs = package.sweep(grid={"alpha": [0.3, 0.7]}, seeds=[1, 2, 3], out=swept, **arguments)
    assert len(runs) == 6 and "alpha0.7-s3" in runs.names
    assert runs["alpha0.3-s3"].config["seeds"] == [3]
    with pytest.raises(EbbflowError, match=r"cell alpha0.3-s1, which this one lacks: use the same"):
        package.sweep(grid={"alpha": [0.9]}, seeds=[1], out=swept, **arguments)
    with pytest.raises(EbbflowError, match="takes names and paths"):
        package.sweep(grid={"seeds": [1]}, out=swept, algorithm=lambda: None)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_dry_run_writes_nothing_and_a_bad_cell_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = ebbflow("sweep", *SMALL, *GRID, "--dry-run", "--json")
    found = json.loads(answer.out)
    assert [cell["name"] for cell in found["cells"]][:2] == ["alpha0.3-s1", "alpha0.3-s2"]
    assert all(len(cell["digest"]) == 16 and cell["seconds"] > 0 for cell in found["cells"])
    assert found["memory"]["largest"] > 10**8 and found["disk"]["total"] > 10**4
    bad = ebbflow("sweep", *SMALL, "--grid", "algorithm=fedavg,nosuch", "--out", "here")
    assert (bad.code, bad.out) == (2, "")
    assert "cell nosuch: algorithm: there is no algorithm 'nosuch'" in bad.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("sweep --rounds 3", "there is nothing to sweep over: name a SWEEP.toml"),
        ("sweep nosuch.toml", "there is no configuration file nosuch.toml"),
        ("sweep .", ". is a folder: go on with its sweep by `ebbflow sweep --out .`"),
        ("sweep --grid rounds", "is not of the form KEY=VALUE"),
        ("sweep --seeds 1-2 --workers many", "--workers 'many' is no whole number"),
        ("sweep status nowhere", "nowhere holds no sweep (sweep.toml is missing)"),
        ("sweep table nowhere", "nowhere holds no sweep"),
        ("sweep work nowhere", "nowhere holds no sweep"),
        ("sweep work", "Missing argument 'DIR'; see `ebbflow sweep work --help`"),
        ("sweep work nowhere --grace 0", "--grace 0 is too small: write at least 1"),
        ("sweep --seeds 1 --ray 127.0.0.1:1", "no Ray cluster at 127.0.0.1:1: start one by"),
        ("sweep --seeds 1 --ray local --set engine.kind=ray", 'cell s1: engine.kind = "ray" takes'),
        ("sweep --seeds 1 --ray head:port", '--ray: "head:port" is no address of a Ray cluster'),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    words: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = ebbflow(*words.split())
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("ebbflow: ") and answer.err.count("\n") == 1
    assert sentence in answer.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"workers": 2.5}, "argument workers = 2.5 is neither a number of processes"),
        ({"workers": None}, "argument workers = None is neither"),
        ({"workers": True}, "argument workers = True is neither"),
        ({"workers": "4"}, "argument workers = '4' is neither a number of processes, as in"),
        ({"workers": 0}, "argument workers = 0 computes nothing: use at least 1"),
        ({"workers": "127.0.0.1:9"}, "there is no Ray cluster at 127.0.0.1:9: "),
        ({"workers": "local", "settings": {"engine.kind": "ray"}}, 'engine.kind = "ray" takes all'),
        ({"grid": [3]}, "argument grid = [3] is neither keys with their values nor a list of"),
        ({"grid": "alpha=1,2"}, "argument grid = 'alpha=1,2' is neither"),
        ({"grid": 3}, "argument grid = 3 is neither"),
        ({"grid": {3: [1]}}, "3 (argument grid) is no key: a key is a text"),
        ({"grid": {"partition": {3: [1]}}}, "3 (argument grid) is no key"),
        ({"grid": [{3: 1}]}, "3 (cell 1 of argument grid) is no key"),
        ({"settings": "rounds=3"}, "argument settings = 'rounds=3' has no keys"),
        ({"settings": {3: 1}}, "3 (argument settings) is no key"),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused(
    arguments: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(EbbflowError, match=re.escape(sentence)):
        package.sweep(**{"grid": {"rounds": [1]}, "out": tmp_path / "sweep", **arguments})
    assert not (tmp_path / "sweep").exists()


def test_a_folder_with_other_things_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for words in (GRID, ("--grid", "rounds=1,2")):
        answer = ebbflow("sweep", *SMALL[4:], *words, "--out", str(tmp_path))
        assert answer.code == 2
        assert "exists and is no empty folder: choose another --out" in answer.err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.slow
def test_a_cell_that_fails_gives_exit_code_one_and_can_be_tried_again(tmp_path: Path) -> None:
    diverging = {"lr__initial": 3e38, "methods": ["previous"]}
    sweep = kept(tmp_path / "sweep", planned({"seeds": [1]}, **diverging))
    answer = process("sweep", "work", str(sweep.path), "--json")
    found = json.loads(answer.stdout)
    assert answer.returncode == 1
    assert found["counts"]["failed"] == 1
    assert found["cells"][0]["why"] in answer.stderr
    assert sweep.retry() == ["s1"] and sweep.retry() == []


def test_workers_are_told_how_long_a_round_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = mock.Mock(return_value=mock.Mock(stopped_by=None))
    worker = mock.Mock(return_value=mock.Mock(stopped_by=None, left={}))
    monkeypatch.setattr("ebbflow.sweeps.starting.Crew", crew)
    monkeypatch.setattr("ebbflow.sweeps.working.Worker", worker)
    sweep = str(kept(tmp_path / "sweep", planned({"seeds": [1]})).path)
    assert ebbflow("sweep", "--out", sweep, "--grace", "50", "-q").code == 1
    assert ebbflow("sweep", "work", sweep, "--grace", "40", "-q").code == 1
    assert crew.call_args.args[-1] == 50
    assert worker.call_args.kwargs == {"grace": 40}


def test_a_cluster_computes_without_workers_here_and_says_what_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = mock.Mock(return_value=None)
    monkeypatch.setattr("ebbflow.sweeps.on_ray.run_on_ray", cluster)
    sweep = kept(tmp_path / "sweep", planned({"seeds": [1]}))
    Failures(sweep.path).write("s1", EbbflowError("it cannot be"))
    answer = ebbflow("sweep", "--out", str(sweep.path), "--ray", "local", "--workers", "0")
    assert cluster.call_count == 1
    assert answer.code == 1 and "failed   s1: it cannot be" in answer.err


def test_plugins_are_named_so_that_processes_elsewhere_find_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(forget)
    monkeypatch.chdir(tmp_path)
    Path("mine.py").touch()
    ready = mock.Mock(side_effect=EbbflowError("far enough"))
    monkeypatch.setattr("ebbflow.sweeps.front.prepared", ready)
    with pytest.raises(EbbflowError, match="far enough"):
        package.sweep(grid={"seeds": [1]}, plugins=["mine.py"], out="sweep")
    assert ready.call_args.args[-1] == [str(tmp_path / "mine.py")]


def test_the_first_command_is_meant_if_none_is_named() -> None:
    group = DefaultCommandGroup(name="sweep", commands={"run": None, "status": None})  # type: ignore[dict-item]
    assert group.with_command(["x.toml"]) == ["run", "x.toml"]
    assert group.with_command(["--seeds", "1"]) == ["run", "--seeds", "1"]
    for words in ([], ["--help"], ["-h"], ["status", "x"], ["run", "x"]):
        assert group.with_command(words) == words
