"""Plugins: a file of a user's own adds a start and an algorithm, without touching the package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import ebbflow as package
from ebbflow import plugins
from ebbflow.algorithms import ALGORITHMS
from ebbflow.core.errors import EbbflowError
from ebbflow.core.registry import Registry
from ebbflow.starts import STARTS
from tests.test_cli import ebbflow

PLUGIN = '''
"""A start and an algorithm, each with two parameters."""

import ebbflow
from ebbflow import Affine, Algorithm, Situation, Start, StartingPoint


def towards(candidates: int = 3, share: float = 1.0) -> Start:
    def choose(situation: Situation) -> StartingPoint:
        past = situation.past[-candidates:]
        if not past:
            return StartingPoint(situation.carried)
        model = ebbflow.mix([past[0].model, situation.carried], [share, 1 - share])
        return StartingPoint(model, weights={past[0].number: share})

    return Start(choose)


def damped(pull: float = 0.1, rate: float = 1.0) -> Algorithm:
    def server_step(theta, server, total):
        return theta + rate * total.delta / total.samples, server

    return Algorithm("damped", direction=Affine(pull=pull), server_step=server_step)


ebbflow.register_start("towards", towards, keeps=["models"])
ebbflow.register_algorithm("damped", damped)
'''
SMALL = (
    *("--dataset", "digits", "--sessions", "5", "--rounds", "2", "--devices", "4"),
    *("--seeds", "1", "--window", "2"),
)


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN, encoding="utf-8")
    registries: list[Registry[Any]] = [ALGORITHMS, STARTS]
    yield path
    for registry in registries:
        for name in {"towards", "damped"} & registry.keys():
            registry.unregister(name)
    for name in [name for name in sys.modules if name.startswith("ebbflow_plugin_")]:
        del sys.modules[name]


def test_a_start_and_an_algorithm_of_ones_own_on_the_command_line(
    plugin: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    answer = ebbflow(
        *("compare", "--plugin", str(plugin), "--methods", "towards,previous", *SMALL),
        *("--algorithm", "damped", "--set", "parameters.towards.share=0.5"),
        *("--set", "parameters.damped.rate=0.9", "--out", str(out)),
    )
    assert answer.code == 0, answer.err
    assert "towards" in answer.out
    again = ebbflow("resume", str(out), "--plugin", str(plugin))
    assert again.code == 0, again.err


def test_the_same_from_python(plugin: Path) -> None:
    plugins.load_file(plugin)
    plugins.load_file(plugin)  # once is enough
    records = package.compare(
        "digits",
        methods=["towards", "previous"],
        algorithm="damped",
        settings={"parameters.towards.candidates": 2, "parameters.towards.share": 0.25},
        sessions=5,
        rounds=2,
        devices=4,
        seeds=[1],
        window=2,
    )
    drawn = [e["weights"] for e in records.events if e["event"] == "start" and e["weights"]]
    assert drawn
    assert all(set(weights.values()) == {0.25} for weights in drawn)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("parameters.towards.share=big", "parameters.towards.share = 'big' is refused"),
        ("parameters.towards.shore=1", "did you mean share?"),
    ],
)
def test_its_parameters_are_checked_like_ours(
    plugin: Path, setting: str, message: str, tmp_path: Path
) -> None:
    command = ("compare", "--plugin", str(plugin), "--methods", "towards", *SMALL)
    answer = ebbflow(*command, "--set", setting, "--out", str(tmp_path / "run"))
    assert answer.code == 2
    assert message in answer.err


def test_without_the_plugin_its_names_are_unknown(tmp_path: Path) -> None:
    answer = ebbflow("compare", "--methods", "towards", *SMALL, "--out", str(tmp_path / "run"))
    assert answer.code == 2
    assert "there is no method 'towards'" in answer.err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def broken(:\n", "SyntaxError"),
        ("import ebbflow\nraise ValueError('no luck')\n", "(ValueError: no luck)"),
        ("import ebbflow\nebbflow.register_start('average', None)\n", "already a method called"),
    ],
)
def test_a_broken_plugin_gets_a_sentence_and_its_traceback(
    tmp_path: Path, text: str, sentence: str
) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text, encoding="utf-8")
    answer = ebbflow("compare", "--plugin", str(path), *SMALL, "--out", str(tmp_path / "run"))
    assert answer.code == 2
    *details, last = answer.err.strip().splitlines()
    assert last.startswith(f"ebbflow: --plugin {path} cannot be loaded (")
    assert sentence in last
    assert any("Traceback" in line for line in details)
    assert any("broken.py" in line for line in details)


def test_a_plugin_that_is_not_there_is_named(tmp_path: Path) -> None:
    answer = ebbflow("compare", "--plugin", str(tmp_path / "none.py"), *SMALL)
    assert answer.code == 2
    assert "none.py: there is no such file" in answer.err


def test_an_installed_plugin_is_loaded_by_its_entry_point(
    plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(plugin.parent)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    point = EntryPoint("mine", "mine", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point])
    plugins.load_plugins()
    assert "towards" in STARTS
    broken = EntryPoint("gone", "not_there_at_all", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [broken])
    with pytest.raises(EbbflowError, match="the installed plugin gone cannot be loaded"):
        plugins.load_plugins()
