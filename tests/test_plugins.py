"""Plugins: a file of a user's own adds a start and an algorithm, without touching the package."""

from __future__ import annotations

import json
import shutil
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
from ebbflow.core.files import sha256
from ebbflow.core.registry import Registry
from ebbflow.runs import records, trust
from ebbflow.runs.configuration import read_config
from ebbflow.starts import STARTS
from tests.test_cli import Answer, ebbflow

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


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep what the tests trust out of the developer's own file; return that file's path."""
    monkeypatch.setenv(trust.FOLDER, str(tmp_path / "state"))
    return tmp_path / "state" / trust.FILE


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN, encoding="utf-8")
    yield path
    forget()


def forget() -> None:
    """Unload all plugins, as the end of the process would."""
    registries: list[Registry[Any]] = [ALGORITHMS, STARTS]
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
    plugins.load_installed()
    assert "towards" in STARTS
    broken = EntryPoint("gone", "not_there_at_all", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [broken])
    with pytest.raises(EbbflowError, match="the installed plugin gone cannot be loaded"):
        plugins.load_installed()


# --- in settings, and in the record of a run -----------------------------------------------------


@pytest.fixture
def settings(plugin: Path) -> Path:
    """Return a configuration beside the plugin that names it by a relative path."""
    path = plugin.with_name("experiment.toml")
    path.write_text(f'plugins = ["{plugin.name}"]\nmethods = ["towards", "previous"]\n')
    return path


@pytest.fixture
def run(settings: Path, tmp_path: Path) -> Path:
    """Return a run with a plugin named in a file, after which the process has ended."""
    out = tmp_path / "run"
    answer = ebbflow("compare", str(settings), *SMALL, "--out", str(out))
    assert answer.code == 0, answer.err
    forget()
    return out


def refused(answer: Answer) -> str:
    """Return the one sentence of a command that has loaded nothing."""
    assert answer.code == 2, answer.err
    assert "towards" not in STARTS
    (sentence,) = answer.err.strip().splitlines()
    return sentence


def test_a_run_records_path_and_digest_and_resumes_alone(run: Path, plugin: Path) -> None:
    entry = f"{plugin.resolve()}@sha256:{sha256(plugin.read_bytes())}"
    assert read_config(run).plugins == [entry]
    answer = ebbflow("resume", str(run))
    assert (answer.code, answer.err) == (0, "")
    assert "towards" in answer.out


def test_a_plugin_named_by_the_option_is_recorded_the_same_way(
    plugin: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    command = ("run", "--plugin", str(plugin), "--methods", "towards", *SMALL, "--out", str(out))
    assert ebbflow(*command).code == 0
    forget()
    assert ebbflow("resume", str(out)).code == 0


def test_both_ways_to_name_it_record_it_once(settings: Path, plugin: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = ("compare", str(settings), "--plugin", str(plugin), *SMALL, "--out", str(out))
    assert ebbflow(*command).code == 0
    assert len(read_config(out).plugins) == 1


def test_runs_without_plugins_record_none_and_note_nothing(state: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert ebbflow("run", "--methods", "previous", *SMALL, "--out", str(out)).code == 0
    assert read_config(out).plugins == []
    assert not state.exists()


def test_a_dry_run_notes_nothing(settings: Path, state: Path) -> None:
    assert ebbflow("compare", str(settings), *SMALL, "--dry-run").code == 0
    assert not state.exists()


def test_a_changed_plugin_is_not_run_unless_it_is_named(run: Path, plugin: Path) -> None:
    plugin.write_text(f"{PLUGIN}# changed\n", encoding="utf-8")
    sentence = refused(ebbflow("resume", str(run)))
    assert f"{plugin} was changed since" in sentence
    assert f"--plugin {plugin}" in sentence
    answer = ebbflow("resume", str(run), "--plugin", str(plugin))
    assert answer.code == 0
    assert f"warning: the plugin {plugin} is not the one that was run before" in answer.err


def test_a_missing_plugin_is_named_and_may_have_moved(run: Path, plugin: Path) -> None:
    moved = plugin.with_name("elsewhere.py")
    plugin.rename(moved)
    sentence = refused(ebbflow("resume", str(run)))
    assert f"{plugin} is missing; name it by --plugin PATH" in sentence
    answer = ebbflow("resume", str(run), "--plugin", str(moved))
    assert (answer.code, answer.err) == (0, "")


def test_another_plugin_does_not_stand_for_the_missing_one(run: Path, plugin: Path) -> None:
    other = plugin.with_name("other.py")
    other.write_text("import ebbflow\n")
    plugin.unlink()
    sentence = refused(ebbflow("resume", str(run), "--plugin", str(other)))
    assert "mine.py is missing" in sentence


TRAP = """
from pathlib import Path
Path(__file__).with_name("sprung").touch()
"""


@pytest.mark.parametrize("recorded", [True, False])
def test_a_folder_from_a_stranger_runs_no_code(
    run: Path, plugin: Path, tmp_path: Path, recorded: bool
) -> None:
    """Neither with the right digest of what it brings along, nor with a path alone."""
    stranger = tmp_path / "stranger"
    shutil.copytree(run, stranger)
    trap = stranger / "mine.py"
    trap.write_text(TRAP)
    entry = f"{trap}@sha256:{sha256(trap.read_bytes())}" if recorded else "mine.py"
    before = read_config(run).plugins[0]
    for path in (stranger / records.CONFIG, stranger / records.SUMMARY):
        path.write_text(path.read_text().replace(before, entry))
    seal = "# digest of what follows: "
    _, text = (stranger / records.CONFIG).read_text().split("\n", 1)
    (stranger / records.CONFIG).write_text(f"{seal}{sha256(text.encode())}\n{text}")
    config = str(stranger / records.CONFIG)
    for command in (
        ("resume", str(stranger)),
        ("bound", str(stranger)),
        ("compare", config, "--out", str(tmp_path / "again")),
        ("run", config, "--out", str(tmp_path / "again")),
        ("compare", config, "--dry-run"),
    ):
        sentence = refused(ebbflow(*command))
        assert f"{trap} is not trusted" in sentence
        assert f"--plugin {trap}" in sentence
    picture = str(tmp_path / "data.png")
    for looking in (
        ("metrics", str(stranger)),
        ("cost", str(stranger)),
        ("data", "show", config, "--picture", picture),
    ):
        assert ebbflow(*looking).code == 0
    with pytest.raises(EbbflowError, match="is not trusted"):
        package.resume(stranger)
    with pytest.raises(EbbflowError, match="is not trusted"):
        package.compare(config=config)
    assert not (stranger / "sprung").exists()
    plugins.load_file(trap)  # the trap does work, for who steps into it
    assert (stranger / "sprung").exists()


def test_the_same_content_at_another_path_is_not_trusted(
    run: Path, plugin: Path, tmp_path: Path
) -> None:
    """Beside the copy may lie other files that it imports."""
    copy = tmp_path / "copy" / "mine.py"
    copy.parent.mkdir()
    shutil.copy(plugin, copy)
    text = (run / records.CONFIG).read_text().split("\n", 1)[1].replace(str(plugin), str(copy))
    config = tmp_path / "copied.toml"
    config.write_text(text)
    assert "is not trusted" in refused(
        ebbflow("compare", str(config), "--out", str(tmp_path / "x"))
    )


def test_what_a_run_recorded_can_be_run_again_by_its_own_user(run: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    answer = ebbflow("compare", str(run / records.CONFIG), "--out", str(again))
    assert answer.code == 0, answer.err
    assert read_config(again).plugins == read_config(run).plugins


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"plugins": [["/x.py", "0"]]}',
        b'{"version": 2, "plugins": 3, "digest": "0"}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_of_trust_trusts_nobody(run: Path, state: Path, damage: bytes) -> None:
    before = state.read_bytes()
    state.write_bytes(damage)
    assert "is not trusted" in refused(ebbflow("resume", str(run)))
    # One more name in it than its digest covers is damage, too.
    forged = json.loads(before)
    forged["plugins"].append(["/tmp/x.py", "0" * 64])
    state.write_text(json.dumps(forged))
    assert trust.trusted() == []


def test_naming_a_plugin_again_mends_the_file_of_trust(
    run: Path, plugin: Path, state: Path
) -> None:
    state.write_bytes(b"damaged")
    assert ebbflow("resume", str(run), "--plugin", str(plugin)).code == 0
    forget()
    assert ebbflow("resume", str(run)).code == 0


def test_only_the_last_thousand_plugins_are_remembered(state: Path) -> None:
    many = [trust.Plugin(f"/p/{number}.py", "0" * 64) for number in range(1200)]
    trust.trust(many)
    assert trust.trusted() == many[200:]
    trust.trust([many[0]])
    assert trust.trusted() == [*many[201:], many[0]]


def test_a_state_folder_that_cannot_be_written_stops_no_run(
    settings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv(trust.FOLDER, str(tmp_path / "file"))
    answer = ebbflow("compare", str(settings), *SMALL, "--out", str(tmp_path / "run"))
    assert answer.code == 0
    assert "cannot be written" in answer.err
    assert "named again by --plugin" in answer.err


def test_metrics_and_costs_of_a_run_do_without_its_plugin(run: Path, plugin: Path) -> None:
    assert ebbflow("metrics", str(run)).err == ""
    forget()
    plugin.unlink()
    for command in ("metrics", "cost"):
        answer = ebbflow(command, str(run))
        assert answer.code == 0
        assert f"warning: {plugin} is missing" in answer.err


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ('"none.py"', "none.py (EXPERIMENT): there is no such file"),
        ('["experiment.toml"]', "is no Python file"),
        ("3", "plugins = 3 (EXPERIMENT) is refused"),
        ('[""]', "is refused"),
        ('["a\\u0000b"]', "holds a character that cannot be shown"),
        ('["~nobody-at-all/x.py"]', "there is no such file"),
    ],
)
def test_a_slip_in_the_settings_gets_one_sentence(
    settings: Path, value: str, sentence: str, tmp_path: Path
) -> None:
    settings.write_text(f"plugins = {value}\n")
    answer = ebbflow("compare", str(settings), *SMALL, "--out", str(tmp_path / "run"))
    assert sentence.replace("EXPERIMENT", str(settings)) in refused(answer)


def test_plugins_from_python(plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small: dict[str, Any] = {"sessions": 5, "rounds": 2, "devices": 4, "seeds": [1], "window": 2}
    package.compare("digits", plugins=["mine.py"], methods=["towards"], out="run", **small)
    forget()
    assert package.resume("run").rows
    plugin.write_text(f"{PLUGIN}# changed\n", encoding="utf-8")
    with pytest.raises(EbbflowError, match="was changed after it had been loaded"):
        package.compare("digits", plugins=["mine.py"], methods=["towards"], **small)


def test_a_file_that_was_imported_already_is_not_loaded_again(
    plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(plugin.parent)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    __import__("mine")
    assert plugins.load_file(plugin).path == str(plugin.resolve())
    monkeypatch.delitem(sys.modules, "mine")
