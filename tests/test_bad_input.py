"""Whatever is wrong with the input: one sentence, exit code 2, and nothing left behind."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

from ebbflow import experiment
from ebbflow.config.merge import Layers
from tests.callbacks import StopAfter, Stopped
from tests.test_cli import TINY, Answer, ebbflow, process, tree


def assert_refused(answer: Answer, *says: str) -> None:
    assert answer.code == 2, answer
    assert answer.out == ""
    assert answer.err.startswith("ebbflow: ")
    assert answer.err.count("\n") == 1
    assert answer.err.endswith("\n")
    assert "Traceback" not in answer.err
    for words in says:
        assert words in answer.err


def own_data(path: Path, seed: int = 0) -> None:
    draw = np.random.default_rng(seed)
    np.savez(
        path,
        x_train=draw.random((40, 3)),
        y_train=np.arange(40) % 4,
        x_test=draw.random((8, 3)),
        y_test=np.arange(8) % 4,
    )


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lay out the files that the cases name, and work there."""
    monkeypatch.chdir(tmp_path)
    for variable in ("EBBFLOW_DATA", "HOME", "XDG_CACHE_HOME"):
        (tmp_path / variable.lower()).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))
    own_data(tmp_path / "good.npz")
    whole = (tmp_path / "good.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "flipped.npz").write_bytes(whole[:200] + bytes([whole[200] ^ 255]) + whole[201:])
    (tmp_path / "random.npz").write_bytes(np.random.default_rng(0).bytes(1000))
    np.savez(tmp_path / "lacking.npz", x_train=np.zeros((4, 2)), y_train=np.zeros(4, int))
    objects: Any = np.array([{}, 1], dtype=object)
    np.savez(
        tmp_path / "objects.npz", x_train=objects, y_train=objects, x_test=objects, y_test=objects
    )
    for name, text in {
        "typo.toml": "[partition]\noverlapp = 0.2\n",
        "section.toml": "lr = 3\n",
        "preset.toml": 'preset = "dmo"\n',
        "broken.toml": "rounds = = 3\n",
        "event.csv": "time,device,event\n0,a,join\n1,b,jion\n",
        "twice.jsonl": '{"time": 0, "device": "a", "event": "join"}\n' * 2,
        "brief.csv": "time,device,event\n0,a,join\n1,b,join\n",
        "one.rates": "0.1\n",
        "words.rates": "0.1\nfast\n0.1\n",
        "negative.rates": "[0.1, -0.1, 0.1]\n",
    }.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "latin.toml").write_bytes(b'dataset = "caf\xe9"\n')
    return tmp_path


TRACE = "--set schedule.kind=trace --set schedule.file="

