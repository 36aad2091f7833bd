"""The help of every command: a short option, examples that work, and what may have been meant."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from ebbflow.cli import EXIT_CODES
from tests.cli.commands_of import COMMANDS, examples_of, options_of, parsed
from tests.test_cli import TINY, ebbflow

EVERY = sorted(COMMANDS)
# They download, compute for long, listen, or need a run of another kind or a federation.
NOT_RUN = re.compile(
    r"data get|bound|privacy|new|doctor|(compare|run )(?!.*--dry-run)|"
    r"watch|report|export|plot|extend|federate|sweep"
)


@pytest.mark.parametrize("name", EVERY)
def test_every_command_has_both_options_for_help_and_examples(name: str) -> None:
    answer = ebbflow(*name.split(), "-h")
    assert (answer.code, answer.err) == (0, "")
    assert ebbflow(*name.split(), "--help") == answer
    assert "-h, --help" in answer.out
    assert "\nExamples:\n" in answer.out.replace("\n  Examples:", "\nExamples:")
    assert "\b" not in answer.out
    found = examples_of(name)
    assert 1 <= len(found) <= 5
    for words in found:
        assert f"    ebbflow {' '.join(words)}\n" in answer.out + "\n"


@pytest.mark.parametrize("name", EVERY)
def test_every_example_parses(name: str) -> None:
    for words in examples_of(name):
        parsed(words)
        if name:
            assert " ".join(words).startswith(name)


def test_an_example_that_does_not_parse_is_noticed() -> None:
    for words in (["compare", "--sesions", "3"], ["compar"], ["history", "show", "runs/demo"]):
        with pytest.raises(Exception, match=r"No such|Missing"):
            parsed(words)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the runs and the trace that the examples name."""
    folder = tmp_path_factory.mktemp("desk")
    arguments = ("--seeds", "100", "--sessions", "5", "--rounds", "3", "--devices", "4", "--quiet")
    assert ebbflow("compare", *arguments, "--out", str(folder / "runs" / "demo")).code == 0
    shutil.copytree(folder / "runs" / "demo", folder / "runs" / "mine")
    hours = "".join(f"{24 * day},{name},join\n" for day, name in enumerate("abcdefgh"))
    (folder / "wards.csv").write_text(f"time,device,event\n{hours}400,a,leave\n")
    (folder / "experiment.toml").write_text("[schedule]\nunit = '1h'\n")
    return folder


RUN = [words for name in EVERY for words in examples_of(name) if not NOT_RUN.match(" ".join(words))]


@pytest.mark.parametrize("words", RUN, ids=" ".join)
def test_examples_work(
    words: list[str], desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(desk, tmp_path / "desk")
    monkeypatch.chdir(tmp_path / "desk")
    unit = ("--unit", "1h") if words[0] == "trace" else ()
    answer = ebbflow(*words, *unit)
    assert answer.code == 0, answer
    assert answer.out


def test_exit_codes_are_in_the_help() -> None:
    out = ebbflow("--help").out
    for line in EXIT_CODES.splitlines()[1:]:
        assert line in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("compar", "No such command 'compar': did you mean compare? see `ebbflow --help`"),
        ("data lss", "No such command 'lss': did you mean ls? see `ebbflow data --help`"),
        ("xyzzy", "No such command 'xyzzy'; see `ebbflow --help`"),
        (
            "compare --sesions 3",
            "No such option --sesions: did you mean --sessions? see `ebbflow compare --help`",
        ),
        ("compare --xyzzy", "No such option --xyzzy; see `ebbflow compare --help`"),
        ("resume", "Missing argument 'DIR'; see `ebbflow resume --help`"),
    ],
)
def test_what_may_have_been_meant_is_said(words: str, sentence: str) -> None:
    assert ebbflow(*words.split()) == (2, "", f"ebbflow: {sentence}\n")


def test_commands_that_print_facts_have_json() -> None:
    silent = {"", "data", "trace", "history", "federate", "sweep"}
    added = {"report", "watch", "export", "plot", "extend"}
    for name in COMMANDS.keys() - silent - added:
        assert "--json" in options_of(name), name


def test_commands_that_compute_have_quiet() -> None:
    for name in ("run", "compare", "resume"):
        assert {"--quiet", "-q"} <= options_of(name)


def test_numbers_are_called_numbers() -> None:
    out = ebbflow("compare", "--help").out
    for text in (
        "--overlap FLOAT",
        "--rounds INTEGER",
        "--seeds INTEGER,...",
        "--methods NAME,...",
    ):
        assert text in out
    for name in COMMANDS:
        assert not re.search(r"--[\w-]+ <", ebbflow(*name.split(), "--help").out), name


def test_the_tiny_run_of_the_tests_is_spelt_as_the_help_spells_it() -> None:
    assert set(TINY[::2]) <= options_of("compare")
