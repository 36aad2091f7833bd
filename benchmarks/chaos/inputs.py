"""Whatever a user may hand over: configurations, data, traces, weights, and bytes without sense.

A case is a kind and a number, from which it is made again at any time; those that have found
something are kept in corpus.json as well, in a form that does not depend on how cases are made.
Every case goes through a command: it is told in a sentence what is wrong, or what was asked for is
planned, and for some of the cases also begun. There is no third way: no traceback, no other exit
code, no hang, no more than a gigabyte of memory.
"""

from __future__ import annotations

import base64
import json
import os
import random
import shutil
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from safetensors.torch import save_file

from benchmarks.chaos import made_configurations, made_files, made_own_data
from benchmarks.chaos.damage import READING, Answer, answered
from benchmarks.chaos.hostile import harmful_characters
from benchmarks.chaos.kinds import run_to_the_end
from benchmarks.chaos.limits import HANG, forget_peak, in_processes, limited, peak_memory
from ebbflow import experiment
from ebbflow.core.errors import RunStoppedError
from ebbflow.data.local_files import ENVIRONMENT

CORPUS = Path(__file__).parent / "corpus.json"
"""The cases that have found something: what it was, the command, and its files."""

KEPT = "once found something"

SECONDS = 5
MEMORY = 10**9
ALLOCATED = MEMORY + 2**29
"""What a process may allocate: more than it may use, so that using too much is seen."""
LONGEST = 1000
"""Characters that a sentence may have."""
BATCH = 50

PLANNED, BEGUN, DONE = "planned", "begun", "done"
"""How far a run goes that is accepted: to its plan, one round, or to the end."""

Command = tuple[str, ...]


class Request(NamedTuple):
    """Commands, one after another, and how far a run goes; their files lie where they are run."""

    commands: tuple[Command, ...]
    depth: str = PLANNED


class Ending(NamedTuple):
    """What became of a case: told, accepted, or whatever else, with its time and memory."""

    kind: str
    number: int
    verdict: str
    seconds: float = 0.0
    memory: int = 0


TOLD, ACCEPTED = "told", "accepted"


class Tried(NamedTuple):
    """What became of all cases of a kind."""

    kind: str
    trials: int
    told: int
    accepted: int
    wrong: tuple[str, ...]
    slowest: float
    memory: int


# --- the cases -----------------------------------------------------------------------------------


def _compare(config: str, **settings: str) -> Command:
    """Return the command for a file, or for the short run without one and some settings."""
    pairs = [(key.replace("__", "."), value) for key, value in settings.items()]
    return "compare", config, "--out", "out", *(w for k, v in pairs for w in ("--set", f"{k}={v}"))


def _configuration(draw: random.Random, number: int) -> Request:
    if number % 50 == 49:
        Path("case.toml").write_text(made_configurations.cell(draw), encoding="utf-8")
        return Request((_compare("case.toml"), ("cost", "out"), ("metrics", "out")), DONE)
    if number % 10 == 7:
        words = made_configurations.settings(draw)
        return Request((("compare", "--out", "out", *words),))
    text = made_configurations.configuration(draw)
    Path("case.toml").write_text(text, encoding="utf-8", newline="")
    if number % 50 == 24:
        return Request((("data", "show", "case.toml", "--picture", "case.png"),))
    return Request((_compare("case.toml"),), BEGUN if number % 5 == 0 else PLANNED)


def _bytes(draw: random.Random, number: int) -> Request:
    content = made_files.random_bytes(draw)
    roles: dict[str, Callable[[str], Command]] = {
        "case.toml": _compare,
        "case.npz": lambda name: _compare("tiny.toml", dataset=name),
        "case.csv": lambda name: _compare("trace.toml", schedule__file=name),
        "case.jsonl": lambda name: _compare("trace.toml", schedule__file=name),
        "case.safetensors": lambda name: _compare("tiny.toml", model__weights=name),
        "case.rates": lambda name: _compare("tiny.toml", lr__file=name),
    }
    role = draw.choice([*roles, "run", "run", "run"])
    if role != "run":
        Path(role).write_bytes(content)
        return Request((roles[role](role),))
    shutil.copytree("finished", "run")
    files = sorted(path for path in Path("run").rglob("*") if path.is_file())
    command = draw.choice((*READING, ("resume",), ("repair",), ("bound",)))
    # Repairing tries every bit of a file, and takes as long by right as there are many.
    size = 4000 if command == ("repair",) else len(content)
    draw.choice(files).write_bytes(content[:size])
    more = ("4",) if command == ("history", "show") else ()
    return Request(((*command, "run", *more),), DONE)