CASES: dict[str, tuple[str, Sequence[str]]] = {
    # keys
    "unknown key": (
        "--set partition.overlapp=0.2",
        ["partition.overlapp", "--set", "did you mean partition.overlap?"],
    ),
    "unknown key in a file": (
        "typo.toml",
        ["partition.overlapp", "typo.toml", "did you mean partition.overlap?"],
    ),
    "unknown key without a likeness": (
        "--set qqqqqqqq=1",
        ["qqqqqqqq", "--set", "docs/configuration.md"],
    ),
    "setting without equals sign": ("--set nonsense", ['--set "nonsense"', "form key=value"]),
    "setting without key": ("--set =3", ['--set "=3"', "form key=value"]),
    "section that is a number": ("section.toml", ["lr = 3", "section.toml", "should be"]),
    "number that is a section": ("--set rounds.x=3", ["rounds", "--set", "valid integer"]),
    # types
    "rounds in words": (
        "--rounds seven",
        ["--rounds 'seven'", "whole number", "as in --rounds 50"],
    ),
    "rounds as a date": ("--set rounds=2020-01-01", ["rounds", "2020-01-01", "valid integer"]),
    "a seed in letters": (
        "--seeds 1,x",
        ["--seeds '1,x'", "whole numbers", "as in --seeds 100,200"],
    ),
    "no seed": ("--seeds ''", ["--seeds ''", "whole numbers"]),
    "half a device": ("--devices 2.5", ["--devices '2.5'", "whole number", "as in --devices 20"]),
    # ranges
    "overlap above one": ("--overlap 1.5", ["1.5", "--overlap", "less than or equal to 1"]),
    "alpha zero": ("--alpha 0", ["partition.alpha = 0", "--alpha", "greater than 0"]),
    "alpha not a number": ("--alpha nan", ["NaN", "--alpha", "finite"]),
    "negative devices": ("--devices=-3", ["-3", "--devices", "greater than or equal to 1"]),
    "negative seed": ("--seeds=-1", ["-1", "--seeds", "greater than or equal to 0"]),
    "window zero": ("--window 0", ["window = 0", "--window", "greater than or equal to 1"]),
    "more than all take part": (
        "--set participation.share=1.5",
        ["participation.share = 1.5", "at most at 1"],
    ),
    "more devices than samples": (
        "--devices 5000",
        ["5000", "training samples", "lower `partition.devices`"],
    ),
    "more data than there is": ("--set data.limit_train=9999", ["9999", "limit_train", "1437"]),
    "steps in the wrong order": (
        "--set local.steps=[5,2]",
        ["local.steps = [5, 2]", "[fewest, most]"],
    ),
    "a seed twice": ("--seeds 1,1", ["seeds = [1, 1]", "name each one once"]),
    "a method twice": ("--methods average,average", ["methods", "average", "once"]),
    "more pilots than sessions": (
        "--pilot 9",
        ["pilot.sessions = 9", "sessions = 4", "lower pilot.sessions"],
    ),
    "keep the last of no number": (
        "--set history.keep=last",
        ['history.keep = "last"', "needs history.limit"],
    ),
    "keep what is unknown": (
        "--set history.keep=newest",
        ["newest", "--set", "'all', 'last' or 'diverse'"],
    ),
    # names
    "unknown dataset": ("--dataset mnits", ["mnits", "did you mean 'mnist'?"]),
    "unknown algorithm": ("--algorithm fedavgg", ["fedavgg", "algorithm", "did you mean fedavg?"]),
    "unknown method": ("--methods warmstart", ["warmstart", "methods", "mean warm_start?"]),
    "unknown partition": (
        "--partition dirichelt",
        ["dirichelt", "partition.kind", "mean dirichlet?"],
    ),
    "unknown model": ("--set model.kind=softmx", ["softmx", "model.kind", "did you mean softmax?"]),
    "unknown distance": (
        "--set parameters.warm_start.distance=per_tnsor",
        ["per_tnsor", "parameters.warm_start.distance", "did you mean per_tensor?"],
    ),
    "unknown preset": ("--preset dmo", ["dmo", "--preset", "did you mean demo?"]),
    "unknown preset in a file": ("preset.toml", ["dmo", "preset.toml", "did you mean demo?"]),
    "rates of an unknown algorithm": (
        "--set lr.algorithms.fedavgg.initial=0.1",
        ["fedavgg", "lr.algorithms", "fedavg"],
    ),
    # parameters of algorithms and models
    "unknown parameter": (
        "--algorithm fedprox --set parameters.fedprox.muu=1",
        ["parameters.fedprox", "'muu'", "did you mean mu?"],
    ),
    "a parameter of an algorithm that has none": (
        "--set parameters.fedavg.mu=1",
        ["parameters.fedavg.mu = 1", "fedavg has no parameters"],
    ),
    "parameters of an unknown algorithm": (
        "--set parameters.fedproxx.mu=1",
        ["parameters", "'fedproxx'", "did you mean fedprox?"],
    ),
    "a parameter in words": (
        "--algorithm fedprox --set parameters.fedprox.mu=strong",
        ["parameters.fedprox.mu = 'strong'", "valid number"],
    ),
    "a parameter that is true": (
        "--algorithm fedprox --set parameters.fedprox.mu=true",
        ["parameters.fedprox.mu = True", "valid number"],
    ),
    "a parameter that is a list": (
        "--algorithm fedprox --set parameters.fedprox.mu=[1]",
        ["parameters.fedprox.mu = [1]", "valid number"],
    ),
    "an option that does not exist": (
        "--algorithm scaffold --set parameters.scaffold.option=3",
        ["parameters.scaffold.option = 3", "1 or 2"],
    ),
    "half a hidden unit": (
        "--set model.kind=mlp --set parameters.mlp.hidden=1.5",
        ["parameters.mlp.hidden = 1.5", "valid integer"],
    ),
    "parameters that are a number": (
        "--set parameters.fedprox=1",
        ["parameters.fedprox = 1", "--set"],
    ),
    "an unknown target of distillation": (
        "--methods continuous --set parameters.continuous.target=studnet",
        ["parameters.continuous.target", "studnet", "'teacher' or 'mixed'"],
    ),
    "an unknown boundary": ("--set boundary.state=kept", ["kept", "'reset' or 'keep'"]),
    # values that an algorithm divides by, or that are no numbers at all
    "FedDyn without alpha": (
        "--algorithm feddyn --set parameters.feddyn.alpha=0",
        ["parameters.feddyn.alpha"],
    ),
    "MOON without a temperature": (
        "--algorithm moon --set parameters.moon.tau=0",
        ["parameters.moon.tau"],
    ),
    "FedProx with no number": (
        "--algorithm fedprox --set parameters.fedprox.mu=nan",
        ["parameters.fedprox.mu"],
    ),
    # data
    "data that was never downloaded": (
        "--dataset mnist",
        ["mnist", "ebbflow_data", "`ebbflow data get mnist`", "set EBBFLOW_DATA"],
    ),
    "no such npz": ("--dataset nosuch.npz", ["nosuch.npz", "does not exist", "give the path"]),
    "npz of random bytes": ("--dataset random.npz", ["random.npz", "write it again"]),
    "npz cut short": ("--dataset cut.npz", ["cut.npz", "write it again"]),
    "npz with a wrong byte": ("--dataset flipped.npz", ["flipped.npz", "x_train", "write it"]),
    "npz that lacks a key": (
        "--dataset lacking.npz",
        ["lacking.npz", "x_test, y_test", "numpy.savez"],
    ),
    "npz of pickled objects": (
        "--dataset objects.npz",
        ["objects.npz", "x_train", "never loaded", "save it"],
    ),
    # configuration files
    "no such file": ("nosuch.toml", ["nosuch.toml", "check the path"]),
    "not TOML": ("broken.toml", ["broken.toml", "not valid TOML", "line 1"]),
    "not UTF-8": ("latin.toml", ["latin.toml", "not valid TOML"]),
    "a folder for a file": ("home", ["home", "Is a directory", "check the path"]),
    # rates
    "no rates": ("--set lr.file=no.rates", ["lr.file", "no.rates", "check the path"]),
    "too few rates": ("--set lr.file=one.rates", ["lr.file", "one.rates", "add rates"]),
    "rates in words": ("--set lr.file=words.rates", ["lr.file", "words.rates", "one rate per"]),
    "negative rates": ("--set lr.file=negative.rates", ["lr.file", "negative.rates", "positive"]),
    # machine
    "no such GPU": ("--set device=cuda", ['device = "cuda"', 'use device = "cpu"']),
    "no such device": ("--set device=foo", ['device = "foo"', "use cpu"]),
    "a device that cannot compute": ("--set device=meta", ['device = "meta"', "cpu"]),
    "a device that is not here": ("--set device=mps", ['device = "mps"', "cpu"]),
    # command line
    "unknown option": ("--nosuch", ["--nosuch"]),
    "option without value": ("--rounds", ["--rounds"]),
}


