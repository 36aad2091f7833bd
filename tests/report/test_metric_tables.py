"""The metrics of a run as tables and as JSON, and the command that prints them."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any, NoReturn

import pytest
from rich.console import Console

from ebbflow import experiment
from ebbflow.analysis.metrics import Target, time_to_accuracy
from ebbflow.analysis.run_metrics import run_metrics
from ebbflow.core.errors import EbbflowError
from ebbflow.report.metric_tables import metric_tables, metrics_record
from ebbflow.runs import records
from tests.configs import with_keys
from tests.test_cli import ebbflow

SETTINGS: dict[str, Any] = {
    "seeds": [1, 2],
    "sessions": 5,
    "rounds": 4,
    "partition.devices": 4,
    "methods": ["warm_start", "previous", "average"],
    "algorithm": ["fedavg", "scaffold"],
    "window": [2],
    "engine.workers": 1,
}


def made(folder: Path, **settings: Any) -> Path:
    experiment.run(with_keys(SETTINGS, settings), folder)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("measures") / "run")


def refuse(constant: str) -> NoReturn:
    raise AssertionError(constant)


def printed(folder: Path, *targets: Target) -> str:
    out = io.StringIO()
    console = Console(file=out, width=80)
    for table in metric_tables(run_metrics(folder, targets)):
        console.print(table)
    return out.getvalue()


def test_there_is_a_table_of_everything_for_each_algorithm(run: Path) -> None:
    text = " ".join(printed(run, Target(0.95), Target(99.9, None)).split())
    for algorithm in ("fedavg", "scaffold"):
        for title in (
            "accuracy (%) over the first 2 rounds",
            "rounds to 95 % of peak of warm_start",
            "rounds to 99.9 %",
            "accumulated accuracy gain of warm_start over others (points)",
            "what is sent and trained",
            "what the server compares, mixes and keeps",
        ):
            assert f"{algorithm}, {title}" in text
    assert "cannot bring below 0.5" in text
    assert "∞" in text
    assert "…" not in text  # all of it fits eighty columns


def test_the_costs_of_scaffold_are_twice_those_of_fedavg(run: Path) -> None:
    found = metrics_record(run_metrics(run, []))
    totals = {
        (row["algorithm"], row["method"], row["seed"]): row["total"] for row in found["costs"]
    }
    assert len(totals) == 12
    for (algorithm, method, seed), total in totals.items():
        if algorithm == "fedavg":
            other = totals["scaffold", method, seed]
            for key in ("bytes_up", "bytes_down"):
                assert other[key] == 2 * total[key]
            for key in ("uploads", "broadcasts", "steps", "samples", "distances", "mixed"):
                assert other[key] == total[key]
    assert all(row["sessions"] == 5 for row in found["costs"])


def test_json_is_strict_and_agrees_with_the_rounds(run: Path) -> None:
    answer = ebbflow("metrics", str(run), "--target", "0.95,99.9", "--json")
    assert (answer.code, answer.err) == (0, "")
    found = json.loads(answer.out, parse_constant=refuse)
    assert found["reference"] == "warm_start"
    assert found["seeds"] == {"fedavg": [1, 2], "scaffold": [1, 2]}
    rounds = records.read_rounds(run)
    for row in found["time_to_accuracy"]:
        if row["transition"] is None:
            continue
        for i, seed in enumerate((1, 2)):
            curve = [
                r.accuracy
                for r in rounds
                if (r.algorithm, r.method, r.seed, r.session)
                == (row["algorithm"], row["method"], seed, row["session"])
            ]
            expected = time_to_accuracy(curve, row["levels"][i])
            assert row["rounds"][i] == (None if math.isinf(expected) else expected)
            probed = 1 if row["method"] == "warm_start" else 0
            if row["rounds"][i] is not None:
                assert row["with_probe"][i] == row["rounds"][i] + probed
    missed = [row for row in found["time_to_accuracy"] if row["reached"] == 0]
    assert missed
    assert missed[0]["estimate"]["mean"] is None
    assert missed[0]["estimate"]["low"] is None
    for row in found["windows"]:
        assert (row["test"] is None) == (row["method"] == "warm_start")
    assert {row["method"] for row in found["gains"]} == {"previous", "average"}
    assert {row["test"]["least"] for row in found["gains"]} == {0.5}


def test_the_command_prints_tables(run: Path) -> None:
    answer = ebbflow("metrics", str(run), "--of", "final", "--reference", "average")
    assert answer.code == 0
    assert "rounds to 97 % of final of average" in " ".join(answer.out.split())
    assert "accumulated accuracy gain of average" in answer.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--target", "much"), ["--target 'much'", "0.95"]),
        (("--target", "0.9,,0.8"), ["--target ''"]),
        (("--of", "start"), ["--of 'start'", "peak or final"]),
        (("--reference", "psychic"), ["'psychic'", "warm_start, previous, average"]),
    ],
)
def test_what_makes_no_sense_is_refused(
    run: Path, arguments: tuple[str, ...], words: list[str]
) -> None:
    answer = ebbflow("metrics", str(run), *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1
    assert all(word in answer.err for word in words)


def test_a_folder_without_a_run_or_rounds_is_refused(tmp_path: Path) -> None:
    assert "holds no ebbflow run" in ebbflow("metrics", str(tmp_path)).err
    folder = tmp_path / "run"
    records.claim_folder(folder, with_keys({}, {}).model_dump())
    answer = ebbflow("metrics", str(folder))
    assert answer.code == 2
    assert "holds no rounds yet" in answer.err


def test_events_of_another_version_are_refused(run: Path, tmp_path: Path) -> None:
    for name in (records.CONFIG, records.METRICS):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    (tmp_path / records.EVENTS).write_text('{"event": "costs"}\n', encoding="utf-8")
    with pytest.raises(EbbflowError, match=r"line 1: costs\.algorithm is refused"):
        run_metrics(tmp_path, [])


def test_a_run_without_a_transition_still_has_costs(tmp_path: Path) -> None:
    few = {"sessions": 3, "seeds": [1], "algorithm": ["fedavg"], "methods": ["previous"]}
    answer = ebbflow("metrics", str(made(tmp_path / "run", **few)))
    assert answer.code == 0
    assert "the first with a choice is session 4" in answer.out
    assert "what is sent and trained" in answer.out
    assert "one seed" in answer.out


def test_a_run_from_before_costs_were_counted_says_so(run: Path, tmp_path: Path) -> None:
    for name in (records.CONFIG, records.METRICS):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    older = [e for e in records.read_lines(run / records.EVENTS) if e["event"] != "costs"]
    text = "".join(json.dumps(event) + "\n" for event in older)
    (tmp_path / records.EVENTS).write_text(text, encoding="utf-8")
    answer = ebbflow("metrics", str(tmp_path))
    assert answer.code == 0
    assert "no costs" in answer.out


def test_a_survey_is_charged_and_explained(tmp_path: Path) -> None:
    folder = made(tmp_path / "run", methods=["warm_start", "learned"], algorithm=["fedavg"])
    text = " ".join(printed(folder, Target(0.95)).split())
    assert "and a survey as the part of a round's bytes that it moves" in text
    assert "learned asks " in text
    assert "…" not in text  # all of it fits eighty columns
    found = metrics_record(run_metrics(folder, [Target(50.0, None)]))
    learned = [row for row in found["time_to_accuracy"] if row["method"] == "learned"]
    there = [
        (plain, charged)
        for row in learned
        for plain, charged in zip(row["rounds"], row["with_probe"], strict=True)
        if math.isfinite(plain)
    ]
    assert there
    assert all(plain < charged for plain, charged in there)
    stages = [row["stages"] for row in found["costs"] if row["method"] == "learned"]
    assert all(stage["survey"]["questions"] > 0 for stage in stages)
