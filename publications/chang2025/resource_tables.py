"""The tables without accuracies: resources, model sizes, the cost analysis, the bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from chang2025 import reference
from chang2025.collecting import Family, families, largest_scale
from chang2025.rendering import Grid, Report, strict
from chang2025.results import Result
from chang2025.studies import study
from ebbflow.analysis import accounting
from ebbflow.analysis.accounting import CostPlan, local_work, planned
from ebbflow.analysis.bound import LETTERS, Terms
from ebbflow.analysis.cost import MODELS
from ebbflow.config.paper_rows import DATASETS
from ebbflow.core import counters
from ebbflow.core.counters import Cost

GIB = 2**30


def clock(seconds: float) -> str:
    """Return a time as hours, minutes and seconds.

    >>> clock(3599.4), clock(7325)
    ('00:59:59', '02:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{rest:02d}"


def _seconds(text: str) -> int:
    hours, minutes, rest = (int(part) for part in text.split(":"))
    return 3600 * hours + 60 * minutes + rest


# --- resources -----------------------------------------------------------------------------------


def resources(name: str, results: Path) -> Report:
    """Return processor time and memory of our cells beside the paper's.

    Our cells of small models train several algorithms at once; a row of the paper is one algorithm
    with all its starts. Their time is therefore divided by the number of algorithms, their memory
    is not.
    """
    paper = {
        (
            reference.NAMES[row["dataset"]],
            float(row["overlap"]),
            float(row["alpha"]),
            reference.ALGORITHMS[row["algorithm"]],
        ): (_seconds(row["cpu_time"]), row["max_memory"])
        for row in reference.table(study(name).reference or "")
    }
    lines, rows = [], []
    ids = [f"{dataset}-accuracy" for dataset in DATASETS] if name == "resources-100" else [name]
    for family in (each for one in ids for each in largest_scale(families(one, results))):
        part, dataset = family.config.partition, family.config.dataset
        algorithms = family.config.algorithm
        whole = [result for result in family.results if not result.facts["resumed"]]
        for algorithm in algorithms:
            theirs = paper.get((dataset, part.overlap or 0.0, part.alpha, algorithm))
            cpu = [result.facts["cpu_seconds"] / len(algorithms) for result in whole]
            memory = [result.facts["memory"] / GIB for result in whole]
            if theirs is None or not cpu:
                continue
            mean_cpu, mean_memory = sum(cpu) / len(cpu), sum(memory) / len(memory)
            lines.append(
                [
                    f"{DATASETS[dataset]}, {family.setting}",
                    algorithm,
                    _size(family),
                    clock(mean_cpu),
                    clock(theirs[0]),
                    f"{theirs[0] / mean_cpu:.1f} ×",
                    f"{mean_memory:.2f} G",
                    theirs[1],
                ]
            )
            rows.append(
                {
                    "dataset": dataset,
                    "overlap": part.overlap,
                    "alpha": part.alpha,
                    "algorithm": algorithm,
                    "cells": family.name,
                    "algorithms_at_once": len(algorithms),
                    "seeds": len(whole),
                    "ours_cpu_seconds": mean_cpu,
                    "theirs_cpu_seconds": theirs[0],
                    "ours_memory_gib": mean_memory,
                    "theirs_memory": theirs[1],
                }
            )
    head = [
        "setting",
        "algorithm",
        "ours is",
        "processor time",
        "paper",
        "ratio",
        "memory",
        "paper",
    ]
    notes = [
        "Ours is a cell's time over the algorithms that it trains at once, with all starts, the "
        "reading of the data and the evaluation; its memory is that of the whole cell. The "
        "paper does not say on which machine it measured; runs that were stopped in between are "
        "left out."
    ]
    return Report(
        name,
        study(name).title,
        [],
        [Grid("Ours beside theirs", head, lines, notes, sections=1)],
        rows,
    )


def _size(family: Family) -> str:
    """Return in how far a family is the paper's set-up."""
    config, facts = family.config, family.results[0].facts
    if family.scale == "full":
        return f"as the paper's, {len(config.algorithm)} at once"
    return (
        f"{facts['dataset']['train']:,} samples, {config.partition.devices} devices, "
        f"{config.sessions} x {config.rounds} rounds"
    )


# --- the models ----------------------------------------------------------------------------------

SHAPES: dict[str, tuple[tuple[int, ...], int]] = {
    "mnist": ((1, 28, 28), 10),
    "fmnist": ((1, 28, 28), 10),
    "svhn": ((3, 32, 32), 10),
    "cifar10": ((3, 32, 32), 10),
    "cifar100": ((3, 32, 32), 100),
    "tinyimagenet": ((3, 64, 64), 200),
    "agnews": ((64,), 4),
}
"""Shape of a sample, and number of classes."""


def simulation_parameters() -> Report:
    """Return N_p and phi of our models, counted, beside the paper's."""
    import torch  # noqa: PLC0415 - only to count

    from ebbflow.config.defaults import SETTINGS  # noqa: PLC0415
    from ebbflow.models import MODELS as BUILDERS  # noqa: PLC0415
    from ebbflow.models import flops  # noqa: PLC0415

    lines, rows = [], []
    for dataset, (shape, classes) in SHAPES.items():
        model = BUILDERS[SETTINGS[dataset].model](shape, classes)
        kind = torch.int64 if model.hints.bag_of_words is not None else torch.float32
        operations = flops(model, torch.zeros((1, *shape), dtype=kind))
        count, phi = model.layout.total, operations / model.layout.total
        theirs = MODELS[dataset]
        lines.append(
            [
                DATASETS[dataset],
                f"`{SETTINGS[dataset].model}`",
                f"{count:,}",
                f"{theirs.parameters:,}",
                f"{phi:.4g}",
                f"{theirs.complexity:g}",
                f"{100 * (phi / theirs.complexity - 1):+.1f} %",
            ]
        )
        rows.append(
            {
                "dataset": dataset,
                "parameters": count,
                "theirs_parameters": theirs.parameters,
                "phi": phi,
                "theirs_phi": theirs.complexity,
            }
        )
    same = sum(row["parameters"] == row["theirs_parameters"] for row in rows)
    head = ["data set", "model", "N_p", "paper", "phi", "paper", "difference"]
    note = (
        "phi counts one forward pass, two operations a multiply-add. The paper's text says that "
        "its phi covers forward and backward; its numbers are those of the forward pass alone."
    )
    name = "simulation-parameters"
    return Report(
        name,
        study(name).title,
        [f"Parameter counts are the paper's to the digit in {same} of {len(rows)} models."],
        [Grid("Ours beside theirs", head, lines, [note])],
        rows,
    )


# --- the cost analysis ---------------------------------------------------------------------------


def cost_analysis(results: Path) -> Report:
    """Return the paper's formulas beside what a run counted, stage by stage."""
    name = "cost-analysis"
    own = [
        family
        for family in families("mnist-accuracy", results)
        if family.config.partition.overlap == 0.0 and family.config.partition.alpha == 0.3
    ]
    if not own:
        return Report(name, study(name).title, ["No MNIST cell has been run yet."], [], [])
    family = largest_scale(own)[0]
    result = family.results[0]
    last = result.facts["sessions"][-1]
    pilot = result.facts["sessions"][0]
    lines, rows = [], []
    for session, stage, counted in _counted(result, (pilot, last)):
        formula = _formula(family, result, session).get(stage, Cost())
        for what in ("uploads", "broadcasts", "steps"):
            ours, theirs = getattr(counted, what), getattr(formula, what)
            lines.append([str(session), stage, what, f"{theirs:,}", f"{ours:,}"])
            rows.append(
                {"session": session, "stage": stage, "what": what, "formula": theirs, "run": ours}
            )
    plan = _plan(family, result)
    kept = accounting.storage(last["session"], plan.pilot, plan.parameters)
    share = _share(result)
    equal = all(row["formula"] == row["run"] for row in rows)
    head = ["session", "stage", "what", "by the formula", "counted by the run"]
    return Report(
        name,
        study(name).title,
        [
            f"{family.name}, seed {result.seed}, {plan.participants} devices that hold the same "
            f"number of samples: the paper's sums and the run's own counters "
            f"{'are equal' if equal else 'differ'}.",
            f"The probe takes {share:.1%} of what a session's training takes, in uploads. After "
            f"session {last['session']} the server keeps {kept.models} models and "
            f"{kept.signatures} signatures, {kept.bytes / 2**20:.2f} MiB.",
        ],
        [Grid("Formula and run", head, lines)],
        rows,
        {"equal": equal, "probe_share": share},
    )


def _counted(
    result: Result, sessions: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[int, str, Cost]]:
    for session in sessions:
        for stage, counts in session["work"].items():
            yield session["session"], stage, Cost(**counts)


def _plan(family: Family, result: Result, session: int = 0) -> CostPlan:
    config = family.config
    facts = result.facts["sessions"][session - 1 if session else -1]
    devices = sum(last - first + 1 for first, last in facts["devices"])
    stage = facts["work"].get(counters.MAIN) or facts["work"][counters.PILOT]
    held = stage["samples"] // stage["uploads"]
    steps = config.local.steps if isinstance(config.local.steps, int) else config.local.steps[1]
    return CostPlan(
        rounds=facts["rounds"],
        pilot=config.pilot.sessions,
        participants=devices,
        device=local_work(held, steps, config.local.batch or 1),
        parameters=MODELS[config.dataset].parameters,
        probe_rounds=config.probe.rounds,
    )


def _formula(family: Family, result: Result, session: int) -> counters.Costs:
    return planned(_plan(family, result, session), session)


def _share(result: Result) -> float:
    """Return the probe's uploads over those of the session's training."""
    work = result.facts["sessions"][-1]["work"]
    return float(work[counters.PROBE]["uploads"] / work[counters.MAIN]["uploads"])


# --- the bound -----------------------------------------------------------------------------------


def bound(results: Path) -> Report:
    """Return Theorem 1's bounds beside what the runs measured."""
    grids, rows = [], []
    for family in largest_scale(families("bound", results)):
        measured_bound = family.results[0].facts["bound"]
        lines = []
        for verdict in measured_bound["bounds"]:
            measured = verdict["measured"]
            lines.append(
                [
                    verdict["method"],
                    f"{measured:.3g}",
                    *(_bound_cell(verdict, kind) for kind in ("printed", "corrected", "sharp")),
                    f"{100 * verdict['printed_holds'] / verdict['rounds']:.0f} %, "
                    f"{100 * verdict['corrected_holds'] / verdict['rounds']:.0f} %",
                ]
            )
            rows.append(
                {
                    "cells": family.name,
                    "method": verdict["method"],
                    "measured": measured,
                    **{kind: verdict[kind]["total"] for kind in ("printed", "corrected", "sharp")},
                }
            )
        head = ["start", "measured", "as printed", "corrected", "noise measured"]
        rate = measured_bound["rate"]
        notes = [
            f"The largest rate is {rate['eta']:g}; the theorem as printed allows "
            f"{rate['printed']:.3g}, corrected {rate['corrected']:.3g}. In parentheses: formulas "
            "where not every round's rate is allowed, so no bound."
        ]
        setting = "in the theorem's own setting" if "plain" in family.name else "as it was run"
        title = f"MNIST, FedAvg, {setting}"
        grids.append(Grid(title, [*head, "rounds within the conditions"], lines, notes))
        grids.append(_gaps(title, measured_bound["starts"]))
    lines_of_text = [
        "Average squared gradient norms beside Theorem 1 as printed and as corrected in "
        "[theory.md](theory.md); the letter is the largest term's."
    ]
    return Report("bound", study("bound").title, lines_of_text, grids, strict(rows))


def _bound_cell(verdict: Mapping[str, Any], kind: str) -> str:
    terms = Terms(*(verdict[kind][name] for name in Terms._fields))
    letter, share = max(zip(LETTERS, terms.shares, strict=True), key=lambda pair: abs(pair[1]))
    text = f"{terms.total:.3g}, {letter}: {100 * share:.0f} %"
    holds = verdict["printed_holds" if kind == "printed" else "corrected_holds"]
    return text if holds == verdict["rounds"] else f"({text})"


def _gaps(title: str, starts: Sequence[Mapping[str, Any]]) -> Grid:
    methods = list(dict.fromkeys(start["method"] for start in starts))
    sessions = sorted({start["session"] for start in starts})
    by_place = {(start["method"], start["session"]): start["gap"] for start in starts}
    rows = [
        [str(s), *(f"{by_place[m, s]:.4f}" if (m, s) in by_place else "" for m in methods)]
        for s in sessions
    ]
    return Grid(f"{title}: F - F* at the start of a session", ["session", *methods], rows)
