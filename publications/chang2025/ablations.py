"""The ablations beside the paper's: the warm start with other V, R and pilots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from chang2025 import reference
from chang2025.collecting import Family, families, largest_scale, mean_text
from chang2025.comparing import printed, too_short
from chang2025.rendering import Grid, Report
from chang2025.rows import ComparedRow, PaperValue
from chang2025.studies import study
from chang2025.study_cells import (
    ABLATION_ROWS,
    MAIN_ALGORITHMS,
    SIMILARITY_SCALES,
    SMALL_MODEL_DATASETS,
    pilot_variants,
    probe_variants,
    scale_variants,
)
from chang2025.windows import Window
from ebbflow.analysis.metrics import mean_and_deviation
from ebbflow.config.paper_rows import DATASETS

OURS_ALONE = ("R = 1",)
"""Variants that the paper does not have."""
ABLATIONS = {
    "pilot-ema": ("pilot", pilot_variants, (1, 2, 3, 4)),
    "probe-rounds": ("v", probe_variants, (2, 4)),
    "similarity-scale": ("r", scale_variants, (2, 4)),
}
"""By id: the column of the paper's table, the variants, the transitions."""


def ablation_rows(name: str, results: Path, window: Window) -> list[ComparedRow]:
    """Return the rows of an ablation for which there are results."""
    column, variants, transitions = ABLATIONS[name]
    paper: dict[tuple[str, int], dict[str, PaperValue]] = {}
    for line in reference.table(study(name).reference or ""):
        key = reference.NAMES[line["dataset"]], int(line["transition"])
        value = PaperValue(float(line["accuracy"]), float(line["std"]))
        paper.setdefault(key, {})[_label(column, line[column])] = value
    everyone = families(name, results)
    rows = []
    for dataset in (*SMALL_MODEL_DATASETS, *ABLATION_ROWS):
        own = largest_scale([family for family in everyone if family.config.dataset == dataset])
        further = dataset in SMALL_MODEL_DATASETS  # which the paper does not have
        algorithms = MAIN_ALGORITHMS if further else (ABLATION_ROWS[dataset][2],)
        named = {_variant_label(name, family): family for family in own}
        wanted = [_wanted(name, dataset, changed) for _, changed in variants(dataset)]
        for algorithm, k in product(algorithms, transitions):
            ours = {
                label: named[label].windows(algorithm, "warm_start", k, window)
                for label in wanted
                if label in named
            }
            ours = {label: values for label, values in ours.items() if values}
            if len(ours) > 1:
                theirs = paper.get((dataset, k), {})
                rows.append(
                    ComparedRow(
                        name,
                        own[0],
                        algorithm,
                        k,
                        ours,
                        theirs,
                        not further,
                    )
                )
    return rows


def _label(column: str, value: str) -> str:
    if column == "pilot":
        return value
    return f"{column.upper()} = {float(value):g}"


def _variant_label(name: str, family: Family) -> str:
    config = family.config
    if name == "pilot-ema":
        return config.pilot.combine
    if name == "probe-rounds":
        return f"V = {config.probe.rounds}"
    return f"R = {config.parameters['warm_start']['scale']:g}"


def _wanted(name: str, dataset: str, changed: Mapping[str, Any]) -> str:
    if name == "pilot-ema":
        return str(changed["pilot.combine"])
    if name == "probe-rounds":
        return f"V = {changed['probe.rounds']}"
    return f"R = {changed.get('parameters.warm_start.scale', SIMILARITY_SCALES[dataset][0]):g}"


def ablation(name: str, results: Path, window: Window) -> Report:
    """Return an ablation beside the paper's."""
    rows = ablation_rows(name, results, window)
    grids = []
    for dataset in dict.fromkeys(row.dataset for row in rows):
        own = [row for row in rows if row.dataset == dataset]
        columns = list(dict.fromkeys(column for row in own for column in row.ours))
        lines = []
        for row in own:
            ours = [mean_text(row.ours.get(column, [])) for column in columns]
            apart, theirs_apart = largest_gap(row)
            noise = seed_noise(row)
            lines.append(
                [
                    row.algorithm,
                    str(row.transition),
                    f"ours ({len(row.seeds)})",
                    *ours,
                    f"{apart:.2f}",
                    "" if math.isnan(noise) else f"{noise:.2f}",
                ]
            )
            if row.theirs:
                theirs = [
                    printed(row.theirs[column]) if column in row.theirs else ""
                    for column in columns
                ]
                std = max(value.std for value in row.theirs.values())
                lines.append(["", "", "paper", *theirs, f"{theirs_apart:.2f}", f"{std:.2f}"])
        head = ["algorithm", "transition", "", *columns, "largest apart", "largest std"]
        grids.append(Grid(f"{DATASETS[dataset]}, {own[0].setting}", head, lines, sections=1))
    return Report(
        name,
        study(name).title,
        [
            f"Mean accuracy of `warm_start` in percent over {window}.{too_short(rows, window)}",
            ablation_sentence(rows),
        ],
        grids,
        [line for row in rows for line in row.flat()],
        {"window": window.mark, "rows": len(rows)},
    )


def largest_gap(row: ComparedRow) -> tuple[float, float]:
    """Return the largest difference between variants, ours and theirs.

    Without the values that the paper does not try, which are wide of the others on purpose.
    """
    ours = [row.mean(column) for column in row.ours if column not in OURS_ALONE]
    theirs = [value.mean for value in row.theirs.values()]
    return max(ours) - min(ours), max(theirs) - min(theirs) if theirs else math.nan


def seed_noise(row: ComparedRow) -> float:
    """Return the largest deviation over seeds of a row; nan for one seed."""
    deviations = [
        mean_and_deviation(values)[1]
        for column, values in row.ours.items()
        if column not in OURS_ALONE
    ]
    return max(deviations) if deviations and not any(map(math.isnan, deviations)) else math.nan


def ablation_sentence(rows: Sequence[ComparedRow]) -> str:
    """Return how far apart the variants are, beside what the seeds do."""
    if not rows:
        return "Nothing to compare yet."
    widest = max(rows, key=lambda row: largest_gap(row)[0])
    several = [row for row in rows if not math.isnan(seed_noise(row))]
    within = sum(largest_gap(row)[0] <= seed_noise(row) for row in several)
    text = (
        f"The variants are at most {largest_gap(widest)[0]:.2f} points apart "
        f"({DATASETS[widest.dataset]}, {widest.algorithm}, transition {widest.transition})"
    )
    if several:
        text += (
            f"; in {within} of {len(several)} rows with several seeds they are within one standard "
            "deviation over the seeds"
        )
    text += "."
    shared = [row for row in rows if row.theirs]
    if shared:
        ours, theirs = (max(largest_gap(row)[i] for row in shared) for i in (0, 1))
        inside = sum(
            largest_gap(row)[0] <= max(value.std for value in row.theirs.values()) for row in shared
        )
        text += (
            f" In the {len(shared)} rows that the paper also has, ours are at most {ours:.2f} "
            f"apart and the paper's {theirs:.2f}; in {inside} ours are within one of the paper's "
            "standard deviations."
        )
    for column in OURS_ALONE:
        lost = {
            max(row.mean(c) for c in row.ours) - row.mean(column): row
            for row in rows
            if column in row.ours
        }
        if lost:
            most = lost[max(lost)]
            text += (
                f" {column}, which the paper does not try, is {median(lost):.2f} points behind the "
                f"best of a row in the median and up to {max(lost):.2f} "
                f"({DATASETS[most.dataset]}, {most.algorithm}, transition {most.transition})."
            )
    return text
