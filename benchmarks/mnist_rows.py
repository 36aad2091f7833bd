"""Run the paper's MNIST rows and write them beside the paper's numbers.

    EBBFLOW_DATA=... python benchmarks/mnist_rows.py [RUN] [PAGE]

Overlap 0.0, alpha 0.3, the authors' behaviour, seed 100; every algorithm of the table and four
starts. A run that was stopped is resumed. The page says of every pair of starts that the paper
separates by more than five points whether ours are in the same order.
"""

from __future__ import annotations

import csv
import itertools
import platform
import sys
from importlib import resources
from pathlib import Path

import ebbflow
from ebbflow.records import CONFIG, Records

ALGORITHMS = {
    "moon": "MOON",
    "fedprox": "FedProx",
    "scaffold": "SCAFFOLD",
    "scaffold-authors": "SCAFFOLD",
    "fedacg": "FedACG",
}
METHODS = ("warm_start", "continuous", "previous", "average")
APART = 5.0
HEAD = """# MNIST beside the paper

Written by `python benchmarks/mnist_rows.py`: 100 devices a session, 7 sessions of 50 rounds,
overlap 0.0, alpha 0.3, `--preset authors-code`, seed 100. Accuracy in percent over the first 5 and
10 rounds of a session; the paper's are means of three seeds over its "initial rounds". Best of each
row in bold.
"""


def paper() -> dict[tuple[str, int, str], float]:
    """Return the paper's accuracy by algorithm, transition and method."""
    file = resources.files("ebbflow") / "paper" / "reference" / "accuracy_images_100.csv"
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    return {
        (
            row["algorithm"],
            int(row["transition"]),
            row["method"].replace("proposed", "warm_start"),
        ): float(row["accuracy"])
        for row in rows
        if (row["dataset"], row["overlap"], row["alpha"]) == ("MNIST", "0.0", "0.3")
    }


def measured(folder: Path) -> Records:
    """Return the run's records, after running or resuming it."""
    if (folder / CONFIG).exists():
        return ebbflow.resume(folder, progress=True)
    return ebbflow.compare(
        "mnist",
        preset="authors-code",
        algorithm=list(ALGORITHMS),
        methods=list(METHODS),
        overlap=0.0,
        alpha=0.3,
        seeds=[100],
        window=[5, 10],
        out=folder,
        progress=True,
    )


def page(found: Records) -> str:
    """Return the table and the pairs whose order differs, as Markdown."""
    theirs = paper()
    ours = {
        (row["algorithm"], row["window"], row["transition"], row["method"]): row["accuracy"]
        for row in found.rows
    }
    lines = [
        HEAD,
        "| algorithm | transition | | " + " | ".join(METHODS) + " |",
        "|---|---|---|" + "---|" * len(METHODS),
    ]
    exceptions, pairs, first = [], 0, 0
    for (name, label), k in itertools.product(ALGORITHMS.items(), (2, 4)):
        reference = {method: theirs[label, k, method] for method in METHODS}
        lines.append(_row(name, k, "paper", reference))
        for window in (5, 10):
            row = {method: ours[name, window, k, method] for method in METHODS}
            lines.append(_row(name, k, f"window {window}", row))
            first += max(row, key=row.__getitem__) == "warm_start"
            for a, b in itertools.combinations(METHODS, 2):
                if abs(reference[a] - reference[b]) > APART:
                    pairs += 1
                    if (reference[a] > reference[b]) != (row[a] > row[b]):
                        exceptions.append(
                            f"- {name}, transition {k}, window {window}: {a} {row[a]:.2f} and {b} "
                            f"{row[b]:.2f}; the paper has {reference[a]:.2f} and {reference[b]:.2f}"
                        )
    rows = 4 * len(ALGORITHMS)
    lines += [
        "",
        f"`warm_start` is first in {first} of {rows} rows. Of {pairs} pairs that the paper",
        f"separates by more than {APART:g} points, {pairs - len(exceptions)} are in the same order"
        + (" here." if not exceptions else " here; the others:"),
        "",
        *exceptions,
    ]
    lines += ["", f"Machine: {platform.machine()}."]
    return "\n".join(lines) + "\n"


def _row(name: str, transition: int, what: str, values: dict[str, float]) -> str:
    best = max(values.values())
    cells = [f"**{v:.2f}**" if v == best else f"{v:.2f}" for v in values.values()]
    return f"| {name} | {transition} | {what} | " + " | ".join(cells) + " |"


def main() -> None:
    """Write the page."""
    given = dict(enumerate(sys.argv))
    text = page(measured(Path(given.get(1, "runs/mnist-rows"))))
    Path(given.get(2, "docs/mnist.md")).write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
