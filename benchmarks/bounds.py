"""Write the tables of runs in docs/theory.md, and leave its text as it is.

    EBBFLOW_DATA=... python benchmarks/bounds.py [PAGE]

Runs the demo and a cell of MNIST, each in the theorem's own setting and as it is, and prints each
beside both bounds as `ebbflow bound` does. The picture is PAGE's folder's bound.png.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ebbflow
from ebbflow.analysis.bound import LETTERS, Terms
from ebbflow.analysis.run_bounds import Findings, Verdict, examine
from ebbflow.report.bound_tables import bound_picture
from ebbflow.report.markdown import filled, table

PAGE = Path("docs/theory.md")
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


def made(name: str, folder: Path) -> Findings:
    """Run one of them and examine it."""
    settings = dict(RUNS[name])
    changed = {key: settings.pop(key) for key in list(settings) if "." in key}
    dataset = settings.pop("dataset", None)
    ebbflow.compare(dataset, **settings, settings=changed, out=folder)
    return examine(folder)


def bound_text(terms: Terms, holds: bool) -> str:
    """Return a bound and its largest term; in brackets where no theorem gives one."""
    letter, share = max(zip(LETTERS, terms.shares, strict=True), key=lambda pair: abs(pair[1]))
    text = f"{terms.total:.3g}"
    part = f"{letter}: {100 * share:.0f} %"
    return f"{text} ({part})" if holds else f"({text}, {part})"


def runs(found: dict[str, Findings]) -> str:
    """Return every method of every run beside the bounds."""
    rows = []
    for name, findings in found.items():
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


def constants(found: dict[str, Findings]) -> str:
    """Return what was estimated, and the rates that are allowed."""
    rows = []
    for name, findings in found.items():
        of, limits = findings.constants, findings.limits()
        numbers = (of.beta, findings.sharpness, of.theta, of.zeta_2)
        rates = (findings.eta, limits["printed"], limits["corrected"])
        rows.append([name, *(f"{number:.3g}" for number in (*numbers, *rates))])
    head = ["run", "β ≤", "curvature seen", "Θ ≥", "ζ₂ ≥", "largest η"]
    return table([*head, "η allowed as printed", "corrected"], rows)


def gaps(found: dict[str, Findings]) -> str:
    """Return the gap at the start of every session, and where the criterion holds."""
    rows = []
    for name, findings in found.items():
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


def main() -> None:
    """Run, and write tables and picture."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for number, name in enumerate(RUNS):
            found[name] = made(name, Path(scratch) / str(number))
    text = path.read_text(encoding="utf-8")
    for name, write in TABLES.items():
        text = filled(text, name, write(found))
        print(write(found))
    path.write_text(text, encoding="utf-8")
    bound_picture(found[IN_THE_SETTING], path.with_name("bound.png"), "demo, plain SGD")


if __name__ == "__main__":
    main()
