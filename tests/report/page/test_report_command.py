"""The command: what it writes where, what it prints, and that a run can be repeated by its page."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from ebbflow import experiment
from ebbflow.report.page.writing import default_page
from ebbflow.runs.state import run_state
from tests.callbacks import StopAfter, Stopped
from tests.configs import with_keys
from tests.run_folders import SMALL, copied, same_results
from tests.test_cli import ebbflow, tree


def test_one_run(small_run: Path, tmp_path: Path) -> None:
    run = copied(small_run, tmp_path)
    before = tree(run)
    answer = ebbflow("report", str(run))
    assert (answer.code, answer.err) == (0, "")
    page = run / "report.html"
    sentence, place = answer.out.splitlines()
    assert " over the first " in sentence
    assert place == f"report   {page}"
    after = tree(run)
    assert after.pop("report.html").startswith(b"<!doctype html>")
    assert after == before


def test_a_run_with_its_report_is_intact_and_is_reported_again(
    small_run: Path, tmp_path: Path
) -> None:
    run = copied(small_run, tmp_path)
    assert ebbflow("report", str(run)).code == 0
    first = (run / "report.html").read_bytes()
    assert ebbflow("verify", str(run)).out == "every file is intact\n"
    assert ebbflow("report", str(run)).code == 0
    assert (run / "report.html").read_bytes() == first
    assert run_state(run).state == "finished"


def test_several_runs_have_their_page_in_the_folder_that_they_share(
    small_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        shutil.copytree(small_run, Path("sweep") / name)
    answer = ebbflow("report", "sweep")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines()[-1] == "report   sweep/report.html"
    assert "comparisons" in answer.out
    assert default_page([Path("sweep/a"), Path("sweep/b")]) == Path("sweep/report.html")
    assert default_page([Path("sweep/a")]) == Path("sweep/a/report.html")


def test_the_page_may_have_another_name(small_run: Path, tmp_path: Path) -> None:
    page = tmp_path / "mine.html"
    assert ebbflow("report", str(small_run), "--out", str(page)).code == 0
    assert page.is_file()
    page.write_text("other")
    answer = ebbflow("report", str(small_run), "--out", str(page))
    assert answer.code == 2 and "will not be overwritten" in answer.err
    assert page.read_text() == "other"


def test_json_instead_of_a_page(small_run: Path) -> None:
    before = tree(small_run)
    answer = ebbflow("report", str(small_run), "--json", "--target", "0.9,50")
    assert answer.code == 0 and tree(small_run) == before
    content = json.loads(answer.out)
    assert content["runs"][0]["scores"]["targets"] == ["90 % of peak", "50 %"]
    assert content["runs"][0]["name"] == "small"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nowhere",), "nowhere is no folder"),
        ((".",), "holds no ebbflow run"),
        (("RUN", "--target", "much"), "'much' is not an accuracy"),
        (("RUN", "--out", "no/where.html"), "there is no folder no; make it first"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    arguments: tuple[str, ...],
    sentence: str,
    small_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [str(small_run) if part == "RUN" else part for part in arguments]
    answer = ebbflow("report", *given)
    assert answer.code == 2 and sentence in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("rounds", [0, 1, 5, 11])
def test_a_run_that_is_not_finished(rounds: int, tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        experiment.run(with_keys(SMALL), tmp_path / "run", callbacks=[StopAfter(max(1, rounds))])
    if not rounds:
        (tmp_path / "run" / "metrics.jsonl").unlink()
    answer = ebbflow("report", str(tmp_path / "run"), "--json")
    (run,) = json.loads(answer.out)["runs"]
    assert run["state"]["state"] == "stopped"
    assert run["verdicts"] == []
    assert ebbflow("report", str(tmp_path / "run")).code == 0


def test_the_command_on_the_page_makes_the_same_run(small_run: Path, tmp_path: Path) -> None:
    run = copied(small_run, tmp_path)
    content = json.loads(ebbflow("report", str(run), "--json").out)
    program, *arguments = shlex.split(content["runs"][0]["settings"]["command"])
    assert program == "ebbflow"
    assert ebbflow(*arguments).code == 0
    again = Path(arguments[-1])
    assert again == run.with_name("run-again")
    assert same_results(again, run)
    assert (again / "config.toml").read_bytes() == (run / "config.toml").read_bytes()