@pytest.mark.parametrize(("arguments", "says"), CASES.values(), ids=list(CASES))
def test_one_sentence_says_what_where_and_what_to_do(
    desk: Path, arguments: str, says: Sequence[str]
) -> None:
    answer = ebbflow("compare", *TINY, "--out", "out", *shlex.split(arguments))
    assert_refused(answer, *says)
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("nosuch.csv", ["nosuch.csv", "`schedule.file`"]),
        ("event.csv", ["event.csv, line 3", "'jion'", "write 'join' or 'leave'"]),
        ("twice.jsonl", ["twice.jsonl, line 2", "'a'", "add the leave"]),
        ("brief.csv", ["2 sessions where 7", "lower `sessions`", "`schedule.file`"]),
    ],
)
def test_a_trace_that_cannot_be_used(desk: Path, file: str, says: Sequence[str]) -> None:
    settings = shlex.split(TRACE + file)
    assert_refused(ebbflow("compare", "--out", "out", *settings), *says)
    assert not Path("out").exists()


def test_a_trace_without_a_file_and_a_file_without_a_trace(desk: Path) -> None:
    answer = ebbflow("compare", "--out", "out", "--set", "schedule.kind=trace")
    assert_refused(answer, 'schedule.kind = "trace"', "needs schedule.file")
    answer = ebbflow("compare", "--out", "out", "--set", "schedule.file=brief.csv")
    assert_refused(answer, "brief.csv", 'schedule.kind = "trace"', "leave the file out")
    assert not Path("out").exists()


def test_a_long_value_makes_no_long_sentence(desk: Path) -> None:
    (desk / "wide.csv").write_text("x" * 5000)
    answer = ebbflow("compare", "--out", "out", *shlex.split(TRACE + "wide.csv"))
    assert_refused(answer, "wide.csv, line 1", " ... ", "let it read 'time,device,event'")
    assert len(answer.err) < 1000


