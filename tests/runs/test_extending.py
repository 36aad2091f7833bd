"""Seeds that are added to a run: the outcome is that of a run which had them from the start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.chaos.kinds import KINDS, SHORT
from ebbflow import experiment
from ebbflow.config.resolved import Config
from ebbflow.core.errors import EbbflowError, RunStoppedError, TrainingError
from ebbflow.core.types import Dataset
from ebbflow.data import datasets
from ebbflow.runs import records
from ebbflow.runs.configuration import check_unchanged, read_config
from ebbflow.runs.history import Store
from ebbflow.runs.verify import verify
from tests.configs import with_keys
from tests.run_folders import copied, flipped, last_checkpoint, made_old, resealed, saved
from tests.test_cli import ebbflow, tree

SMALL: dict[str, Any] = {
    "methods": ["warm_start", "previous"],
    "sessions": 3,
    "rounds": 2,
    "partition.devices": 4,
    "data.limit_train": 200,
    "history.keep": "last",
    "history.limit": 1,
    "checkpoint.seconds": 1e-9,
}
ROUNDS = 3 * 2


def configured(*seeds: int, **settings: Any) -> Config:
    return with_keys(SMALL, {**settings, "seeds": list(seeds)})


def stopping_after(rounds: int) -> Callable[[], bool]:
    """Return what stops a run after so many rounds."""
    asked = iter([*([False] * (rounds - 1)), True])
    return lambda: next(asked, True)


def ignoring_the_stop(work: Callable[[], object]) -> None:
    with pytest.raises(RunStoppedError):
        work()


def assert_same(folder: Path, whole: Path) -> None:
    """Compare everything but the durations, which are in the events and so in their digests."""
    for name in (records.CONFIG, records.ENVIRONMENT, records.METRICS, records.SUMMARY):
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name
    assert tree(folder / records.HISTORY) == tree(whole / records.HISTORY)
    ours, theirs = (list(records.read_lines(path / records.EVENTS)) for path in (folder, whole))
    for event in (*ours, *theirs):
        event.pop("seconds", None)
    assert ours == theirs
    assert tree(folder).keys() == tree(whole).keys()
    assert verify(folder) == []


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that had all four seeds from the start."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    experiment.run(configured(1, 2, 3, 4), folder)
    return folder


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished run of two seeds."""
    folder = tmp_path_factory.mktemp("short") / "run"
    experiment.run(configured(1, 2), folder)
    return folder


# --- the same bytes ------------------------------------------------------------------------------


