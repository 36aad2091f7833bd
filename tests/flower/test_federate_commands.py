"""What the commands of a federation refuse before anything is made or started."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "ebbflow[flower]"')

from ebbflow.cli import federate_runs
from ebbflow.core.errors import EbbflowError
from ebbflow.flower.launch import launcher
from ebbflow.flower.launch.launcher import Federation
from tests.test_cli import ebbflow


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--sessions", "0", "--sessions 0 is too small: write at least 1"),
        ("--rounds", "0", "--rounds 0 is too small: write at least 1"),
        ("--start", "learnt", "--start: there is no start 'learnt': did you mean learned?"),
        ("--start", "continuous", 'start = "continuous" changes how devices train'),
        ("--algorithm", "scafold", "--algorithm: there is no algorithm 'scafold'"),
    ],
)
def test_a_demo_that_cannot_be_is_refused_at_once(
    tmp_path: Path, option: str, value: str, sentence: str
) -> None:
    answer = ebbflow("federate", "demo", "--out", str(tmp_path / "f"), option, value)
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert sentence in answer.err
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize(
    ("error", "stays"), [(EbbflowError("the app ended early"), True), (KeyboardInterrupt(), False)]
)
def test_of_a_demo_that_fails_everything_stays_to_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, stays: bool
) -> None:
    def up(federation: Federation) -> None:
        (federation.folder.path / "logs").mkdir()
        raise error

    monkeypatch.setattr(launcher, "taken_up", up)
    monkeypatch.setattr(federate_runs, "_say", lambda sentence: None)
    answer = ebbflow("federate", "demo", "--out", str(tmp_path / "f"))
    assert answer.code == (2 if stays else 130)
    assert (tmp_path / "f" / "logs").is_dir() == (tmp_path / "f").exists() == stays


@pytest.mark.parametrize("server", ["fl.example.org", "fl.example.org:", "::1:8443", "h:99999"])
def test_a_server_without_a_port_is_refused(tmp_path: Path, server: str) -> None:
    (tmp_path / "ward3").mkdir()
    answer = ebbflow("federate", "node", str(tmp_path / "ward3"), "3", "--server", server)
    assert answer.code == 2
    assert f"--server {server!r} is no address: give a host and a port" in answer.err
    assert not any((tmp_path / "ward3").iterdir())
