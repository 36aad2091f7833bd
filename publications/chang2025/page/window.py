"""The page's section on the window and the readings that were fitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from chang2025 import comparing, findings, fit
from chang2025.fit import LENGTHS, Fit
from chang2025.page.pieces import joined, plain
from chang2025.page.summary import held_out_rows
from chang2025.rows import ComparedRow
from chang2025.study_cells import ALPHAS, MAIN_ALGORITHMS
from chang2025.windows import Window
from ebbflow.config.paper_rows import ALGORITHMS, DATASETS, SEEDS
from ebbflow.report.markdown import table


def window_section(
    fitted: Fit, results: Path, rows: Mapping[str, list[ComparedRow]]
) -> Iterator[str]:
    """Yield which window and which reading were fitted, and how well they fit elsewhere."""
    yield "## Which window, which reading\n"
    window = fitted.window
    errors = fitted.errors[fitted.reading]
    ten = comparing.FIRST_TEN
    other = min((w for w in errors if w.early != window.early), key=errors.__getitem__)
    yield (
        'The main text averages over "initial rounds" and does not say how many; the appendix says '
        f"{ten}. We fitted the number, and the disputed readings, on {len(fit.OVERLAPS)} "
        f"{DATASETS[fit.DATASET]} cells (overlap {joined(fit.OVERLAPS)}, alpha {fit.ALPHA}, seed "
        f"{fit.SEED}; {joined(fit.ALGORITHMS)}) and nowhere else. "
        f"The least mean absolute difference, {errors[window]:.2f} points, is that of {window}, "
        f"and the reading {fitted.reading}. The best that begins "
        f"{'with the session' if window.early else 'one entry early'} is {other}: "
        f"{errors[other]:.2f} points; the first {ten} rounds have {errors[Window(ten)]:.2f}. What "
        "was fitted is used unchanged for all tables of the main text and its supplement; the "
        f"appendix's tables are read at its {ten}, counted the same way. {joined(_outside())} "
        "took no part in the fit.\n"
    )
    yield (
        f"That is the least of {sum(map(len, fitted.errors.values()))} combinations on "
        "few numbers, and two of the readings (windows that begin early, and the first teacher of "
        "Continuous) were thought of because the first of these cells did not fit; so the rows "
        "outside the fit are the test.\n"
    )
    yield from held_out_rows(rows.get(fit.DATASET, []))
    if window.early:
        yield (
            "Why does the window begin one round early? The authors' list of accuracies begins "
            "with the untrained model, so that a list cut every T entries gives a session the last "
            "round of the one before. How their tables were cut is not published; this is what "
            "the numbers say. The "
            "paper's tables therefore understate how far the other starts fall at a transition: "
            "over the session's own rounds the warm start leads by more (below).\n"
        )
        yield from findings.early_evidence(results, window)
    yield (
        f"`each_step`: {findings.local_steps()} steps for every device, each on a fresh draw; "
        "`carried`: session P+1 goes on from the pilot; `raw`: the printed distance; `untaught`: "
        "no teacher in the first session of Continuous. Mean absolute differences in points, by "
        "the length of the window, from the first round on and early:\n"
    )
    lengths = [length for length in LENGTHS if length <= 8 or length in (10, 12, 15)]
    for title, by_name in (("reading", fitted.errors), ("method, best reading", fitted.methods)):
        lines = []
        for early in (False, True):
            for name, by_window in by_name.items():
                least = min(by_window.values())
                cells = [by_window[Window(length, early)] for length in lengths]
                lines.append(
                    [
                        f"{name}, early" if early else name,
                        *(f"**{e:.2f}**" if e == least else f"{e:.2f}" for e in cells),
                    ]
                )
        yield table([title, *map(str, lengths)], lines)
    yield "What the other tables would say with another window:\n"
    several = dict.fromkeys([window, Window(window.length), Window(3), Window(10), Window(20)])
    yield from plain(findings.window_grid(list(rows), results, list(several)))


def _outside() -> list[str]:
    """Return the algorithms, settings, seeds and data sets that were not fitted on."""
    return [
        *(ALGORITHMS[name] for name in MAIN_ALGORITHMS if name not in fit.ALGORITHMS),
        *(f"alpha {alpha}" for alpha in ALPHAS if alpha != fit.ALPHA),
        *(f"seed {seed}" for seed in SEEDS if seed != fit.SEED),
        "all other data sets",
    ]
