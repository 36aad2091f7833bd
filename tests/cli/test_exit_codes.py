"""Exit codes: what a script may rely on. Those of signals are in tests/runs/test_stopping.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbflow.analysis import installation
from ebbflow.analysis.installation import HealthCheck
from ebbflow.data import download, local_files
from ebbflow.data.local_files import FileCheck
from tests.test_cli import TINY, ebbflow


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("codes") / "run"
    assert ebbflow("run", *TINY, "--quiet", "--out", str(folder)).code == 0
    return folder


def test_zero_is_done(run: Path) -> None:
    for words in (("metrics",), ("verify",), ("repair",), ("resume",), ("history", "ls")):
        assert ebbflow(*words, str(run)).code == 0
    assert ebbflow("presets").code == ebbflow("--version").code == ebbflow().code == 0


def test_one_is_something_found_wrong(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = run / "history" / "fedavg" / "learned" / "seed-1" / "session-0003.safetensors"
    content = history.read_bytes()
    history.write_bytes(b"rubbish")
    assert ebbflow("verify", str(run)).code == 1
    assert ebbflow("repair", str(run)).code in (0, 1)
    history.write_bytes(content)
    broken = HealthCheck("torch", "broken", "cannot be imported", {})
    monkeypatch.setattr(installation, "check_installation", lambda: [broken])
    assert ebbflow("doctor").code == 1
    damaged = FileCheck("digits.npz", Path("digits.npz"), "wrong checksum")
    for module in (download, local_files):
        monkeypatch.setattr(module, "verify", lambda name: [damaged])
    answer = ebbflow("data", "verify", "digits")
    assert (answer.code, answer.err.count("\n")) == (1, 1)


@pytest.mark.parametrize(
    "words",
    ["nosuch", "compare --nosuch", "compare --overlap 2", "metrics nowhere", "resume"],
)
def test_two_is_a_mistake_in_one_sentence(words: str) -> None:
    answer = ebbflow(*words.split())
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("ebbflow: ")
    assert answer.err.count("\n") == 1
