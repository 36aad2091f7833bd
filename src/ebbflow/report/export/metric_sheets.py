"""Recovery times and gains as papers print them, over all transitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ebbflow.analysis.views.run_view import RunView
from ebbflow.report.export.columns import ExportRow, Frame
from ebbflow.report.export.sheets import (
    HeadCell,
    Sheet,
    SheetCell,
    called,
    decimals,
    grouped,
    over_seeds,
    plain,
    slug,
    spread,
    telling,
    words_first,
)


def metric_sheets(views: Sequence[RunView], frame: Frame) -> Iterator[Sheet]:
    """Yield, for each algorithm, scores with gains, and a table of times for each target."""
    told = telling(frame)
    percent = all(view.judge.percent for view in views)
    overall = [row for row in frame.rows if row["transition"] is None]
    for (algorithm, reference), rows in grouped(overall, "algorithm", "reference").items():
        seeds = over_seeds(row["seeds"] for row in rows)
        times = [row for row in rows if row["metric"] in ("rounds to target", "speed-up")]
        scores = [row for row in rows if row["metric"] in ("window score", "gain per round")]
        digits = decimals((row["mean"] for row in scores), percent=percent)
        quantities = list(grouped(scores, "metric", "of"))
        names = [*told, "method", *(_titled(*quantity) for quantity in quantities), "p"]
        head = [HeadCell(name) for name in names]
        body = []
        for about, own in grouped(scores, *told, "method").items():
            cells = grouped(own, "metric", "of")
            chance = next((row["p"] for row in own if row["p"] is not None), None)
            p = SheetCell("" if chance is None else f"{chance:.2g}")
            score = [_spread(cells.get(quantity, []), digits) for quantity in quantities]
            body.append([*plain(about), *score, p])
        yield Sheet(
            f"scores, and by how much {reference} is ahead ({algorithm}, {called(views)})",
            f"{seeds}; mean over all transitions; gain: of {reference} over the method, a mean "
            f"over all rounds; p: paired permutation test of the first score against {reference}",
            slug("tab", called(views), algorithm, "gains"),
            head,
            words_first(head, len(told) + 1),
            [body],
        )
        for (target,), own in grouped(times, "of").items():
            yield _times(called(views), told, target, own, seeds)


def _titled(metric: str, of: str) -> str:
    return f"score, {of}" if metric == "window score" else metric


def _times(
    name: str, told: Sequence[str], target: str, rows: Sequence[ExportRow], seeds: str
) -> Sheet:
    algorithm, reference = rows[0]["algorithm"], rows[0]["reference"]
    quantities = {
        ("rounds to target", False): HeadCell("plain", "rounds"),
        ("rounds to target", True): HeadCell("with probe", "rounds"),
        ("speed-up", False): HeadCell("plain", "speed-up"),
        ("speed-up", True): HeadCell("with probe", "speed-up"),
    }
    head = [*(HeadCell(name) for name in (*told, "method")), *quantities.values()]
    body = []
    for about, own in grouped(rows, *told, "method").items():
        cells = grouped(own, "metric", "with_probe")
        body.append([*plain(about), *(_spread(cells.get(quantity, [])) for quantity in quantities)])
    return Sheet(
        f"rounds to {target} of {reference} ({algorithm}, {name})",
        f"{seeds}; mean over all transitions; with probe: probe and survey count as rounds; "
        f"speed-up: how many times sooner {reference} is there; ∞: not reached under some seed",
        slug("tab", name, algorithm, "rounds-to", target),
        head,
        words_first(head, len(told) + 1),
        [body],
    )


def _spread(rows: Sequence[ExportRow], digits: int | None = 2) -> SheetCell:
    return SheetCell(spread(rows[0], digits) if rows else "")
