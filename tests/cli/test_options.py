"""Numbers, lists, and options that can be spelt in two ways."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbflow.cli.spelling import OTHER
from ebbflow.core import seed_lists
from ebbflow.core.errors import EbbflowError
from tests.cli.commands_of import COMMANDS, options_of
from tests.test_bad_input import assert_refused
from tests.test_cli import TINY, ebbflow


def foretold(*arguments: str) -> dict[str, Any]:
    """Return what a dry run says."""
    answer = ebbflow("compare", *TINY, *arguments, "--dry-run", "--json")
    assert answer.code == 0, answer
    found = json.loads(answer.out)
    assert isinstance(found, dict)
    return found


# --- two spellings -------------------------------------------------------------------------------


def test_every_command_takes_both_spellings() -> None:
    for name, command in COMMANDS.items():
        own = options_of(name)
        for option in own & OTHER.keys():
            assert OTHER[option] in own, (name, option)
        for param in command.params:
            if not getattr(param, "hidden", False):
                continue
            shown = ebbflow(*name.split(), "--help").out
            assert not re.search(rf"{param.opts[0]}[ ,]", shown.partition("Examples:")[0])


@pytest.mark.parametrize(
    ("one", "other", "value"),
    [
        ("--algorithm", "--algorithms", "fedavg"),
        ("--methods", "--method", "previous"),
        ("--seeds", "--seed", "1"),
        ("--window", "--windows", "2"),
        ("--devices", "--device", "4"),
        ("--sessions", "--session", "3"),
        ("--rounds", "--round", "2"),
        ("--preset", "--presets", "demo"),
    ],
)
def test_both_mean_the_same_and_only_one_may_be_given(one: str, other: str, value: str) -> None:
    small = list(TINY)
    if one in TINY:
        at = TINY.index(one)
        del small[at : at + 2]
    command = ("compare", *small, "--dry-run", "--json")
    first, second = (json.loads(ebbflow(*command, name, value).out) for name in (one, other))
    for found in (first, second):
        found.pop("seconds")
        for part in ("memory", "disk"):
            for key in ("available", "free", "process"):
                found[part].pop(key, None)
    assert first == second
    both = ebbflow("compare", one, value, other, value)
    assert_refused(both, f"{one} and {other} are the same option: give one of them")


def test_the_last_of_one_spelling_wins() -> None:
    assert foretold("--seeds", "1,2", "--seeds", "5")["runs"] == 4


# --- lists ---------------------------------------------------------------------------------------


def test_presets_take_commas() -> None:
    assert ebbflow("data", "show", "--preset", "demo,per-device", "--json").code == 0
    answer = ebbflow("compare", "--presets", "demo,nosuch", "--dry-run")
    assert_refused(answer, "there is no preset 'nosuch'")


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 20)), min_size=1, max_size=5))
def test_seeds_and_ranges_are_read_as_they_are_written(parts: list[tuple[int, int]]) -> None:
    text = ",".join(str(a) if not more else f"{a}-{a + more}" for a, more in parts)
    assert seed_lists.seeds(text) == [n for a, more in parts for n in range(a, a + more + 1)]


@pytest.mark.parametrize("command", ["compare", "run", "data show"])
def test_ranges_of_seeds_are_taken_everywhere(command: str, tmp_path: Path) -> None:
    small = TINY[2:] if command != "data show" else TINY[2:4]
    dry = () if command == "data show" else ("--dry-run",)
    answer = ebbflow(*command.split(), *small, "--seeds", "3-5,9", *dry, "--json")
    assert answer.code == 0, answer
    found = json.loads(answer.out)
    if dry:
        assert found["runs"] == 4 * (4 if command == "compare" else 1)
    else:
        assert found["title"].endswith("seed 3")


@pytest.mark.parametrize("text", ["", "a", "1,", "1-", "-", "1--3", "1.5", "1-2-3", "1;2"])
def test_what_are_no_seeds_is_refused(text: str) -> None:
    with pytest.raises(EbbflowError, match="are no seeds: write whole numbers"):
        seed_lists.seeds(text)
    assert_refused(ebbflow("compare", f"--seeds={text}"), f"--seeds {text!r}")


def test_a_range_must_be_short_and_rise() -> None:
    with pytest.raises(EbbflowError, match="--seeds 5-1 ends before it begins: write 1-5"):
        seed_lists.seeds("5-1")
    with pytest.raises(EbbflowError, match="at most 1000"):
        seed_lists.seeds("0-999999999999999999")
    assert len(seed_lists.seeds("1-1000")) == 1000


# --- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            "compare --rounds many",
            "--rounds 'many' is no whole number: write one, as in --rounds 50",
        ),
        ("compare --devices 2.5", "--devices '2.5' is no whole number"),
        ("compare --device cuda", "what to train on is --set device=cuda"),
        ("compare --sessions ''", "--sessions '' is no whole number"),
        ("compare --pilot one", "--pilot 'one' is no whole number: write one, as in --pilot 1"),
        ("compare --overlap half", "--overlap 'half' is no number: write one, as in --overlap 0.2"),
        ("compare --alpha 0,3", "--alpha '0,3' is no number: write one, as in --alpha 0.3"),
        ("compare --test-split 20%", "--test-split '20%' is no number"),
        ("compare --window 5,ten", "--window '5,ten' is no list of whole numbers"),
        ("metrics runs --target x", "--target 'x' is not an accuracy"),
        ("bound runs --iterations 0", "--iterations 0 is too small: write at least 1"),
        ("bound runs --iterations few", "--iterations 'few' is no whole number"),
        ("bound runs --zeta1 x", "--zeta1 'x' is no number"),
        ("bound runs --seed x", "--seeds 'x' are no seeds"),
        ("history show runs five", "SESSION 'five' is no whole number: write one, as in 5"),
        ("privacy runs --delta x", "--delta 'x' is no number: write one, as in --delta 1e-05"),
        ("cost --model svhn --draws 0", "--draws 0 is too small: write at least 1"),
        ("cost --model svhn --speed fast", "--speed 'fast' is no number"),
    ],
)
def test_a_wrong_number_gets_a_sentence_with_an_example(arguments: str, sentence: str) -> None:
    words = [word.strip("'") for word in arguments.split(" ")]
    assert_refused(ebbflow(*words), sentence)


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--overlap", "1.5", "partition.overlap = 1.5 (--overlap) is refused: input should be"),
        ("--alpha", "-1", "partition.alpha = -1 (--alpha) is refused: input should be"),
        ("--rounds", "0", "rounds = 0 (--rounds) is refused: input should be greater"),
    ],
)
def test_a_number_out_of_range_is_refused_by_the_configuration(
    option: str, value: str, sentence: str
) -> None:
    assert_refused(ebbflow("compare", f"{option}={value}"), sentence)