def test_a_data_folder_that_is_a_file(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EBBFLOW_DATA", str(desk / "typo.toml"))
    answer = ebbflow("compare", *TINY, "--dataset", "mnist", "--out", "out")
    assert_refused(answer, "EBBFLOW_DATA", "typo.toml", "unset it")
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("out", "says"),
    [
        ("typo.toml", ["typo.toml", "choose another --out"]),
        (".", ["not an empty folder", "choose another --out"]),
        ("typo.toml/below", ["typo.toml/below", "choose another --out"]),
        ("/proc/nonexistent/x", ["/proc/nonexistent/x", "choose another --out"]),
        ("held", ["held already holds a run", "`ebbflow resume held`", "another --out"]),
    ],
)
def test_an_out_that_cannot_be_used_stays_as_it_is(
    desk: Path, out: str, says: Sequence[str]
) -> None:
    Path("held").mkdir()
    Path("held/config.toml").touch()
    before = tree(desk)
    assert_refused(ebbflow("compare", *TINY, "--out", out), *says)
    assert tree(desk) == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("nosuch", ["nosuch"]),
        ("data nosuch", ["nosuch"]),
        ("resume", ["DIR"]),
        ("resume home", ["home", "holds no ebbflow run", "check the path"]),
        ("resume nosuch", ["nosuch", "holds no ebbflow run", "check the path"]),
        ("history ls home", ["home", "holds no ebbflow run", "check the path"]),
        ("history show home 1", ["home", "holds no ebbflow run", "check the path"]),
        ("history show home one", ["one", "whole number"]),
        ("presets show dmo", ["dmo", "did you mean demo?"]),
        ("data get mnits", ["mnits", "did you mean 'mnist'?"]),
        ("data verify mnits", ["mnits", "did you mean 'mnist'?"]),
        ("data get mnist --from ftp://x", ["ftp://x", "https://"]),
    ],
)
def test_other_commands_refuse_in_one_sentence_too(
    desk: Path, arguments: str, says: Sequence[str]
) -> None:
    assert_refused(ebbflow(*arguments.split()), *says)


def test_verifying_what_is_not_here_says_how_to_get_it(desk: Path) -> None:
    answer = ebbflow("data", "verify", "mnist")
    assert answer.out.count("missing") == 4
    assert (answer.code, answer.err) == (1, "mnist is not intact: run `ebbflow data get mnist`\n")


@pytest.mark.parametrize(
    "settings",
    ["lr.initial=3e38", "lr.initial=1e30 model.kind=mlp", "lr.initial=1e39", "lr.initial=1e300"],
)
@pytest.mark.parametrize("engine", ["vectorised", "sequential"])
def test_training_that_diverges_names_session_round_device_and_step(
    desk: Path, settings: str, engine: str
) -> None:
    pairs = [word for setting in settings.split() for word in ("--set", setting)]
    answer = ebbflow("compare", *TINY, "--out", "out", "--set", f"engine.kind={engine}", *pairs)
    assert_refused(answer, "lr.initial")
    if "1e39" not in settings and "1e300" not in settings:  # beyond float32 from the start
        assert_refused(answer, "session 1, round 1, device 0, step ", "lower lr.initial")


def test_real_processes_say_one_sentence_too(desk: Path) -> None:
    for arguments, words in (
        (["compare", *TINY, "--out", "out", "--dataset", "random.npz"], "random.npz"),
        (["compare", *TINY, "--out", "out", "--nosuch"], "--nosuch"),
        (["resume", "home"], "holds no ebbflow run"),
    ):
        done = process(*arguments)
        assert_refused(Answer(done.returncode, done.stdout, done.stderr), words)
    assert not Path("out").exists()


