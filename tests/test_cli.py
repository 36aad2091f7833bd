"""The command line: what it answers, what it prints where, and what it leaves behind."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import pty
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from ebbflow import __version__, cli, experiment
from ebbflow.config.presets import preset_text
from ebbflow.data import datasets

TINY = ("--seeds", "1", "--sessions", "4", "--rounds", "3", "--devices", "4")
EXECUTABLE = str(Path(sys.executable).parent / "ebbflow")
METHODS = ("learned", "warm_start", "previous", "average")


class Answer(NamedTuple):
    """What a command gave back."""

    code: int
    out: str
    err: str


def ebbflow(*arguments: str) -> Answer:
    """Run a command in this process; anything but an exit with a code comes through as it is."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["ebbflow", *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as end,
    ):
        cli.main()
    code = end.value.code
    assert isinstance(code, int)
    return Answer(code, out.getvalue(), err.getvalue())


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    return subprocess.run([EXECUTABLE, *arguments], capture_output=True, text=True, check=False)


def tree(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Answer, Path]:
    folder = tmp_path_factory.mktemp("cli") / "run"
    return ebbflow("compare", *TINY, "--window", "2,10", "--out", str(folder)), folder


# --- help, version, presets, data ----------------------------------------------------------------


def test_help_names_the_commands() -> None:
    done = process("--help")
    assert done.returncode == 0
    assert done.stderr == ""
    for command in ("run", "compare", "resume", "presets", "data", "history", "doctor"):
        assert f" {command} " in done.stdout
    assert "..." not in done.stdout.partition("Commands:")[2]  # no sentence is cut short


def test_every_command_has_help() -> None:
    for command in ("run", "compare", "resume", "presets show", "data get", "history show"):
        answer = ebbflow(*command.split(), "--help")
        assert answer.code == 0
        assert f"ebbflow {command} [OPTIONS]" in answer.out


def test_version() -> None:
    assert ebbflow("--version") == (0, f"{__version__}\n", "")


def test_nothing_asked_gives_the_help() -> None:
    answer = ebbflow()
    assert answer.code in (0, 2)
    assert "compare" in answer.out + answer.err


def test_a_preset_is_shown_as_it_is() -> None:
    assert ebbflow("presets", "show", "demo") == (0, preset_text("demo"), "")


def test_data_sets_are_listed() -> None:
    out = ebbflow("data", "ls").out
    assert all(name in out for name in ("digits", "mnist", "fmnist"))


def test_the_digits_are_here_and_whole() -> None:
    assert ebbflow("data", "get", "digits").code == 0
    answer = ebbflow("data", "verify", "digits")
    assert answer.code == 0
    assert answer.out.startswith("ok ")
    assert answer.out.endswith("digits.npz\n")


def test_doctor_finds_nothing_wrong() -> None:
    answer = ebbflow("doctor")
    assert answer.code == 0
    assert "FAIL" not in answer.out
    assert "training" in answer.out


