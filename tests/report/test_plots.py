"""The picture of a run."""

from __future__ import annotations

import struct
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.colors import to_hex

from ebbflow.analysis.views.run_view import RunView
from ebbflow.analysis.views.stretches import spans
from ebbflow.core.errors import EbbflowError
from ebbflow.report.plots import accuracy_figure, accuracy_picture
from ebbflow.runs.records import Round
from tests.configs import with_settings
from tests.report.drawn_lines import curves_in, xs
from tests.report.run_views import comparison

ALGORITHMS = ("fedavg", "fedprox")
METHODS = ("warm_start", "previous", "average")


def view(algorithms: int = 1, seeds: int = 1, sessions: int = 3) -> RunView:
    """Return rounds without any event, as runs of the first versions have them."""
    names = ALGORITHMS[:algorithms]
    rounds = [
        Round(algorithm, method, seed, session, t, 10.0 * t + seed + place, 1.0, 0.1, 4, 4)
        for algorithm in names
        for seed in range(seeds)
        for session in range(1, sessions + 1)
        for t in range(1, 5)
        for place, method in enumerate(METHODS)
    ]
    config = with_settings(
        f"algorithm={list(names)}", f"methods={list(METHODS)}", f"seeds={list(range(seeds))}"
    )
    return RunView("digits", config, rounds, [])


def size(path: Path) -> tuple[int, int]:
    """Return width and height from a PNG's header."""
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", content[16:24])
    return int(width), int(height)


@pytest.mark.parametrize("algorithms", [1, 2])
@pytest.mark.parametrize("seeds", [1, 3])
def test_every_algorithm_has_a_panel(algorithms: int, seeds: int, tmp_path: Path) -> None:
    figure = accuracy_figure(view(algorithms, seeds))
    accuracy_picture(view(algorithms, seeds), tmp_path / "picture.png")
    titles = [part.get_suptitle() for part in figure.subfigs]
    assert titles == [
        f"digits: accuracy on each session's own test samples ({name})"
        for name in ALGORITHMS[:algorithms]
    ]
    width, height = size(tmp_path / "picture.png")
    assert width == 1500
    assert 550 * algorithms < height < 750 * algorithms


def test_a_single_session_is_drawn_too(tmp_path: Path) -> None:
    accuracy_picture(view(sessions=1), tmp_path / "picture.png")
    assert size(tmp_path / "picture.png")[0] == 1500


def test_no_stroke_joins_two_sessions_and_the_first_is_shaded() -> None:
    run = comparison()
    (axis, *_) = accuracy_figure(run).subfigs[0].axes
    places = [(span.before, span.before + span.rounds) for span in spans(run)]
    curves = curves_in(axis)
    assert curves
    for line in curves:
        x = xs(line)
        assert any(first <= min(x) and max(x) <= last for first, last in places)
    assert [to_hex(patch.get_facecolor()) for patch in axis.patches] == ["#ececec"]
    assert [text.get_text() for text in axis.texts] == ["no choice yet"]


def test_the_title_says_if_the_tests_are_the_same() -> None:
    run = comparison()
    config = run.config.model_copy(update={"evaluation": "all"})
    figure = accuracy_figure(replace(run, config=config, name="$\n"))
    title = figure.subfigs[0].get_suptitle()
    assert title == "$\\n: accuracy on all test samples (fedavg)"


def test_the_same_records_give_the_same_picture(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        accuracy_picture(view(seeds=2), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_without_matplotlib_the_error_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(EbbflowError, match=r"need matplotlib.*pip install matplotlib"):
        accuracy_picture(view(), tmp_path / "picture.png")
    assert not (tmp_path / "picture.png").exists()
