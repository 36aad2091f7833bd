"""A run beside Theorem 1: the run made again, the tables, the picture, the command."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from torch.nn import functional

import ebbflow
from ebbflow.analysis.run_bounds import Findings, examine
from ebbflow.core.errors import EbbflowError
from ebbflow.data import datasets
from ebbflow.report.bound_tables import bound_picture, bound_tables
from ebbflow.runs.configuration import read_config
from ebbflow.runs.records import read_lines
from ebbflow.simulation.roster import build_sessions
from tests.run_folders import resealed
from tests.test_cli import ebbflow as command

SMALL = {"data.limit_train": 300, "local.steps": 2}
PLAIN = SMALL | {"local.momentum": 0.0, "local.rule": "each_step"}


def run(folder: Path, settings: Mapping[str, object], **others: Any) -> Path:
    size: dict[str, Any] = {"sessions": 5, "rounds": 3, "seeds": [1, 2], "devices": 6}
    size |= {"methods": ["warm_start", "previous", "average"]} | others
    ebbflow.compare("digits", out=folder, settings=settings, **size)
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("runs") / "plain", PLAIN)


@pytest.fixture(scope="module")
def findings(plain: Path) -> Findings:
    return examine(plain)


def test_a_run_in_the_theorems_setting_stays_below_both_bounds(findings: Findings) -> None:
    assert findings.notes == []
    assert findings.steps == 2
    assert findings.upper
    assert findings.sharpness <= findings.constants.beta * (1 + 1e-6)
    assert [v.method for v in findings.verdicts] == ["warm_start", "previous", "average"]
    for verdict in findings.verdicts:
        assert verdict.rounds == verdict.corrected_holds == verdict.printed_holds == 30
        assert 0 < verdict.measured <= verdict.sharp.total <= verdict.corrected.total
        assert verdict.corrected.total < verdict.printed.total
        assert verdict.printed.descent > 2 * verdict.corrected.descent * 0.9


def test_rounds_follow_each_other(findings: Findings) -> None:
    at = {r[:5]: r for r in findings.rounds}
    assert len(at) == 3 * 2 * 5 * 3
    starts = {b[:4]: b for b in findings.gaps}
    for line in findings.rounds:
        if line.round == 1:
            assert line.before == starts[line[:4]].start
        else:
            before = at[*line[:4], line.round - 1]
            assert line.before == before.after
        assert line.spread >= line.square * (1 - 1e-6)


def test_the_gap_is_that_of_the_stored_models(plain: Path, findings: Findings) -> None:
    """w^(s,1) from the recorded weights and the stored models, and F by hand."""
    config = read_config(plain)
    data = datasets.load("digits", limit_train=300)
    for seed in (1, 2):
        sessions = {s.index: s for s in build_sessions(config, data, seed)}
        (weights,) = (
            event["weights"]
            for event in read_lines(plain / "events.jsonl")
            if event["event"] == "start"
            and (event["method"], event["seed"], event["session"]) == ("warm_start", seed, 5)
        )
        history = plain / "history" / "fedavg" / "warm_start" / f"seed-{seed}"
        models = {z: _theta(next(history.glob(f"*{z}.safetensors"))) for z in weights}
        rows = torch.cat([torch.from_numpy(s) for s in sessions[5].shards.values()])
        part = data.train.x[rows].flatten(1), data.train.y[rows]
        mixed = torch.stack([w * models[z] for z, w in weights.items()]).sum(0)
        (start,) = (
            b for b in findings.gaps if (b.method, b.seed, b.session) == ("warm_start", seed, 5)
        )
        assert start.start == pytest.approx(_loss(mixed, *part), rel=1e-4)
        assert start.carried == pytest.approx(_loss(models["4"], *part), rel=1e-4)
        assert 0 <= start.least < min(start.start, start.carried or math.inf)
        assert start.gap == pytest.approx(start.start - start.least)
        assert start.holds == (start.start <= (start.carried or math.inf))


def _theta(path: Path) -> torch.Tensor:
    found = load_file(path)
    return torch.cat([found[name].flatten() for name in ("theta/weight", "theta/bias")])


def _loss(theta: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> float:
    logits = x @ theta[:640].view(10, 64).T + theta[640:]
    return float(functional.cross_entropy(logits, y))


def test_previous_starts_where_it_was(findings: Findings) -> None:
    for b in findings.gaps:
        if b.method == "previous" and b.session > 1:
            assert b.start == b.carried
            assert b.holds
        if b.session == 1:
            assert b.holds is None


def test_tables_and_picture(findings: Findings, tmp_path: Path) -> None:
    console = Console(width=80, file=io.StringIO(), record=True)
    for table in bound_tables(findings):
        console.print(table)
    text = console.export_text()
    assert "…" not in text
    assert "upper bound for every w" in text
    assert text.count("as printed") == text.count("noise measured") == 3
    bound_picture(findings, tmp_path / "bound.png", "test")
    assert (tmp_path / "bound.png").read_bytes().startswith(b"\x89PNG")


def test_what_the_theorem_does_not_speak_of_is_said(tmp_path: Path) -> None:
    settings = SMALL | {
        "participation.share": 0.5,
        "local.batch": 8,
        "lr.initial": 5.0,
        "model.kind": "mlp",
        "parameters.mlp.hidden": 8,
    }
    folder = run(tmp_path / "other", settings, sessions=2, rounds=2, methods=["previous"])
    found = examine(folder, seeds=[2], iterations=3)
    assert not found.upper
    assert found.constants.beta == found.sharpness
    assert {r.seed for r in found.rounds} == {2}
    for word in ("momentum 0.9", "one_pass", "take part at random"):
        assert any(word in note for note in found.notes)
    verdict = found.verdicts[0]
    assert verdict.corrected_holds < verdict.rounds
    console = Console(width=80, file=io.StringIO(), record=True)
    for table in bound_tables(found):
        console.print(table)
    assert "too large a rate for the corrected" in " ".join(console.export_text().split())


def test_the_command(plain: Path) -> None:
    code, out, err = command("bound", str(plain), "--seed", "1", "--iterations", "5")
    assert code == 0
    assert "session 5/5" in err
    assert "average squared gradient norm" in out
    assert (plain / "bound.png").exists()
    code, out, _ = command("bound", str(plain), "--seed", "1", "--iterations", "5", "--json")
    assert code == 0
    found = json.loads(out)
    assert {"constants", "rate", "bounds", "starts", "notes"} == found.keys()
    assert found["bounds"][0]["corrected"]["total"] > found["bounds"][0]["measured"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--seed", "9"), "--seed 9 is not in"),
        (("--zeta1", "0.5"), "--zeta1 0.5 is below 1"),
    ],
)
def test_bad_input_is_one_sentence(plain: Path, arguments: tuple[str, ...], says: str) -> None:
    code, _, err = command("bound", str(plain), *arguments)
    assert code == 2
    assert says in err
    assert err.count("\n") == 1


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    code, _, err = command("bound", str(tmp_path))
    assert code == 2
    assert "holds no ebbflow run" in err


def test_changed_data_are_refused(tmp_path: Path) -> None:
    folder = run(tmp_path / "changed", SMALL, sessions=1, rounds=1, seeds=[1])
    resealed(folder / "environment.json", lambda facts: facts["dataset"].update(digest="0"))
    with pytest.raises(EbbflowError, match="its digest differs"):
        examine(folder)