def test_what_is_imported_is_declared_and_nothing_else() -> None:
    root = Path(cli.__file__).parent.parent
    project = tomllib.loads((root.parent.parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    ours = [extra for extra in extras if extra not in ("dev", "docs")]
    wanted = [*project["dependencies"], *(text for extra in ours for text in extras[extra])]
    modules = {
        "pillow": "PIL",
        "mlflow_skinny": "mlflow",
        "protobuf": "google",
        "tensorboard": "torch",
    }  # torch asks for it
    declared = {re.split(r"[^\w-]", text)[0].replace("-", "_") for text in wanted}
    declared = {modules.get(name, name) for name in declared}
    imported = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {name.name.split(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").split(".")[0])
    assert imported - sys.stdlib_module_names - {"ebbflow"} == declared


# --- compare and run -----------------------------------------------------------------------------


def test_compare_prints_the_table_and_where_everything_is(compared: tuple[Answer, Path]) -> None:
    answer, folder = compared
    assert answer.code == 0
    assert all(method in answer.out for method in METHODS)
    assert "transition 1" in answer.out
    assert "session 4" in answer.out
    assert str(folder) in answer.out
    assert (folder / "accuracy.png").stat().st_size > 1000
    summary = json.loads((folder / "summary.json").read_text())
    assert summary.keys() == {"version", "config", "rows", "digest"}


def test_progress_is_plain_lines_on_stderr(compared: tuple[Answer, Path]) -> None:
    answer, _ = compared
    lines = answer.err.splitlines()
    assert len(lines) == 4
    assert all(line.startswith(f"seed 1  session {s}/4") for s, line in enumerate(lines, start=1))
    assert "4 devices  learned " in lines[0]
    assert "\x1b" not in answer.err
    assert "session 1/4" not in answer.out


def test_a_window_longer_than_the_session_is_noted(compared: tuple[Answer, Path]) -> None:
    answer, _ = compared
    assert "a session has 3 rounds, fewer than the window 10" in answer.out
    assert "fewer than the window 2" not in answer.out


def test_json_is_all_that_is_printed(tmp_path: Path) -> None:
    answer = ebbflow("compare", *TINY, "--json", "--out", str(tmp_path / "run"))
    found = json.loads(answer.out)
    assert found["config"]["seeds"] == [1]
    assert {row["method"] for row in found["rows"]} == set(METHODS)
    assert answer.out == (tmp_path / "run" / "summary.json").read_text()


def test_run_runs_the_learned_start_alone(tmp_path: Path) -> None:
    found = json.loads(ebbflow("run", *TINY, "--json", "--out", str(tmp_path / "a")).out)
    assert found["config"]["methods"] == ["learned"]
    other = ("--methods", "previous", "--json", "--out", str(tmp_path / "b"))
    found = json.loads(ebbflow("run", *TINY, *other).out)
    assert found["config"]["methods"] == ["previous"]


def test_commas_make_lists(tmp_path: Path) -> None:
    lists = ("--seeds", "3, 5", "--methods", "previous,average", "--window", "1,2")
    answer = ebbflow("compare", *TINY, *lists, "--json", "--out", str(tmp_path / "run"))
    config = json.loads(answer.out)["config"]
    assert config["seeds"] == [3, 5]
    assert config["methods"] == ["previous", "average"]
    assert config["window"] == [1, 2]


@pytest.mark.parametrize(
    ("order", "rule"),
    [(("paper-text", "authors-code"), "one_pass"), (("authors-code", "paper-text"), "each_step")],
)
def test_the_later_preset_wins(tmp_path: Path, order: tuple[str, str], rule: str) -> None:
    presets = [word for name in order for word in ("--preset", name)]
    answer = ebbflow("compare", *TINY, *presets, "--json", "--out", str(tmp_path / "run"))
    assert json.loads(answer.out)["config"]["local"]["rule"] == rule


def test_options_win_over_presets_and_files_and_settings_over_all(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('preset = "demo"\nrounds = 9\nsessions = 5\n[partition]\nalpha = 2.0\n')
    arguments = (str(file), *TINY, "--rounds", "4", "--set", "rounds=2", "--json")
    answer = ebbflow("compare", *arguments, "--out", str(tmp_path / "run"))
    config = json.loads(answer.out)["config"]
    assert (config["rounds"], config["sessions"], config["seeds"]) == (2, 4, [1])
    assert config["partition"]["alpha"] == 2.0


def test_without_a_transition_the_first_one_is_named(tmp_path: Path) -> None:
    answer = ebbflow("compare", *TINY, "--sessions", "3", "--out", str(tmp_path / "run"))
    assert "the first with a choice is session 4" in answer.out


def test_weights_that_say_nothing_are_warned_about_once(tmp_path: Path) -> None:
    flat = (
        "--sessions",
        "6",
        "--set",
        "parameters.warm_start.scale=0.001",
        "--out",
        str(tmp_path / "run"),
    )
    answer = ebbflow("compare", *TINY, *flat)
    warnings = [line for line in answer.err.splitlines() if line.startswith("warning")]
    assert len(warnings) == 1
    assert "nearly uniform" in warnings[0]
    assert "raise parameters.warm_start.scale" in warnings[0]
    assert "warning" not in answer.out


def test_data_and_weights_that_are_doubtful_are_warned_about_once(tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    x, y = draw.normal(size=(60, 5)) * [1, 1, 1, 1, 1000], np.arange(60) % 3
    data, weights, out = (tmp_path / name for name in ("own.npz", "body.safetensors", "run"))
    np.savez(data, x_train=x, y_train=y, x_test=x[:20], y_test=np.minimum(y, 1)[:20])
    save_file({"hidden.weight": torch.zeros(4, 5), "hidden.bias": torch.zeros(4)}, weights)
    small = ("--sessions", "2", "--rounds", "1", "--devices", "2", "--seeds", "1,2")
    model = ("model.kind=mlp", "parameters.mlp.hidden=4", f"model.weights={weights}")
    settings = [part for setting in model for part in ("--set", setting)]
    answer = ebbflow("compare", "--dataset", str(data), *small, *settings, "--out", str(out))
    warnings = [line for line in answer.err.splitlines() if line.startswith("warning")]
    assert len(warnings) == 4
    assert warnings[3].startswith("warning with 2 sessions and pilot.sessions = 1, no session has")
    assert warnings[0].startswith("warning the features of own differ by a factor of ")
    assert warnings[1].startswith("warning only the training set of own has samples of the label 2")
    assert warnings[2] == (
        f'warning model.weights = "{weights}" lacks 2 of the 4 tensors of the model mlp '
        "(head.weight, head.bias): they start as in a new model; add them to the file if they "
        "should not"
    )
    lines = (out / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert sum(event["event"] == "warning" for event in events) == 2 * 4
    for command in ("metrics", "cost", "history"):
        arguments = ("ls", str(out)) if command == "history" else (str(out),)
        assert ebbflow(command, *arguments).code == 0


def test_brackets_in_a_path_are_not_markup(tmp_path: Path) -> None:
    folder = tmp_path / "a[b]" / "[" / "c]"  # the last two would read as the tag [/c]
    answer = ebbflow("compare", *TINY, "--out", str(folder))
    assert answer.code == 0
    assert f"records  {folder}\n" in answer.out
    assert f"picture  {folder / 'accuracy.png'}\n" in answer.out


def test_without_out_the_run_is_kept_below_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ebbflow("compare", *TINY).code == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.endswith("-digits-fedavg")
    assert (folder / "summary.json").is_file()


def test_a_terminal_gets_a_bar(tmp_path: Path) -> None:
    master, terminal = pty.openpty()
    arguments = ("compare", *TINY, "--seeds", "1,2,3", "--rounds", "20", "--json")
    with subprocess.Popen(
        [EXECUTABLE, *arguments, "--out", str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "160"},
    ) as child:
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # Linux reports the end of a terminal as an error
            while part := os.read(master, 4096):
                shown += part
        os.close(master)
        assert child.stdout is not None
        json.loads(child.stdout.read())
    assert child.returncode == 0
    text = shown.decode()
    assert "\x1b[" in text
    assert "session " in text
    assert "4 devices  learned " in text
    assert "average " in text


# --- resume and history --------------------------------------------------------------------------


def test_resuming_a_finished_run_shows_it_again_and_changes_nothing(
    compared: tuple[Answer, Path],
) -> None:
    first, folder = compared
    before = tree(folder)
    again = ebbflow("resume", str(folder))
    assert (again.code, again.out) == (0, first.out)
    assert tree(folder) == before


def test_resume_prints_json_too(compared: tuple[Answer, Path]) -> None:
    _, folder = compared
    answer = ebbflow("resume", str(folder), "--json")
    assert json.loads(answer.out) == json.loads((folder / "summary.json").read_text())


def test_an_interrupted_run_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "_simulate", mock.Mock(side_effect=KeyboardInterrupt))
        answer = ebbflow("compare", *TINY, "--out", str(folder))
        assert (answer.code, answer.out) == (130, "")
        assert answer.err == f"stopped: resume with `ebbflow resume {folder}`\n"
        again = ebbflow("resume", str(folder))
        assert again.code in (2, 130)
        assert "stopped" in again.err
    assert ebbflow("resume", str(folder)).code == 0


def test_a_run_interrupted_before_it_began_leaves_nothing_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    monkeypatch.setattr(datasets, "load", mock.Mock(side_effect=KeyboardInterrupt))
    answer = ebbflow("compare", *TINY, "--out", str(folder))
    assert answer.code == 130
    assert ("ebbflow resume" in answer.err) == folder.exists()


def test_the_history_is_listed_and_shown(compared: tuple[Answer, Path]) -> None:
    _, folder = compared
    listed = ebbflow("history", "ls", str(folder))
    assert listed.code == 0
    assert listed.out.count(" ok ") == 4 * 4  # a pilot and sessions 2, 3, 4 of every method
    assert "pilot" in listed.out
    shown = ebbflow("history", "show", str(folder), "4", "--method", "warm_start", "--seed", "1")
    assert shown.code == 0
    assert "warm_start  seed 1  session 4" in shown.out
    assert "drew on   session 2: weight " in shown.out
    assert "distance" in shown.out
    assert "theta/weight (10, 64)" in shown.out
    assert "signature/weight (10, 64)" in shown.out


def test_the_history_says_which_file_is_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ebbflow("run", *TINY, "--methods", "warm_start", "--out", str(folder))
    where = folder / "history" / "fedavg" / "warm_start" / "seed-1"
    (where / "session-0003.safetensors").write_bytes(b"rubbish")
    (where / "session-0002.safetensors").unlink()
    listed = ebbflow("history", "ls", str(folder))
    assert [listed.out.count(f" {word} ") for word in ("ok", "damaged", "missing")] == [2, 1, 1]
    missing = ebbflow("history", "show", str(folder), "2")
    assert (missing.code, "(missing)" in missing.out) == (0, True)
    damaged = ebbflow("history", "show", str(folder), "3")
    assert damaged.code in (0, 2)
    assert "session-0003.safetensors" in damaged.out + damaged.err
