"""The picture of the page: every transition's lead over the best simple start, by partition."""

from __future__ import annotations

from pathlib import Path

from ebbflow.report.plots import COLOURS
from learned_start.keeping import RESULTS
from learned_start.page import kept_leads
from learned_start.rules import LEARNED
from learned_start.settings import DESIGN_SEEDS, PARTITIONS, TEST_SEEDS

MARKERS = {LEARNED: "o", "warm_start": "x"}


def draw(path: Path, results: Path = RESULTS) -> None:
    """Draw the leads of the learned and of the paper's start, softmax regression."""
    import matplotlib as mpl  # noqa: PLC0415 - only a picture needs it

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    found, _, _ = kept_leads("softmax", (*DESIGN_SEEDS, *TEST_SEEDS), results)
    figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
    axes.axhline(0, color="0.6", linewidth=1)
    names = list(PARTITIONS)
    for shift, (rule, marker) in zip((-0.18, 0.18), MARKERS.items(), strict=True):
        places, points = [], []
        for number, lead in enumerate(found):
            if lead.rule != rule:
                continue
            name = lead.cell.split("-")[1]
            # Spread over a third of the column, so that points do not hide each other.
            places.append(names.index(name) + shift + ((number * 37) % 100 / 100 - 0.5) * 0.28)
            points.append(lead.points)
        colour = COLOURS[rule]
        axes.scatter(places, points, s=12, c=colour, marker=marker, label=rule, linewidths=0.8)
    labels = [name.replace("_", " ").replace("o0", "overlap 0") for name in names]
    axes.set_xticks(range(len(names)), labels)
    axes.set_ylabel("points above the best simple start")
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