@settings(max_examples=5)
@given(
    cuts=st.sets(st.integers(1, 3), min_size=1).map(sorted),
    stops=st.lists(st.integers(1, 4 * ROUNDS), min_size=3, max_size=3),
)
def test_any_split_of_the_seeds_gives_the_same_bytes(
    cuts: list[int], stops: list[int], whole: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each part may be stopped, after any round, before the next seeds are added."""
    folder = tmp_path_factory.mktemp("split") / "run"
    seeds = [1, 2, 3, 4]
    parts = [seeds[a:b] for a, b in zip([0, *cuts], [*cuts, 4], strict=True)]
    for number, (part, stop) in enumerate(zip(parts, [*stops, 0, 0], strict=False)):
        last = number == len(parts) - 1
        until = stopping_after(stop) if not last else lambda: False
        try:
            if number == 0:
                experiment.run(configured(*part), folder, stop=until)
            else:
                experiment.extend(folder, part, stop=until)
        except RunStoppedError:
            assert not last
    assert_same(folder, whole)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_can_be_extended(kind: str, tmp_path: Path) -> None:
    for name, seeds in (("whole", [1, 2]), ("run", [1])):
        experiment.run(with_keys(SHORT, KINDS[kind], {"seeds": seeds}), tmp_path / name)
    outcome = experiment.extend(tmp_path / "run", [2])
    assert_same(tmp_path / "run", tmp_path / "whole")
    assert outcome.rows == records.read_records(tmp_path / "whole").rows


def test_seeds_need_not_be_in_order(tmp_path: Path) -> None:
    experiment.run(configured(7, 3, 5), tmp_path / "whole")
    experiment.run(configured(7), tmp_path / "run")
    experiment.extend(tmp_path / "run", (3, 5))
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_a_run_that_has_not_begun_can_be_extended(whole: Path, tmp_path: Path) -> None:
    records.claim_folder(tmp_path / "run", configured(1).model_dump())
    experiment.extend(tmp_path / "run", [2, 3, 4])
    assert_same(tmp_path / "run", whole)


def test_a_run_of_an_earlier_version_can_be_extended(short: Path, tmp_path: Path) -> None:
    folder = copied(short, tmp_path)
    made_old(folder)
    experiment.extend(folder, [3])
    assert read_config(folder).seeds == [1, 2, 3]
    assert [r.seed for r in records.read_rounds(folder)] == [
        seed for seed in (1, 2, 3) for _ in range(2 * ROUNDS)
    ]


@pytest.mark.parametrize(("first", "then"), [((4, 1), (2, 3)), ((2,), (4,)), ((2, 3), (1,))])
def test_methods_that_ended_under_some_seeds_go_on_under_others(
    first: tuple[int, ...], then: tuple[int, ...], tmp_path: Path
) -> None:
    """Under the seeds 2 and 3 all of them end, and a run of these alone comes to nothing."""
    keys: dict[str, Any] = {"faults.dropout.rate": 0.3, "faults.dropout.when": "before"}
    keys |= {"guard.quorum": 0.5, "guard.limit": 0}
    experiment.run(configured(*first, *then, **keys), tmp_path / "whole")
    with suppress(TrainingError):
        experiment.run(configured(*first, **keys), tmp_path / "run")
    experiment.extend(tmp_path / "run", then)
    assert_same(tmp_path / "run", tmp_path / "whole")
    assert "ended" in records.read_sealed(tmp_path / "run" / records.SUMMARY)


# --- on the way ----------------------------------------------------------------------------------


def test_an_extended_run_is_unfinished_until_all_seeds_are_done(
    short: Path, whole: Path, tmp_path: Path
) -> None:
    folder = copied(short, tmp_path)
    ignoring_the_stop(lambda: experiment.extend(folder, [3, 4], stop=stopping_after(ROUNDS + 1)))
    assert not (folder / records.SUMMARY).exists()
    assert read_config(folder).seeds == [1, 2, 3, 4]
    for command in ("metrics", "cost", "verify"):
        answer = ebbflow(command, str(folder))
        assert answer.code == 0, command
    with pytest.raises(EbbflowError, match=r"already has the seeds 3, 4: .* `ebbflow resume "):
        experiment.extend(folder, [3, 4])
    experiment.resume(folder)
    assert_same(folder, whole)


def test_other_settings_may_change_while_a_run_is_extended(short: Path, tmp_path: Path) -> None:
    """The last checkpoint is still of the seeds before."""
    folder = copied(short, tmp_path)
    ignoring_the_stop(lambda: experiment.extend(folder, [3], stop=stopping_after(1)))
    path = folder / records.CONFIG
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("window = [\n    10,\n]", "window = [2]"), encoding="utf-8")
    with pytest.warns(UserWarning, match="window was changed since"):
        outcome = experiment.resume(folder)
    assert {row["window"] for row in outcome.rows} == {2}
    assert {row["seed"] for row in outcome.rows} == {1, 2, 3}


def test_other_instructions_of_the_processor_are_told(short: Path, tmp_path: Path) -> None:
    """A finished run that is only read does not mind them."""
    folder = copied(short, tmp_path)

    def elsewhere(environment: dict[str, Any]) -> None:
        environment["instructions"] = {"torch": "DEFAULT", "oneDNN": "SSE41"}

    resealed(folder / records.ENVIRONMENT, elsewhere)
    assert "warning" not in ebbflow("resume", str(folder)).err
    answer = ebbflow("extend", str(folder), "--seeds", "3", "--quiet")
    assert answer.err.startswith("warning: the run was started with other instructions")
    warnings = [e for e in records.read_events(folder) if e["event"] == "warning"]
    assert [e["text"][:40] for e in warnings if "seed" not in e] == [answer.err[9:49]]


def test_only_appended_seeds_may_differ_from_what_was_saved(tmp_path: Path) -> None:
    for before, after in (((1, 2), (2, 1)), ((1, 2), (1,)), ((1, 2), (1, 3, 2)), ((1,), (2, 1))):
        with pytest.raises(EbbflowError, match=r"seeds is \[.*\] and was \["):
            check_unchanged(configured(*before), configured(*after), tmp_path)
    check_unchanged(configured(1, 2), configured(1, 2, 0), tmp_path)
    with pytest.raises(EbbflowError, match="rounds is 3 and was 2"):
        check_unchanged(configured(1), configured(1, 2, rounds=3), tmp_path)


# --- refused, with nothing changed ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ([], r"no seeds to add to .*run: name at least one that it has not"),
        ([3, 2], r"run already has the seed 2: name others$"),
        ([1, 2], r"run already has the seeds 1, 2: name others$"),
        ([3, 3], r"names 3 more than once"),
        ([-1], r"seeds = -1 \(the seeds to add\) is refused"),
        ([2**63], "seeds .* is refused"),
        (list(range(3, 1003)), "seeds .* is refused: .* at most 1000 items"),
    ],
)
def test_seeds_that_make_no_sense_are_refused(
    seeds: list[int], message: str, short: Path, tmp_path: Path
) -> None:
    folder = copied(short, tmp_path)
    before = tree(folder)
    with pytest.raises(EbbflowError, match=message):
        experiment.extend(folder, seeds)
    assert tree(folder) == before


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EbbflowError, match="holds no ebbflow run"):
        experiment.extend(tmp_path, [3])
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_being_written_to_is_refused(short: Path, tmp_path: Path) -> None:
    folder = copied(short, tmp_path)
    before = tree(folder)
    lock = FileLock(folder / records.LOCK)
    lock.acquire()
    try:
        with pytest.raises(EbbflowError, match="another process is writing to"):
            experiment.extend(folder, [3])
    finally:
        lock.release()
    assert tree(folder) == before
    experiment.extend(folder, [3])


def session_of(folder: Path) -> Path:
    return sorted((folder / records.HISTORY).rglob("session-*.safetensors"))[-1]


DAMAGE: dict[str, Callable[[Path], None]] = {
    "a round": lambda folder: flipped(folder / records.METRICS, 900),
    "an event": lambda folder: flipped(folder / records.EVENTS, 900),
    "lost rounds": lambda folder: os.truncate(folder / records.METRICS, 100),
    "the configuration": lambda folder: flipped(folder / records.CONFIG, 8 * 300),
    "the environment": lambda folder: flipped(folder / records.ENVIRONMENT, 8 * 100),
    "the summary": lambda folder: flipped(folder / records.SUMMARY, 8 * 500),
    "the checkpoint": lambda folder: flipped(last_checkpoint(folder), 8 * 500),
    "its tensors": lambda folder: flipped(
        last_checkpoint(folder).with_suffix(".safetensors"), 8 * 3000
    ),
    "a past session": lambda folder: flipped(session_of(folder), 8 * 3000),
    "a lost past session": lambda folder: session_of(folder).unlink(),
    "a lost list": lambda folder: (session_of(folder).parent / records.MANIFEST).unlink(),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_run_is_refused(what: str, short: Path, tmp_path: Path) -> None:
    folder = copied(short, tmp_path)
    DAMAGE[what](folder)
    before = tree(folder)
    with pytest.raises(EbbflowError, match=r"damaged|does not match|not valid"):
        experiment.extend(folder, [3])
    assert tree(folder) == before


def test_data_that_changed_are_refused(tmp_path: Path) -> None:
    def data(first: int) -> Dataset:
        whole = datasets.load("digits")
        kept = slice(first, first + 200)
        train = replace(whole.train, x=whole.train.x[kept], y=whole.train.y[kept])
        return replace(whole, train=train)

    experiment.run(configured(1), tmp_path / "run", dataset=data(0))
    before = tree(tmp_path / "run")
    with pytest.raises(EbbflowError, match=r"is not the one that .* was started with"):
        experiment.extend(tmp_path / "run", [2], dataset=data(1))
    assert tree(tmp_path / "run") == before
    experiment.extend(tmp_path / "run", [2], dataset=data(0))


def test_an_environment_of_other_data_is_refused(short: Path, tmp_path: Path) -> None:
    folder = copied(short, tmp_path)

    def other(environment: dict[str, Any]) -> None:
        environment["dataset"]["digest"] = "0" * 32

    resealed(folder / records.ENVIRONMENT, other)
    before = tree(folder)
    with pytest.raises(EbbflowError, match=r"is not the one that .* was started with"):
        experiment.extend(folder, [3])
    assert tree(folder) == before


# --- the seed before -----------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["keep", "unlink"])
def test_a_crash_before_the_former_seed_is_trimmed_leaves_nothing_behind(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the next seed has a checkpoint, the seed before keeps only its last sessions."""
    experiment.run(configured(1, 2), tmp_path / "whole")
    folder, usual = tmp_path / "run", (Store.keep, Store._write_manifest)

    def crash_at(here: str, store: Store) -> None:
        if (here, store.folder.name) == (call, "seed-1") and saved(folder)["seed"] == 2:
            raise RunStoppedError

    def keep(store: Store, sessions: Collection[int]) -> None:
        crash_at("keep", store)
        usual[0](store, sessions)

    def write(store: Store, files: dict[str, dict[str, Any]]) -> None:
        usual[1](store, files)
        crash_at("unlink", store)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "keep", keep)
        patch.setattr(Store, "_write_manifest", write)
        ignoring_the_stop(lambda: experiment.run(configured(1, 2), folder))
    experiment.resume(folder)
    assert_same(folder, tmp_path / "whole")


