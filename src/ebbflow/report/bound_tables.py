"""Tables and a picture of a run beside Theorem 1 (the picture needs the extra ``plot``)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from ebbflow.analysis.bound import LETTERS, MEANINGS, Terms
from ebbflow.report.plots import COLOURS, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ebbflow.analysis.run_bounds import Findings, StartGap, Verdict

# The last is the corrected bound with the measured variance of the mini-batches.
KINDS = ("as printed", "corrected", "noise measured")
SHADES = ("#4477aa", "#ee6677", "#ccbb44", "#aa3377")  # of the four terms


def bound_tables(findings: Findings) -> Iterator[Table]:
    """Yield tables of the constants, of the bounds term by term, and of the gaps at the starts."""
    yield _constants(findings)
    algorithms = dict.fromkeys(verdict.algorithm for verdict in findings.verdicts)
    for algorithm in algorithms:
        yield _bounds([v for v in findings.verdicts if v.algorithm == algorithm], algorithm)
    for algorithm in algorithms:
        yield _gaps([b for b in findings.gaps if b.algorithm == algorithm], algorithm)


def _constants(findings: Findings) -> Table:
    of, limits = findings.constants, findings.limits()
    table = Table("constant", "value", "what it is", title="Constants", title_justify="left")
    kind = "upper bound for every w, closed form" if findings.upper else "estimate: sharpness"
    table.add_row("beta", _number(of.beta), kind)
    table.add_row("sharpness", _number(findings.sharpness), "lower bound of beta, power iteration")
    table.add_row("Theta", _number(of.theta), "lower bound from the models and pairs seen")
    table.add_row("zeta_1", _number(of.zeta_1), "chosen")
    table.add_row("zeta_2", _number(of.zeta_2), "least for zeta_1 at the models that were seen")
    table.add_row("eta, e", f"{findings.eta:g}, {findings.steps}", "the largest of the run")
    for name, limit in limits.items():
        table.add_row(f"eta, {name}", _number(limit), "the condition: eta has to be below this")
    return table


def _bounds(verdicts: Sequence[Verdict], algorithm: str) -> Table:
    table = Table(
        title=f"{algorithm}, average squared gradient norm",
        caption="(a) descent, (b) sampling noise, (c) noise in the drift, (d) dissimilarity",
        title_justify="left",
    )
    table.add_column("", no_wrap=True)
    for name in (*(f"({letter})" for letter in LETTERS), "sum", "ratio"):
        table.add_column(name, justify="right")
    for verdict in verdicts:
        measured = _number(verdict.measured)
        name = f"[bold]{verdict.method}[/], measured"
        table.add_row(name, *[""] * len(LETTERS), f"[bold]{measured}[/]", "1")
        for kind, terms in zip(KINDS, _kinds(verdict), strict=True):
            cells = [
                f"{_number(term)}\n[dim]{100 * share:.1f} %[/]"
                for term, share in zip(terms, terms.shares, strict=True)
            ]
            ratio = _number(terms.total / verdict.measured) if verdict.measured else ""
            bold = f"[bold]{_number(terms.total)}[/]"
            table.add_row(f"  {kind}", *cells, bold, ratio, end_section=kind == KINDS[-1])
    for name, holds in (
        ("printed", [v.printed_holds for v in verdicts]),
        ("corrected", [v.corrected_holds for v in verdicts]),
    ):
        missing = sum(v.rounds for v in verdicts) - sum(holds)
        if missing:
            table.caption = (
                f"{table.caption}\n{missing} rounds have too large a rate for the {name} theorem: "
                "they count with Lambda = 1/2, so that the formula is not a bound"
            )
    return table


def _gaps(gaps: Sequence[StartGap], algorithm: str) -> Table:
    methods = list(dict.fromkeys(b.method for b in gaps))
    seeds = len({b.seed for b in gaps})
    table = Table(
        title=f"{algorithm}, gap at the start: F(w^(s,1)) - F(w*) / F(w^(s-1,T+1)) - F(w*)",
        caption=f"means over {seeds} seed{'s' if seeds > 1 else ''}, and how many starts are no "
        "worse than the method's own carried-over model: the paper's design criterion",
        title_justify="left",
    )
    table.add_column("session", justify="right")
    for method in methods:
        table.add_column(method, justify="right")
    for session in sorted({b.session for b in gaps}):
        cells = []
        for method in methods:
            here = [b for b in gaps if (b.method, b.session) == (method, session)]
            carried = [b.carried - b.least for b in here if b.carried is not None]
            gap = f"{_mean([b.gap for b in here]):.4f}"
            holds = f"{sum(bool(b.holds) for b in here)}/{len(here)}"
            cells.append(f"{gap} / {_mean(carried):.4f}  {holds}" if carried else gap)
        table.add_row(str(session), *cells)
    return table


def bound_picture(findings: Findings, path: Path, title: str) -> None:
    """Draw the measured values beside the bounds, the shares of the terms, and the gaps."""
    pyplot = drawing()
    algorithms = list(dict.fromkeys(v.algorithm for v in findings.verdicts))
    figure, axes = pyplot.subplots(
        len(algorithms), 3, figsize=(14, 4.2 * len(algorithms)), squeeze=False, layout="constrained"
    )
    for (left, middle, right), algorithm in zip(axes, algorithms, strict=True):
        verdicts = [v for v in findings.verdicts if v.algorithm == algorithm]
        _draw_values(left, verdicts)
        _draw_shares(middle, verdicts)
        _draw_gaps(right, [b for b in findings.gaps if b.algorithm == algorithm])
        left.set_title(f"{title}, {algorithm}", fontsize=11, loc="left")
        for axis in (left, middle, right):
            axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _draw_values(axis: Axes, verdicts: Sequence[Verdict]) -> None:
    rows = range(len(verdicts))
    markers = zip(("X", "o", "."), KINDS, ("#888888", "#000000", "#ffffff"), strict=True)
    for place, (marker, kind, colour) in enumerate(markers):
        totals = [_kinds(v)[place].total for v in verdicts]
        axis.plot(totals, rows, marker, color=colour, label=kind, markersize=8, mec="#000000")
    measured = [v.measured for v in verdicts]
    axis.plot(measured, rows, "|", color="#d55e00", label="measured", markersize=18, mew=3)
    if all(terms.total > 0 for v in verdicts for terms in _kinds(v)):
        axis.set_xscale("log")
    axis.set_yticks(list(rows), [v.method for v in verdicts])
    axis.set_ylim(len(verdicts) - 0.3, -0.6)
    axis.set_xlabel("average squared gradient norm")
    axis.grid(axis="x", color="0.9")
    axis.legend(fontsize=8, frameon=False, ncols=2, loc="lower center")


def _draw_shares(axis: Axes, verdicts: Sequence[Verdict]) -> None:
    names, row = [], 0
    for verdict in verdicts:
        for kind, terms in zip(KINDS, _kinds(verdict), strict=True):
            positive, negative = 0.0, 0.0
            for place, share in enumerate(terms.shares):
                at = positive if share >= 0 else negative
                label = f"({LETTERS[place]}) {MEANINGS[place]}" if row == 0 else None
                axis.barh(row, 100 * share, left=100 * at, color=SHADES[place], label=label)
                positive, negative = positive + max(share, 0), negative + min(share, 0)
            names.append(f"{verdict.method}, {kind}")
            row += 1
    axis.set_yticks(range(row), names, fontsize=8)
    axis.set_ylim(row + 0.9, -0.6)
    axis.set_xlabel("share of each term (%)")
    axis.legend(fontsize=8, frameon=False, ncols=2, loc="lower center")


def _draw_gaps(axis: Axes, gaps: Sequence[StartGap]) -> None:
    sessions = sorted({b.session for b in gaps})
    for method in dict.fromkeys(b.method for b in gaps):
        means = [
            _mean([b.gap for b in gaps if (b.method, b.session) == (method, session)])
            for session in sessions
        ]
        axis.plot(sessions, means, "o-", color=COLOURS.get(method), label=method, linewidth=1.5)
    axis.set(xlabel="session", ylabel="F(w^(s,1)) - F(w*) at the start", xticks=sessions)
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=8, frameon=False)


def _kinds(verdict: Verdict) -> tuple[Terms, Terms, Terms]:
    return verdict.printed, verdict.corrected, verdict.sharp


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _number(value: float) -> str:
    """Return a number with three digits, but from 1,000 to ten million as a whole number."""
    if math.isnan(value):
        return "none"
    return f"{value:.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"
