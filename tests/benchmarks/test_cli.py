"""`python -m benchmarks` and `python -m benchmarks.pages`: arguments, refusals, output."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer

from benchmarks import cli, run
from benchmarks.pages import cli as pages
from benchmarks.results import Measurement, Suite
from benchmarks.suites import DifferentModelError
from ebbflow.cli.running import run_app
from ebbflow.core.errors import EbbflowError

FUNCTIONS = {
    "bounds": "write_tables",
    "combinations": "write_page",
    "precision": "write_page",
    "history": "print_table",
    "resnet": "print_tables",
    "surveys": "write_tables",
}


def run_command(
    monkeypatch: pytest.MonkeyPatch, *arguments: str, app: typer.Typer = cli.app
) -> int:
    """Run a command in this process and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
    with pytest.raises(SystemExit) as end:
        run_app(app, "benchmarks")
    assert isinstance(end.value.code, int)
    return end.value.code


def measured(name: str, repeats: int, peers: Path | None = None) -> Suite:
    if name == "cells":
        raise EbbflowError("there is no data here")
    measurement = Measurement(name="ebbflow", seconds=[0.5] * repeats, devices=1, steps=5)
    return Suite(name=name, title="a title", measurements=[measurement])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("W9",), "there is no benchmark 'W9': did you mean W5? known are W1, W1-AVX2"),
        (("W1", "--repeats", "0"), "--repeats"),
        (("W1", "--repeats", "few"), "--repeats"),
        (("W1", "--peers", "nowhere"), "nowhere holds no peers.json"),
        (("before", "--base", "0000000"), "there is no commit 0000000 in "),
        (("W1", "--base", "HEAD"), "--base HEAD belongs to the benchmark before"),
        (("W1", "--out", "nowhere/page.md"), "there is no folder nowhere; make it first"),
    ],
)
def test_what_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    sentence: str,
) -> None:
    assert run_command(monkeypatch, *arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert sentence in said.err
    assert len(said.err.strip().splitlines()) == 1


def test_suites_are_measured_in_the_order_of_the_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(run, "measure", measured)
    page = tmp_path / "page.md"
    code = run_command(monkeypatch, "scaling", "w1", "--repeats", "3", "--out", str(page))
    assert code == 0
    out = capsys.readouterr().out
    assert out.index("## W1") < out.index("## scaling")
    assert "500 ms (500 ms to 500 ms)" in out
    assert "## W1: a title" in page.read_text(encoding="utf-8")


def test_the_older_commit_is_told_to_the_suite_that_compares_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def noted(name: str, repeats: int, peers: Path | None = None, **options: str) -> Suite:
        told[name] = options
        return measured(name, repeats, peers)

    told: dict[str, dict[str, str]] = {}
    monkeypatch.setattr(run, "measure", noted)
    assert run_command(monkeypatch, "before", "W1", "--base", "HEAD") == 0
    assert told == {"W1": {}, "before": {"base": "HEAD"}}
    assert run_command(monkeypatch, "before") == 0
    assert told["before"] == {}


def test_json_is_all_that_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "measure", measured)
    assert run_command(monkeypatch, "W3", "--json", "--repeats", "1") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["suites"]["W3"]["measurements"][0]["seconds"] == [0.5]


def test_a_suite_that_fails_does_not_hold_up_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "measure", measured)
    assert run_command(monkeypatch, "cells", "scaling") == 2
    said = capsys.readouterr()
    assert "## scaling" in said.out
    assert said.err == "benchmarks: cells is not measured: there is no data here\n"


def test_a_suite_runs_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(run.SUITES, "W1", "tests.benchmarks.elsewhere:suite")
    with pytest.raises(EbbflowError, match="elsewhere"):
        run.measure("W1", 1)


def test_a_wrong_model_in_another_process_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(run.SUITES, "W1", "tests.benchmarks.elsewhere:differing")
    with pytest.raises(DifferentModelError, match="too far") as error:
        run.measure("W1", 1)
    assert error.value.difference == 0.5


@pytest.mark.parametrize("page", FUNCTIONS)
def test_every_page_has_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], page: str
) -> None:
    assert run_command(monkeypatch, page, "--help", app=pages.app) == 0
    assert f"benchmarks {page} [OPTIONS]" in capsys.readouterr().out
    assert callable(import_module(f"benchmarks.pages.{page}").__dict__[FUNCTIONS[page]])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("bounds --out nowhere.md", "there is no such page"),
        ("surveys --out nowhere.md", "there is no such page"),
        ("combinations --out nowhere/page.md", "there is no folder nowhere; make it first"),
        ("precision --rounds 0", "--rounds"),
        ("resnet --batch many", "--batch"),
        ("history --sessions 2", "--sessions"),
        ("wether", "wether"),
    ],
)
def test_what_a_page_refuses(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    sentence: str,
) -> None:
    assert run_command(monkeypatch, *arguments.split(), app=pages.app) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert sentence in said.err
    assert len(said.err.strip().splitlines()) == 1


@pytest.mark.slow
def test_modules_run_from_a_checkout() -> None:
    for module in ("benchmarks", "benchmarks.pages"):
        done = subprocess.run(
            [sys.executable, "-m", module, "W9"],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"python -m {module}: ")
        assert len(done.stderr.splitlines()) == 1