# --- dying at every call -------------------------------------------------------------------------

DYING = """
import random, shutil, sys
from pathlib import Path

import torch
from benchmarks.chaos.calls import Calls, die, in_child, watched
from benchmarks.chaos.kinds import results, wrong
from ebbflow import experiment
from ebbflow.core.errors import RunStoppedError
from ebbflow.runs.configuration import read_config
from tests.runs.test_extending import configured, stopping_after

torch.set_num_threads(1)
scratch, most = Path(sys.argv[1]), int(sys.argv[2])
keys = {"engine.workers": 1}
experiment.run(configured(1, 2, **keys), scratch / "whole")
expected = results(scratch / "whole")
experiment.run(configured(1, **keys), scratch / "finished")
try:
    experiment.run(configured(1, **keys), scratch / "stopped", stop=stopping_after(3))
except RunStoppedError:
    pass

def complete(folder):
    if read_config(folder).seeds == [1]:
        experiment.extend(folder, [2])
    else:
        experiment.resume(folder)

def dying(folder, place):
    def action():
        with watched(Calls(folder, die, place)):
            complete(folder)
    return action

deaths, draw = 0, random.Random(3)
for name in ("finished", "stopped"):
    folder = scratch / f"{name} and extended"
    shutil.copytree(scratch / name, folder)
    calls = Calls(folder, lambda: None)
    with watched(calls):
        complete(folder)
    assert wrong(folder, expected) == ""
    # Those that change the summary and the configuration, and then some or all of the others.
    places = list(range(1, calls.count + 1))
    others = places[8:]
    places = places[:8] + sorted(draw.sample(others, min(most, len(others))))
    for number, place in enumerate(places):
        shutil.rmtree(folder)
        shutil.copytree(scratch / name, folder)
        deaths += in_child(dying(folder, place)) < 0
        if number % 3 == 0:
            deaths += in_child(dying(folder, draw.randrange(1, 60))) < 0
        # Every other time, the seeds are not added again: the run goes on as it is first.
        if number % 2 and read_config(folder).seeds == [1]:
            assert in_child(lambda: experiment.resume(folder)) == 0
        assert in_child(lambda: complete(folder)) == 0, (name, place, calls.names[place - 1])
        problem = wrong(folder, expected)
        assert not problem, (name, place, calls.names[place - 1], problem)
print(deaths, calls.names[:12])
"""


def killed(scratch: Path, most: int) -> int:
    """Return how often runs were killed while they were extended, and went on."""
    command = [sys.executable, "-c", DYING, str(scratch), str(most)]
    root = Path(__file__).parents[2]
    # In a process of its own: forked processes must have no other threads.
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[0])


@pytest.mark.slow
def test_a_process_may_die_at_any_moment(tmp_path: Path) -> None:
    assert killed(tmp_path, most=1) >= 8 + 2


@pytest.mark.slow
def test_a_process_may_die_at_every_call(tmp_path: Path) -> None:
    assert killed(tmp_path, most=10_000) >= 200