# --- runs that cannot be resumed -----------------------------------------------------------------


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run that was stopped in its fourth session, and its data."""
    folder = tmp_path_factory.mktemp("half")
    own_data(folder / "good.npz")
    layers = Layers()
    settings = {"seeds": [1, 2], "sessions": 4, "rounds": 3, "partition": {"devices": 4}}
    layers.add({**settings, "dataset": "good.npz", "checkpoint": {"seconds": 1e-6}}, "test")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        patch.chdir(folder)
        experiment.run(layers.config(), Path("run"), callbacks=[StopAfter(11)])
    return folder


@pytest.fixture
def stopped(half: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(half, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return Path("run")


def _flip(run: Path, pattern: str) -> None:
    path = next(run.glob(pattern))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def _each(run: Path, pattern: str, change: Callable[[Path], object]) -> None:
    paths = list(run.glob(pattern))
    assert len(paths) == 2
    for path in paths:
        change(path)


ENTRY = "history/*/warm_start/*/session-0002.safetensors"
MANIFEST = "history/*/warm_start/*/manifest.json"

DAMAGES: dict[str, tuple[Callable[[Path], object], Sequence[str]]] = {
    "both checkpoints changed": (
        lambda run: _each(run, "checkpoint-*.safetensors", lambda path: _flip(run, path.name)),
        ["run/checkpoint-0000", "checksum", "start a new run"],
    ),
    "both checkpoints missing": (
        lambda run: _each(run, "checkpoint-*.safetensors", Path.unlink),
        ["run/checkpoint-0000", "missing", "start a new run"],
    ),
    "both checkpoints cut short": (
        lambda run: _each(run, "checkpoint-*.json", lambda path: os.truncate(path, 30)),
        ["run/checkpoint-0000", "start a new run"],
    ),
    "history entry changed": (
        lambda run: _flip(run, ENTRY),
        ["session-0002.safetensors", "checksum", "restore the file"],
    ),
    "history entry missing": (
        lambda run: next(run.glob(ENTRY)).unlink(),
        ["session-0002.safetensors", "missing", "restore the file"],
    ),
    "manifest cut short": (
        lambda run: os.truncate(next(run.glob(MANIFEST)), 30),
        ["warm_start/seed-1/manifest.json", "restore the file"],
    ),
    "metrics cut short": (
        lambda run: os.truncate(run / "metrics.jsonl", 100),
        ["run/metrics.jsonl", "shorter", "restore the file"],
    ),
    "metrics missing": (
        lambda run: (run / "metrics.jsonl").unlink(),
        ["run/metrics.jsonl", "restore the file"],
    ),
    "events missing": (
        lambda run: (run / "events.jsonl").unlink(),
        ["run/events.jsonl", "restore the file"],
    ),
    "environment without a digest": (
        lambda run: (run / "environment.json").write_text("{}"),
        ["run/environment.json"],
    ),
    "configuration with other seeds": (
        lambda run: _replace(run / "config.toml", "    1,\n    2,\n", "    3,\n"),
        ["run", "seed"],
    ),
    "configuration with fewer methods": (
        lambda run: _replace(run / "config.toml", '    "average",\n', ""),
        ["run", "method"],
    ),
    "configuration with methods in another order": (
        lambda run: _replace(
            run / "config.toml",
            '    "previous",\n    "average",\n',
            '    "average",\n    "previous",\n',
        ),
        ["run", "method"],
    ),
    "configuration is not TOML": (
        lambda run: (run / "config.toml").write_text("="),
        ["run/config.toml", "not valid TOML"],
    ),
    "data changed": (
        lambda run: own_data(Path("good.npz"), seed=1),
        ["data set good", "run", "restore the data"],
    ),
    "data missing": (
        lambda run: Path("good.npz").unlink(),
        ["good.npz", "does not exist", "give the path"],
    ),
}


@pytest.mark.parametrize(("damage", "says"), DAMAGES.values(), ids=list(DAMAGES))
def test_a_run_that_was_damaged_is_not_resumed(
    stopped: Path, damage: Callable[[Path], object], says: Sequence[str]
) -> None:
    damage(stopped)
    assert_refused(ebbflow("resume", "run"), *says)


def test_a_line_of_the_metrics_that_is_no_json_is_named(stopped: Path) -> None:
    content = (stopped / "metrics.jsonl").read_bytes()
    (stopped / "metrics.jsonl").write_bytes(b"#" + content[1:])
    answer = ebbflow("resume", "run")
    assert answer.code == 2
    assert "run/metrics.jsonl" in answer.err.splitlines()[-1]


def test_a_run_that_another_process_writes_is_left_alone(stopped: Path) -> None:
    before = tree(stopped)
    with FileLock(stopped / ".lock"):
        answer = ebbflow("resume", "run")
    assert_refused(answer, "another process is writing to run", "wait for it")
    assert tree(stopped) == before


def test_an_undamaged_run_is_resumed(stopped: Path) -> None:
    answer = ebbflow("resume", "run", "--json")
    assert answer.code == 0
    assert len(json.loads(answer.out)["rows"]) == 2 * 4 * 4  # seeds, methods, sessions


def test_a_session_or_method_that_is_not_kept(stopped: Path) -> None:
    answer = ebbflow("history", "show", "run", "99")
    assert_refused(answer, "session 99", "`ebbflow history ls run`")
    answer = ebbflow("history", "show", "run", "2", "--method", "nosuch")
    assert_refused(answer, "run", "session 2", "`ebbflow history ls run`")


def test_a_manifest_without_files_is_named(stopped: Path) -> None:
    next(stopped.glob(MANIFEST)).write_text("{}")
    assert_refused(ebbflow("history", "ls", "run"), "warm_start/seed-1/manifest.json")