IDX = {
    "train-images-idx3-ubyte": (60_000, 28, 28),
    "train-labels-idx1-ubyte": (60_000,),
    "t10k-images-idx3-ubyte": (10_000, 28, 28),
    "t10k-labels-idx1-ubyte": (10_000,),
}
ARCHIVES = (
    ("svhn", ("svhn/train_32x32.mat", "svhn/test_32x32.mat")),
    ("svhn", ("svhn_subset.npz",)),
    ("cifar10", ("cifar-10/cifar-10-binary.tar.gz",)),
    ("cifar10", ("cifar10_subset.npz",)),
    ("cifar100", ("cifar100_subset.npz",)),
    ("tinyimagenet", ("tiny-imagenet/tiny-imagenet-200.zip",)),
    ("tinyimagenet", ("tinyimagenet_subset.zip",)),
    ("agnews", ("ag_news/train.csv", "ag_news/test.csv", "bert-base-uncased/vocab.txt")),
)


def _data(draw: random.Random, number: int) -> Request:
    if number % 10 < 7:
        Path("case.npz").write_bytes(made_files.npz(draw))
        depth = BEGUN if draw.random() < 0.5 else PLANNED
        model = draw.choice(("softmax", "softmax", "mlp", "cnn", "embedding"))
        return Request((_compare("own.toml", dataset="case.npz", model__kind=model),), depth)
    verify = draw.random() < 0.2
    if number % 10 < 9:
        name, folder = draw.choice((("mnist", "mnist"), ("fmnist", "fashion-mnist")))
        contents = {
            f"{folder}/{file}{draw.choice(('', '.gz'))}": made_files.idx(
                draw, shape, bombs=not verify
            )
            for file, shape in IDX.items()
        }
    else:
        name, files = draw.choice(ARCHIVES)
        npz = any(file.endswith(".npz") for file in files)
        contents = {
            file: made_files.npz(draw) if npz else made_files.random_bytes(draw) for file in files
        }
    for file, content in contents.items():
        path = Path("data", file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return Request((("data", "verify", name) if verify else _compare("tiny.toml", dataset=name),))


def _trace(draw: random.Random, number: int) -> Request:
    name, content = made_files.trace(draw)
    Path(name).write_bytes(content)
    cut = draw.choice(("interval", "change"))
    settings = {"schedule__cut": cut, "sessions": draw.choice(("1", "2", "5"))}
    if draw.random() < 0.3:
        settings["schedule__round_time"] = draw.choice(("1.0", "1e-9", "1e9", "5e-324"))
    if draw.random() < 0.3:
        settings["schedule__interval"] = draw.choice(("0.1", "5.0", "1e-12", "1e300", "5e-324"))
    return Request((_compare("trace.toml", schedule__file=name, **settings),))


def _weights(draw: random.Random, number: int) -> Request:
    models = {
        "softmax": made_files.TENSORS,
        "mlp": {"hidden.weight": (200, 64), "hidden.bias": (200,), "head.weight": (10, 200)}
        | {"head.bias": (10,)},
    }
    model = draw.choice(list(models))
    Path("case.safetensors").write_bytes(made_files.weights(draw, models[model]))
    depth = BEGUN if draw.random() < 0.3 else PLANNED
    settings = {"model__kind": model, "model__weights": "case.safetensors"}
    return Request((_compare("tiny.toml", **settings),), depth)


def _own_data(draw: random.Random, number: int) -> Request:
    depth = BEGUN if draw.random() < 0.5 else PLANNED
    if number % 4 == 3:
        for split in ("train", "test"):
            path = Path("case", split, "all_data_0.json")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(made_own_data.by_user(draw))
        return Request((_compare("natural.toml", dataset="case"),), depth)
    Path("case.csv").write_bytes(made_own_data.table(draw))
    settings = {"data__label": draw.choice(made_own_data.LABELS)}
    settings["task"] = draw.choice(made_own_data.TASKS)
    settings["data__test_split"] = draw.choice(("0.2", "0.5", "0.001"))
    if draw.random() < 0.6:
        settings["data__device"] = draw.choice(("ward", "ward", "outcome", "nothing"))
    return Request((_compare("natural.toml", dataset="case.csv", **settings),), depth)


def kept_cases() -> list[dict[str, Any]]:
    """Return the cases that have found something."""
    kept: list[dict[str, Any]] = json.loads(CORPUS.read_text(encoding="utf-8"))
    return kept


def _kept(draw: random.Random, number: int) -> Request:
    case = kept_cases()[number]
    for name, text in case.get("texts", {}).items():
        Path(name).write_text(text, encoding="utf-8")
    for name, packed in case.get("packed", {}).items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(zlib.decompress(base64.b64decode(packed)))
    return Request((tuple(case["command"]),), BEGUN)


KINDS: dict[str, tuple[int, Callable[[random.Random, int], Request]]] = {
    "configurations": (5000, _configuration),
    "random bytes": (500, _bytes),
    "data files": (500, _data),
    "traces": (500, _trace),
    "weights": (200, _weights),
    "own data": (500, _own_data),
    KEPT: (len(kept_cases()), _kept),
}
"""How many cases there are of each kind, and how one is made in the folder where it is tried."""


def desk(folder: Path) -> Path:
    """Lay out the files that cases refer to."""
    shutil.rmtree(folder, ignore_errors=True)
    kept = folder / "kept"
    kept.mkdir(parents=True)
    tiny = "".join(f"{key} = {value}\n" for key, value in made_configurations.TINY)
    apart = "".join(line for line in tiny.splitlines(True) if "devices" not in line)
    (kept / "tiny.toml").write_text(tiny, encoding="utf-8")
    (kept / "own.toml").write_text(tiny.replace("data.limit_train = 300\n", ""), encoding="utf-8")
    (kept / "natural.toml").write_text(
        apart.replace("data.limit_train = 300\n", ""), encoding="utf-8"
    )
    (kept / "trace.toml").write_text(f'{apart}schedule.kind = "trace"\n', encoding="utf-8")
    np.savez(kept / "own.npz", **made_files.own_arrays())  # type: ignore[arg-type]
    (kept / "own.rates").write_text("0.1\n" * 5, encoding="utf-8")
    rows = [f"{time},d{time % 7},{'leave' if time % 14 > 6 else 'join'}" for time in range(40)]
    (kept / "own.csv").write_text("\n".join(["time,device,event", *rows]), encoding="utf-8")
    lines = [dict(zip(("time", "device", "event"), row.split(","), strict=True)) for row in rows]
    (kept / "own.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    tensors = {name: torch.zeros(shape) for name, shape in made_files.TENSORS.items()}
    save_file(tensors, kept / "own.safetensors")
    os.mkfifo(kept / "fifo")
    run_to_the_end("learned start", kept / "finished")
    return folder


# --- trying them ---------------------------------------------------------------------------------


def attempt(folder: Path, kind: str, number: int) -> Ending:
    """Make a case, hand it over, and say what became of it."""
    draw = random.Random(f"{kind} {number}")
    here = folder / "here"
    shutil.rmtree(here, ignore_errors=True)
    shutil.copytree(folder / "kept", here, copy_function=_linked)
    (here / "data").mkdir()
    with chdir(here), mock.patch.dict(os.environ, {ENVIRONMENT: str(here / "data")}):
        request = KINDS[kind][1](draw, number)
        forget_peak()
        began = time.monotonic()
        verdict = _verdict(request)
        seconds = time.monotonic() - began
        memory = peak_memory()
        if Path(made_files.PICKLE_RAN).exists():
            verdict = made_files.PICKLE_RAN
    if seconds > SECONDS and verdict in (TOLD, ACCEPTED):
        verdict = f"{seconds:.0f} seconds"
    if memory > MEMORY and verdict in (TOLD, ACCEPTED):
        verdict = f"{memory / 1e6:.0f} MB"
    return Ending(kind, number, verdict, seconds, memory)


def _linked(source: str, target: str) -> None:
    """Put a file where it is needed, without copying it: nothing changes one in place."""
    os.link(source, target)


def _verdict(request: Request) -> str:
    verdict = ACCEPTED
    for command in request.commands:
        with limited(SECONDS + 1), _until(request.depth):
            answer = answered(command)
        verdict = judged(answer, command[0])
        if verdict != ACCEPTED:
            break
    return verdict


def judged(answer: Answer, command: str) -> str:
    """Return what an answer is: told, accepted, or what is wrong with it."""
    if answer.crash:
        return "a hang" if HANG in answer.crash else answer.crash.strip().splitlines()[-1][:300]
    told = answer.err.splitlines()
    if fault := _fault(answer, told):
        return fault
    if answer.code == 2 or (answer.code == 1 and command in ("verify", "repair")):
        return TOLD
    return ACCEPTED if answer.code in (0, _STOPPED) else f"exit code {answer.code}"


def _fault(answer: Answer, told: Sequence[str]) -> str:
    """Return what is wrong with the text of an answer, or nothing."""
    if odd := harmful_characters(answer.out + answer.err):
        return f"control characters {odd}"
    if strange := [line for line in told if not line.startswith(_SAID)]:
        return f"printed {strange[0][:300]!r}"
    if answer.code == 2 and not (told and told[-1].startswith("ebbflow: ")):
        return "exit code 2 without a sentence"
    longest = max(map(len, told), default=0)
    return f"a sentence of {longest} characters" if longest > LONGEST else ""


_STOPPED = 130
_SAID = ("ebbflow: ", "note", "warning", "stopped: ", "stopped before ", "seed ")
"""How a line on standard error begins."""


@contextmanager
def _until(depth: str) -> Iterator[None]:
    """Let runs stop once they are planned, or after their first round."""
    whole = experiment._run_in_folder

    def planned(config: Any, folder: Any, *others: Any) -> Any:
        folder.close()
        raise RunStoppedError

    def begun(config: Any, folder: Any, data: Any, callbacks: Any, stop: Any, kind: Any) -> Any:
        return whole(config, folder, data, callbacks, lambda: True, kind)

    replaced = {PLANNED: planned, BEGUN: begun, DONE: whole}[depth]
    with mock.patch.object(experiment, "_run_in_folder", replaced):
        yield


def _warm_up(folder: Path) -> None:
    """Import what the commands import, so that no case pays for it."""
    with chdir(folder / "kept"):
        for model in ("softmax", "mlp"):
            answered(_compare("tiny.toml", model__kind=model))
            answered(("cost", "out"))
            shutil.rmtree("out")
        answered(("data", "show", "tiny.toml", "--picture", "warm.png"))


def attempts(folder: Path, cases: Sequence[tuple[str, int]]) -> list[Ending]:
    """Try cases in forked processes of which none may take more than its share."""
    desk(folder)
    _warm_up(folder)

    def work(case: tuple[str, int]) -> Ending:
        return attempt(folder, *case)

    made = in_processes(cases, work, batch=BATCH, memory=ALLOCATED, seconds=3 * SECONDS)
    return [
        Ending(*case, "the process died or could not be interrupted")
        if result is None
        else Ending(*result)
        for case, result in zip(cases, made, strict=True)
    ]


def try_all(folder: Path, part: int = 1) -> list[Tried]:
    """Try every so-manieth case of every kind, and all that once found something."""
    cases = [
        (kind, number)
        for kind, (count, _) in KINDS.items()
        for number in range(0, count, 1 if kind == KEPT else part)
    ]
    endings = attempts(folder, cases)
    return [_together(kind, [e for e in endings if e.kind == kind]) for kind in KINDS]


def _together(kind: str, endings: Sequence[Ending]) -> Tried:
    counts = Counter(ending.verdict for ending in endings)
    wrong = [e for e in endings if e.verdict not in (TOLD, ACCEPTED)]
    return Tried(
        kind,
        len(endings),
        counts[TOLD],
        counts[ACCEPTED],
        tuple(f"{e.kind} {e.number}: {e.verdict}" for e in wrong),
        max(ending.seconds for ending in endings),
        max(ending.memory for ending in endings),
    )
