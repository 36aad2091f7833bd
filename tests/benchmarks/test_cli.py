"""ebbflow bench: what it takes, what it refuses, what it prints."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import run
from benchmarks.results import Row, Suite
from ebbflow import cli
from ebbflow.core.errors import EbbflowError


def ebbflow(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run a command in this process and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["ebbflow", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert isinstance(end.value.code, int)
    return end.value.code


def measured(name: str, repeats: int, peers: Path | None = None) -> Suite:
    if name == "cells":
        raise EbbflowError("there is no data here")
    row = Row(name="ebbflow", seconds=[0.5] * repeats, devices=1, steps=5)
    return Suite(name=name, title="a title", rows=[row])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("W9",), "there is no benchmark 'W9': did you mean W4? known are W1, W2"),
        (("W1", "--repeats", "0"), "--repeats"),
        (("W1", "--repeats", "few"), "--repeats"),
        (("W1", "--peers", "nowhere"), "nowhere holds no peers.json"),
        (("W1", "--out", "nowhere/page.md"), "there is no folder nowhere; make it first"),
    ],
)
def test_what_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    sentence: str,
) -> None:
    assert ebbflow(monkeypatch, "bench", *arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert sentence in said.err
    assert len(said.err.strip().splitlines()) == 1


def test_suites_are_measured_in_the_order_of_the_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(run, "measure", measured)
    page = tmp_path / "page.md"
    code = ebbflow(monkeypatch, "bench", "scaling", "w1", "--repeats", "3", "--out", str(page))
    assert code == 0
    out = capsys.readouterr().out
    assert out.index("## W1") < out.index("## scaling")
    assert "500 ms (500 ms to 500 ms)" in out
    assert "## W1: a title" in page.read_text(encoding="utf-8")


def test_json_is_all_that_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "measure", measured)
    assert ebbflow(monkeypatch, "bench", "W3", "--json", "--repeats", "1") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["suites"]["W3"]["rows"][0]["seconds"] == [0.5]


def test_a_suite_that_fails_does_not_hold_up_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "measure", measured)
    assert ebbflow(monkeypatch, "bench", "cells", "scaling") == 2
    said = capsys.readouterr()
    assert "## scaling" in said.out
    assert said.err == "ebbflow: cells is not measured: there is no data here\n"


def test_a_suite_runs_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(run.SUITES, "W1", "tests.bench.elsewhere:suite")
    with pytest.raises(EbbflowError, match="elsewhere"):
        run.measure("W1", 1)
