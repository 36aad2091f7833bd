"""Fills the tables of runs in docs/theory.md and leaves its text unchanged.

    EBBFLOW_DATA=... python -m benchmarks.pages bounds

Runs the demo and one MNIST cell, each in the theorem's setting and with its own settings, and
compares them with both bounds as `ebbflow bound` does. Also draws bound.png in the page's folder.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ebbflow
from ebbflow.analysis.bound import LETTERS, Terms
from ebbflow.analysis.run_bounds import Findings, Verdict, examine
from ebbflow.report.bound_tables import bound_picture
from ebbflow.report.markdown import filled, table

PLAIN: dict[str, Any] = {"local.momentum": 0.0, "local.rule": "each_step"}
MNIST: dict[str, Any] = {
    "dataset": "mnist",
    "preset": "authors-code",
    "algorithm": ["fedavg"],
    "methods": ["warm_start", "previous", "average"],
    "overlap": 0.0,
    "alpha": 0.3,
    "seeds": [100],
}
SLOW = {"lr.initial": 0.0005, "lr.floor": 0.0005, "local.steps": 3}
RUNS: dict[str, dict[str, Any]] = {
    "demo, plain SGD, fresh draws, e = 5": {"preset": "demo", **PLAIN},
    "MNIST, plain SGD, fresh draws, e = 3, rate 0.0005, seed 100": {**MNIST, **PLAIN, **SLOW},
    "demo, as it is (momentum 0.9, one pass, e = 3)": {"preset": "demo"},
    "MNIST, the authors' rates (momentum 0.9, one pass, e = 3), seed 100": MNIST,
}
IN_THE_SETTING, *_, AS_RUN = RUNS


def examined(name: str, folder: Path) -> Findings:
    """Make one of the runs and compare it with the bounds."""
    settings = dict(RUNS[name])
    changed = {key: settings.pop(key) for key in list(settings) if "." in key}
    dataset = settings.pop("dataset", None)
    ebbflow.compare(dataset, **settings, settings=changed, out=folder)
    return examine(folder)


def bound_text(terms: Terms, holds: bool) -> str:
    """Return a bound and its largest term, in brackets where the theorem's conditions fail."""
    letter, share = max(zip(LETTERS, terms.shares, strict=True), key=lambda pair: abs(pair[1]))
    text = f"{terms.total:.3g}"
    part = f"{letter}: {100 * share:.0f} %"
    return f"{text} ({part})" if holds else f"({text}, {part})"


def runs(by_run: dict[str, Findings]) -> str:
    """Return the table of every method of every run beside the bounds."""
    rows = []
    for name, findings in by_run.items():
        for i, verdict in enumerate(findings.verdicts):
            rows.append([name if i == 0 else "", *_cells(verdict)])
    head = ["run", "method", "measured", "as printed (share)", "corrected (share)"]
    return table([*head, "noise measured", "rounds within the conditions"], rows)


def _cells(verdict: Verdict) -> list[str]:
    corrected = verdict.corrected_holds == verdict.rounds
    sharp = f"{verdict.sharp.total:.3g}"
    return [
        verdict.method,
        f"{verdict.measured:.3g}",
        bound_text(verdict.printed, verdict.printed_holds == verdict.rounds),
        bound_text(verdict.corrected, corrected),
        sharp if corrected else f"({sharp})",
        f"{100 * verdict.printed_holds / verdict.rounds:.0f} %, "
        f"{100 * verdict.corrected_holds / verdict.rounds:.0f} %",
    ]


def constants(by_run: dict[str, Findings]) -> str:
    """Return the table of estimated constants and allowed learning rates."""
    rows = []
    for name, findings in by_run.items():
        estimated, limits = findings.constants, findings.limits()
        numbers = (estimated.beta, findings.sharpness, estimated.theta, estimated.zeta_2)
        rates = (findings.eta, limits["printed"], limits["corrected"])
        rows.append([name, *(f"{number:.3g}" for number in (*numbers, *rates))])
    head = ["run", "β ≤", "curvature seen", "Θ ≥", "ζ₂ ≥", "largest η"]
    return table([*head, "η allowed as printed", "corrected"], rows)


def gaps(by_run: dict[str, Findings]) -> str:
    """Return the table of gaps at the start of each session, and where the criterion holds."""
    rows = []
    for name, findings in by_run.items():
        methods = dict.fromkeys(start.method for start in findings.gaps)
        for i, method in enumerate(methods):
            own = [start for start in findings.gaps if start.method == method]
            sessions = sorted({start.session for start in own})
            cells = []
            for session in sessions[-4:]:
                here = [start for start in own if start.session == session]
                cells.append(f"{sum(start.gap for start in here) / len(here):.2f}")
            judged = [start.holds for start in own if start.holds is not None]
            rows.append([name if i == 0 else "", method, *cells, f"{sum(judged)} of {len(judged)}"])
    head = ["run", "method", *(f"session {s}" for s in (4, 5, 6, 7))]
    return table([*head, "criterion holds"], rows)


TABLES: dict[str, Callable[[dict[str, Findings]], str]] = {
    "runs": runs,
    "constants": constants,
    "gaps": gaps,
}


def write_tables(page: Path) -> None:
    """Make the runs, and write the tables and the picture."""
    by_run = {}
    with tempfile.TemporaryDirectory() as scratch:
        for number, name in enumerate(RUNS):
            by_run[name] = examined(name, Path(scratch) / str(number))
    text = page.read_text(encoding="utf-8")
    for name, write in TABLES.items():
        table_text = write(by_run)
        text = filled(text, name, table_text)
        print(table_text)
    page.write_text(text, encoding="utf-8")
    bound_picture(by_run[IN_THE_SETTING], page.with_name("bound.png"), "demo, plain SGD")
