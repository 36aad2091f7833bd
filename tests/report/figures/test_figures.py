"""Figures: what is drawn, how large, and that nothing depends on anything but the run."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from ebbflow.analysis.views.run_view import RunView
from ebbflow.analysis.views.stretches import spans, stretches, undecided
from ebbflow.core.errors import EbbflowError
from ebbflow.report.colours import TOGETHER, looks
from ebbflow.report.figures.gallery import FIGURES, figure, narrowed
from ebbflow.report.figures.mixture import mixed
from ebbflow.report.figures.style import SHADE, SIZE, encoded, save
from tests.report.drawn_lines import curves_in, xs, ys
from tests.report.run_views import (
    HOSTILE,
    comparison,
    lower_is_better,
    two_algorithms,
    under_way,
    wards,
)

RUNS: list[Callable[[], RunView]] = [
    comparison,
    two_algorithms,
    wards,
    lower_is_better,
    under_way,
]


def axes_of(drawn: Figure) -> list[Axes]:
    return [axis for part in drawn.subfigs for axis in part.axes]


def legend_of(drawn: Figure) -> list[str]:
    return [text.get_text() for legend in drawn.legends for text in legend.get_texts()]


def has_devices(view: RunView) -> bool:
    return any("each" in event for event in view.events)


# --- all figures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("make", RUNS)
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_of_every_run_has_the_width_asked_for(
    name: str, make: Callable[[], RunView]
) -> None:
    view = make()
    if name == "devices" and not has_devices(view):
        with pytest.raises(EbbflowError, match=r"has no scores of devices: .*own-data"):
            figure([view], name)
        return
    widths: list[tuple[str | float, float]] = [("column", 3.5), ("page", 7.16), (5, 5.0)]
    for width, inches in widths if make is comparison else widths[:1]:
        drawn = figure([view], name, width)
        assert drawn.get_figwidth() == inches
        assert 1 < drawn.get_figheight() < 12


@pytest.mark.parametrize("name", ["curves", "mixture", "timeline"])
def test_all_type_is_readable_and_within_the_figure(name: str) -> None:
    drawn = figure([wards()], name)
    drawn.draw_without_rendering()
    box = drawn.bbox
    for axis in axes_of(drawn):
        labels = [*axis.get_xticklabels(), *axis.get_yticklabels(), axis.xaxis.label, axis.title]
        for label in (label for label in labels if label.get_text() and label.get_visible()):
            assert 6.5 <= float(label.get_fontsize()) <= SIZE
            extent = label.get_window_extent()
            if axis.viewLim.containsx(label.get_position()[0]) or label is axis.xaxis.label:
                assert box.x0 - 1 <= extent.x0 <= extent.x1 <= box.x1 + 4, label


@pytest.mark.parametrize("kind", ["pdf", "svg", "png"])
def test_the_same_run_gives_the_same_bytes(kind: str) -> None:
    first, second = (encoded(figure([comparison()], "curves"), kind) for _ in range(2))
    assert first == second
    for word in (b"CreationDate", b"dc:date", b"tIME"):
        assert word not in first


@pytest.mark.slow
def test_another_process_gives_the_same_bytes_and_no_window(tmp_path: Path) -> None:
    code = (
        "import sys; from tests.report.run_views import two_algorithms;"
        "from ebbflow.report.figures.gallery import figure;"
        "from ebbflow.report.figures.style import encoded;"
        "sys.stdout.buffer.write(encoded(figure([two_algorithms()], 'curves'), 'svg'));"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    settings = tmp_path / "matplotlibrc"
    settings.write_text("font.size: 30\nlines.linewidth: 9\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONHASHSEED": "7", "MATPLOTLIBRC": str(settings)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        env=environment,
        cwd=Path(__file__).parents[3],
    )
    assert done.stdout == encoded(figure([two_algorithms()], "curves"), "svg")


def test_fonts_are_embedded_as_outlines() -> None:
    content = encoded(figure([comparison()], "curves"), "pdf")
    assert b"/FontFile2" in content  # TrueType; type 3 fonts are refused by many journals
    assert b"/Type3" not in content


def test_whoever_saves_a_figure_gets_the_same_file(tmp_path: Path) -> None:
    figure([comparison()], "curves").savefig(tmp_path / "a.pdf")
    save(figure([comparison()], "curves"), tmp_path / "b.pdf")
    assert (tmp_path / "a.pdf").read_bytes() == (tmp_path / "b.pdf").read_bytes()


def test_a_users_own_settings_stay_as_they_are() -> None:
    before = dict(rcParams)
    encoded(figure([comparison()], "curves"), "png")
    assert dict(rcParams) == before


def test_a_png_has_the_dots_that_its_width_asks_for(tmp_path: Path) -> None:
    save(figure([comparison()], "curves", "page"), tmp_path / "a.png", dpi=100)
    width, _ = struct.unpack(">II", (tmp_path / "a.png").read_bytes()[16:24])
    assert width == 716
    with pytest.raises(EbbflowError, match=r"end its name in \.pdf, \.svg or \.png"):
        save(figure([comparison()], "curves"), tmp_path / "a.gif")


def test_a_notebook_shows_a_figure() -> None:
    content = figure([comparison()], "curves")._repr_png_()
    assert content.startswith(b"\x89PNG")


def test_several_runs_are_titled_and_have_one_legend() -> None:
    views = [comparison(), two_algorithms()]
    drawn = figure(views, "curves")
    titles = [part.get_suptitle() for part in drawn.subfigs]
    assert titles == ["digits, fedavg", "two, fedavg", "two, fedprox"]
    labels = legend_of(drawn)
    assert len(set(labels)) == len(labels)
    assert [part.get_suptitle() for part in figure([comparison()], "curves").subfigs] == [""]


def test_too_many_parts_are_refused() -> None:
    with pytest.raises(EbbflowError, match="would have 11 parts, and has room for 1 to 10"):
        figure([comparison()] * 11, "curves")


@pytest.mark.parametrize("width", ["wide", "1", "nan", "31", "-3"])
def test_an_odd_width_gets_a_sentence(width: str) -> None:
    with pytest.raises(EbbflowError, match="is no width: write column, page, or inches"):
        figure([comparison()], "curves", width)


def test_an_unknown_figure_gets_a_sentence() -> None:
    with pytest.raises(EbbflowError, match="did you mean curves"):
        figure([comparison()], "curve")


# --- curves and transitions ----------------------------------------------------------------------


@pytest.mark.parametrize("make", RUNS)
def test_no_stroke_joins_two_sessions(make: Callable[[], RunView]) -> None:
    view = make()
    axes = axes_of(figure([view], "curves"))
    for axis, algorithm in zip(axes, view.algorithms, strict=True):
        places = [(span.before, span.before + span.rounds) for span in spans(view, algorithm)]
        lines = curves_in(axis)
        assert len(lines) == len(stretches(view, algorithm))
        for line in lines:
            x = xs(line)
            assert any(first <= min(x) and max(x) <= last for first, last in places)


@pytest.mark.parametrize("make", RUNS)
def test_methods_that_coincide_are_one_grey_line(make: Callable[[], RunView]) -> None:
    view = make()
    drawn = figure([view], "curves")
    for axis, algorithm in zip(axes_of(drawn), view.algorithms, strict=True):
        found = stretches(view, algorithm)
        together = [stretch for stretch in found if len(stretch.methods) > 1]
        grey = [line for line in curves_in(axis) if to_hex(line.get_color()) == TOGETHER.light]
        assert len(grey) == len(together) > 0
        shaded = [patch for patch in axis.patches if to_hex(patch.get_facecolor()) == SHADE]
        assert len(shaded) == len(undecided(view, algorithm)) > 0
    assert "no choice yet" in legend_of(drawn)


def test_each_method_has_its_colour_dashes_and_marker() -> None:
    view = comparison()
    known = looks(view.methods)
    drawn = figure([view], "curves")
    colours = {to_hex(line.get_color()) for line in curves_in(axes_of(drawn)[0])}
    assert colours == {look.light for look in known.values()} | {TOGETHER.light}
    styles = {
        (to_hex(line.get_color()), str(line.get_linestyle()), line.get_marker())
        for line in curves_in(axes_of(drawn)[0])
    }
    assert len({style[1:] for style in styles}) == len(known)  # grey is solid with a circle, too


def test_the_legend_names_methods_bands_and_what_coincides() -> None:
    assert legend_of(figure([comparison()], "curves", "page"))[:4] == list(comparison().methods)
    labels = legend_of(figure([comparison()], "curves"))
    assert "band: lowest to highest of 2 seeds" in labels
    assert "warm_start = previous = average" in labels
    alone = legend_of(figure([narrowed(comparison(), seeds=[1])], "curves"))
    assert not any(label.startswith("band") for label in alone)


def test_curves_hold_the_means_over_seeds() -> None:
    view = comparison()
    axis = axes_of(figure([view], "curves"))[0]
    drawn = {tuple(ys(line)) for line in curves_in(axis)}
    expected = {
        tuple(mean for _, mean, _, _ in stretch.points()) for stretch in stretches(view, "fedavg")
    }
    assert drawn == expected


def test_the_axis_says_if_less_is_better() -> None:
    label = axes_of(figure([lower_is_better()], "curves"))[0].get_ylabel()
    assert label == "RMSE (less is better)"


def test_each_transition_has_a_panel_that_begins_with_its_start() -> None:
    view = comparison()
    axes = [axis for axis in axes_of(figure([view], "transitions")) if axis.get_visible()]
    assert [axis.get_title() for axis in axes] == [
        "transition 1 (session 4)",
        "transition 2 (session 5)",
    ]
    for axis, session in zip(axes, (4, 5), strict=True):
        for line in curves_in(axis):
            assert (min(xs(line)), max(xs(line))) == (0, 2)  # the window
        starts = {
            sum(view.starts["fedavg", method, seed, session]["accuracy"] for seed in (1, 2)) / 2  # type: ignore[index]
            for method in view.methods
        }
        assert {ys(line)[0] for line in curves_in(axis)} == starts


def test_without_a_transition_there_is_a_sentence() -> None:
    view = comparison()
    early = replace(view, rounds=[r for r in view.rounds if r.session < 4])
    with pytest.raises(EbbflowError, match=r"has no transition yet.*choose --figure curves"):
        figure([early], "transitions")


# --- the others ----------------------------------------------------------------------------------


def test_the_timeline_has_a_box_for_each_visit_and_any_name() -> None:
    drawn = figure([wards()], "timeline")
    (axis,) = axes_of(drawn)
    boxes = sum(len(collection.get_paths()) for collection in axis.collections)
    assert boxes == 5 * 4  # sessions, each with half of the eight devices
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert len(names) == len(HOSTILE)
    assert "$x_1$ & 50 % #1" in names
    assert all(name.isprintable() for name in names)
    assert any(name.startswith("U+75C5") for name in names)
    assert legend_of(drawn) == ["joined", "returned"]


def test_the_mixture_shows_every_weight() -> None:
    view = comparison()
    drawn = figure([view], "mixture", "column")
    axes = [axis for axis in axes_of(drawn) if axis.images]
    methods = mixed(view, "fedavg", 1)
    assert [axis.get_title() for axis in axes] == [f"{method} (seed 1)" for method in methods]
    for axis, starts in zip(axes, methods.values(), strict=True):
        shown = axis.images[0].get_array()
        assert shown is not None
        weights = [w for start in starts for w in start.parts.values() if abs(w) >= 5e-4]
        assert sorted(np.ma.compressed(shown)) == pytest.approx(sorted(weights))
        assert axis.images[0].norm.vmin == -axis.images[0].norm.vmax  # type: ignore[operator]


def test_a_run_that_never_mixes_gets_a_sentence() -> None:
    with pytest.raises(EbbflowError, match="mixes models: name a run with a method that does"):
        figure([narrowed(comparison(), methods=["previous"])], "mixture")


def test_devices_are_shown_as_shares() -> None:
    drawn = figure([wards()], "devices")
    (axis,) = axes_of(drawn)
    assert legend_of(drawn) == ["learned", "previous"]
    for line in axis.lines:
        assert list(xs(line)) == sorted(xs(line))
        assert ys(line)[0] == 0
        assert ys(line)[-1] == 100


def test_bars_of_costs_add_up_to_what_a_session_costs() -> None:
    from ebbflow.analysis.views.spending import mean_session, spending  # noqa: PLC0415

    view = comparison()
    spent = spending(view).usages
    drawn = figure([view], "costs", "page")
    assert legend_of(drawn) == ["training", "probe", "survey"]
    seconds = axes_of(drawn)[0]
    for row, method in enumerate(view.methods):
        bars: list[Any] = [p for p in seconds.patches if round(p.get_y() + 0.33) == row]  # type: ignore[attr-defined]
        whole = mean_session(spent, "fedavg", method, 1).latency
        assert sum(bar.get_width() for bar in bars) == pytest.approx(whole)


def test_only_what_was_asked_for_is_shown() -> None:
    view = narrowed(comparison(), ["fedavg"], ["previous", "learned"], [2])
    assert (view.methods, view.seeds) == (("learned", "previous"), (2,))
    assert {e["method"] for e in view.events if "method" in e} == {"learned", "previous"}
    for chosen, word in (
        ({"algorithms": ["fedsgd"]}, "--algorithm: there is no algorithm"),
        ({"methods": ["lerned"]}, "did you mean learned"),
        ({"seeds": [7]}, "--seed: there is no seed '7'"),
    ):
        with pytest.raises(EbbflowError, match=word):
            narrowed(comparison(), **chosen)
