"""--json: one object on standard output and nothing else, with the keys that are documented."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from ebbflow import plugins
from ebbflow.cli.printing import plain
from ebbflow.config.presets import preset, preset_names
from ebbflow.data.sources import SOURCES
from ebbflow.simulation import ceilings
from tests.sweeps.wishes import finished_sweep
from tests.test_cli import TINY, Answer, ebbflow, process

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"


def documented() -> dict[str, list[str]]:
    """Return the keys that the page names for each command."""
    table = PAGE.read_text(encoding="utf-8").split("## JSON")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \| (`.+?) \|$", table, flags=re.MULTILINE)
    return {
        name: re.findall(r"`(\w+)`", keys)
        for names, keys in rows
        for name in re.findall(r"`([^`]+)`", names)
    }


def refuse(text: str) -> None:
    raise AssertionError(f"{text} is no JSON")


def found_in(answer: Answer) -> dict[str, Any]:
    """Return the one object that was printed, read as strictly as JSON is."""
    found = json.loads(answer.out, parse_constant=refuse)
    assert isinstance(found, dict)
    return found


NOISE = "a plugin is loaded"


class LoudEntryPoint:
    """An installed plugin that prints whenever it is loaded."""

    name = "loud"

    def load(self) -> None:
        print(NOISE)


@pytest.fixture
def loud(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a plugin that prints."""
    monkeypatch.setattr(plugins, "entry_points", lambda group: [LoudEntryPoint()])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("json") / "run"
    assert ebbflow("compare", *TINY, "--quiet", "--out", str(folder)).code == 0
    return folder


COMMANDS = {
    "presets": "presets",
    "presets show": "presets show demo",
    "data ls": "data ls",
    "data get": "data get digits",
    "data verify": "data verify digits",
    "data show": "data show --devices 4 --sessions 3",
    "trace show": "trace show TRACE --interval 1",
    "history ls": "history ls RUN",
    "history show": "history show RUN 4",
    "metrics": "metrics RUN --target 100",
    "cost DIR": "cost RUN",
    "cost --model": "cost --model svhn --draws 1",
    "cost --sweep": "cost --model svhn --draws 1 --sweep speed",
    "bound": "bound RUN --iterations 1",
    "verify": "verify RUN",
    "repair": "repair RUN",
    "new": "new wards",
    "resume": "resume RUN",
    "run --dry-run": "run --dry-run",
    "compare --dry-run": "compare --dry-run",
    "doctor": "doctor",
    "sweep run": "sweep run --out SWEEP",
    "sweep run --dry-run": "sweep run --out SWEEP --dry-run",
    "sweep status": "sweep status SWEEP",
    "sweep table": "sweep table SWEEP",
    "sweep work": "sweep work SWEEP",
    "federate status": "federate status wards",
    "federate down": "federate down wards",
    "federate clean": "federate clean wards",
}


