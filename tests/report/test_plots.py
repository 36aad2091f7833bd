"""Pictures of a run."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest

from ebbflow.core.errors import EbbflowError
from ebbflow.report.plots import accuracy_picture
from ebbflow.runs.records import Round


def rounds(algorithms: int = 1, seeds: int = 1, sessions: int = 3) -> list[Round]:
    return [
        Round(f"algorithm {a}", method, seed, session, t, 10.0 * t + seed, 1.0, 0.1, 4, 4)
        for a in range(algorithms)
        for seed in range(seeds)
        for session in range(1, sessions + 1)
        for t in range(1, 5)
        for method in ("warm_start", "previous", "own_method")
    ]


def size(path: Path) -> tuple[int, int]:
    """Return width and height from a PNG's header."""
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", content[16:24])
    return int(width), int(height)


@pytest.mark.parametrize("algorithms", [1, 2])
@pytest.mark.parametrize("seeds", [1, 3])
def test_every_algorithm_has_a_panel(algorithms: int, seeds: int, tmp_path: Path) -> None:
    accuracy_picture(rounds(algorithms, seeds), tmp_path / "picture.png", "digits")
    assert size(tmp_path / "picture.png") == (1500, 600 * algorithms)


def test_a_single_session_is_drawn_too(tmp_path: Path) -> None:
    accuracy_picture(rounds(sessions=1), tmp_path / "picture.png", "digits")
    assert size(tmp_path / "picture.png") == (1500, 600)


def test_the_same_records_give_the_same_picture(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        accuracy_picture(rounds(seeds=2), tmp_path / name, "digits")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_without_matplotlib_the_error_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(EbbflowError, match=r"need matplotlib.*pip install matplotlib"):
        accuracy_picture(rounds(), tmp_path / "picture.png", "digits")
    assert not (tmp_path / "picture.png").exists()