@pytest.mark.usefixtures("loud")
@pytest.mark.parametrize("name", COMMANDS)
def test_the_keys_are_those_that_are_documented(
    name: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if name.startswith("federate"):
        (tmp_path / "wards").mkdir()
        (tmp_path / "wards" / "federation.toml").touch()
    if name.startswith("sweep"):
        finished_sweep(tmp_path / "sweep")
    (tmp_path / "trace.csv").write_text("time,device,event\n0,a,join\n3,b,join\n5,a,leave\n")
    places = {"RUN": str(run), "TRACE": "trace.csv", "SWEEP": str(tmp_path / "sweep")}
    words = [places.get(word, word) for word in COMMANDS[name].split()]
    answer = ebbflow(*words, "--json")
    assert answer.code == 0, answer
    assert list(found_in(answer)) == documented()[name]
    assert not (tmp_path / "data.png").exists()


def test_every_documented_command_is_tried() -> None:
    tried = {*COMMANDS, "run", "compare", "extend", "privacy"}
    # They need Flower: tests/flower tries them.
    federate = ("init", "run", "resume", "demo", "up", "node")
    assert documented().keys() == tried | {f"federate {name}" for name in federate}


def test_a_run_prints_its_summary(tmp_path: Path) -> None:
    out = tmp_path / "run"
    answer = ebbflow("run", *TINY, "--json", "--out", str(out))
    assert list(found_in(answer)) == documented()["run"]
    assert answer.out == (out / "summary.json").read_text()


def test_quiet_json_prints_json_and_says_nothing_else(tmp_path: Path) -> None:
    answer = ebbflow("compare", *TINY, "--json", "--quiet", "--out", str(tmp_path / "run"))
    assert answer.err == ""
    assert found_in(answer)["rows"]


@pytest.mark.usefixtures("loud")
def test_what_a_plugin_prints_is_no_json(run: Path) -> None:
    answer = ebbflow("metrics", str(run), "--json")
    assert list(found_in(answer)) == documented()["metrics"]
    assert answer.err.strip() == NOISE
    answer = ebbflow("metrics", str(run))  # everybody may print again
    assert answer.out.startswith(NOISE)
    assert answer.err == ""


def test_what_a_plugins_processes_print_is_no_json(tmp_path: Path) -> None:
    plugin = tmp_path / "loud.py"
    plugin.write_text('import os\nprint("imported")\nos.system("echo started")\n')
    out = ("--out", str(tmp_path / "run"))
    for command in (("compare", *TINY), ("sweep", *TINY)):
        answer = process(*command, *out, "--plugin", str(plugin), "--dry-run", "--json")
        assert answer.returncode == 0, answer.stderr
        assert found_in(Answer(0, answer.stdout, ""))
        assert "imported\n" in answer.stderr
        assert "started\n" in answer.stderr


def test_what_is_no_number_is_null() -> None:
    inf, nan = float("inf"), float("nan")
    assert plain({"a": [inf, -inf, nan, 1.5], "b": {1: (True, None, "inf")}}) == {
        "a": [None, None, None, 1.5],
        "b": {"1": [True, None, "inf"]},
    }


def test_a_level_that_is_not_reached_is_null(run: Path) -> None:
    found = found_in(ebbflow("metrics", str(run), "--target", "100", "--json"))
    missed = [row for row in found["time_to_accuracy"] if not row["reached"]]
    assert missed
    assert all(row["estimate"]["mean"] is None for row in missed)


def test_what_is_printed_is_so(run: Path) -> None:
    found = found_in(ebbflow("presets", "--json"))
    assert [*(p["name"] for p in found["presets"]), *found["rows"]] == preset_names()
    assert found_in(ebbflow("presets", "show", "demo", "--json"))["settings"] == preset("demo")
    found = found_in(ebbflow("data", "ls", "--json"))
    assert [d["name"] for d in found["datasets"]] == list(SOURCES)
    assert found["datasets"][0].keys() == {
        "name", "title", "train", "test", "classes", "licence", "packaged", "folder",
    }  # fmt: skip
    found = found_in(ebbflow("history", "ls", str(run), "--json"))
    assert len(found["sessions"]) == 16  # a pilot and sessions 2, 3, 4 of four methods
    assert {s["state"] for s in found["sessions"]} == {"ok"}
    only = ("--method", "warm_start", "--seed", "1")
    (session,) = found_in(ebbflow("history", "show", str(run), "4", *only, "--json"))["sessions"]
    assert session["tensors"]["theta/weight"] == [10, 64]
    assert sum(session["drew_on"].values()) == pytest.approx(1)


def test_who_holds_what_adds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = ("--devices", "4", "--sessions", "3", "--overlap", "0")
    found = found_in(ebbflow("data", "show", *small, "--json", "--picture", "who.png"))
    assert (tmp_path / "who.png").exists()
    assert found["session_count"] == 3
    assert sum(sum(d["samples"].values()) for d in found["devices"]) == 1437
    assert [d["sessions"] for d in found["devices"]] == [[1, 3]] * 4 + [[2]] * 4


def test_a_dry_run_that_does_not_fit_prints_its_numbers_and_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ceilings, "available_memory", lambda: 1000)
    answer = ebbflow("compare", *TINY, "--dry-run", "--json")
    found = found_in(answer)
    assert answer.code == 2
    assert "1.0 kB are available" in answer.err
    assert found["memory"]["total"] == sum(found["memory"]["parts"].values()) > 1000
    assert found["memory"]["available"] == 1000
    assert found["disk"]["finished"] == sum(found["disk"]["parts"].values())


def test_a_damaged_run_is_named_in_json_too(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "environment.json").write_text("rubbish")
    answer = ebbflow("verify", str(tmp_path / "run"), "--json")
    found = found_in(answer)
    assert (answer.code, found["intact"]) == (1, False)
    assert found["findings"][0]["path"] == "environment.json"
