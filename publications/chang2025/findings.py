"""What the results say, in numbers: the sentences and small tables of the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean, median

from chang2025 import reference
from chang2025.cells import DataSplit, make_cell
from chang2025.collecting import families, mean_text, table_families
from chang2025.comparing import agreement
from chang2025.fit import ALGORITHMS as FITTED
from chang2025.fit import ALPHA, DATASET, OVERLAPS, SEED, printed_cell
from chang2025.rendering import Grid
from chang2025.results import CurveKey, Result, read_result
from chang2025.rows import TRANSITIONS, ComparedRow, RowKey, accuracy_rows, published_rows
from chang2025.studies import accuracy_file
from chang2025.study_cells import EXTRA_ALGORITHMS, LONG_PILOT, MAIN_ALGORITHMS, SIMILARITY_SCALES
from chang2025.windows import Window
from ebbflow.config.paper_rows import DATASETS
from ebbflow.core.errors import EbbflowError

REPEATED = 6
"""Of nine numbers of two decimals: so many in common are no chance."""
FIRST_SHOWN = TRANSITIONS[0]
"""The first transition of the paper's accuracy tables."""
CLOSE = 0.05
"""Largest distance of every weight from uniform that is called nearly uniform."""


# --- the window ----------------------------------------------------------------------------------


def window_grid(datasets: Sequence[str], results: Path, windows: Sequence[Window]) -> Grid:
    """Return how far the agreement depends on the window that is read off."""
    lines = []
    for dataset in datasets:
        for window in windows:
            agreed = agreement(accuracy_rows(dataset, results, window))
            if agreed.rows:
                medians = ", ".join(f"{m} {value:.2f}" for m, value in agreed.medians.items())
                lines.append(
                    [
                        DATASETS[dataset],
                        window.mark,
                        f"{agreed.winners} of {agreed.rows}",
                        f"{agreed.orders} of {agreed.rows}",
                        medians,
                    ]
                )
    head = ["data set", "window", "same winner", "same order", "median absolute difference"]
    return Grid("Sensitivity to the window", head, lines)


def held_out(rows: Sequence[ComparedRow]) -> list[ComparedRow]:
    """Return the rows that took no part in the fit."""
    fitted = {f"overlap {overlap}, alpha {ALPHA}" for overlap in OVERLAPS}
    return [
        row
        for row in rows
        if not (row.dataset == DATASET and row.setting in fitted and row.algorithm in FITTED)
    ]


def early_evidence(results: Path, window: Window) -> Iterator[str]:
    """Yield what AG News without common labels says about where the paper's windows begin."""
    paper = {
        row.algorithm: row.accuracy
        for row in reference.accuracies(accuracy_file("agnews"))
        if (row.overlap, row.alpha, row.transition, row.method)
        == (0.0, 0.7, FIRST_SHOWN, "previous")
    }
    evidence = []
    for family in table_families("agnews", results):
        algorithm, part = family.config.algorithm[0], family.config.partition
        if algorithm in paper and (part.overlap, part.alpha) == (0.0, 0.7):
            key = CurveKey(algorithm, "previous", family.session(FIRST_SHOWN))
            result = family.results[0]
            before = result.curves[key._replace(session=key.session - 1)][-1]
            first = Window(window.length - 1).accuracy([], result.curves[key])
            evidence.append(
                f"{algorithm}: {before:.1f} in the last round before, then {first:.2f} on "
                f"average over {window.length - 1} rounds (the paper's {paper[algorithm]:.2f} is "
                f"{1 / window.length:.0%} of {window.length * paper[algorithm]:.1f})"
            )
    if evidence:
        yield (
            "AG News without common labels, which took no part in the fit, shows the same. "
            f"There `previous` has, at transition {FIRST_SHOWN}: {'; '.join(evidence)}.\n"
        )


def returning_groups(rows: Sequence[ComparedRow]) -> tuple[dict[int, str], dict[int, str]]:
    """Return in how many past sessions the devices of a transition have been there before.

    As in "1 of 3", by transition: those of the paper's tables, and the others.
    """
    family = rows[0].family
    sessions = family.results[0].facts["sessions"]
    first = family.config.pilot.sessions
    counts = {}
    for k in range(1, len(sessions) - first - 1):
        here = family.session(k) - 1
        past = sessions[first:here]
        again = sum(session["devices"] == sessions[here]["devices"] for session in past)
        counts[k] = f"{again} of {len(past)}"
    return (
        {k: count for k, count in counts.items() if k in TRANSITIONS},
        {k: count for k, count in counts.items() if k not in TRANSITIONS},
    )


def local_steps() -> int:
    """Return e, the local steps of the fit's cells where every device makes all of them."""
    steps = printed_cell().config.local.steps
    return steps if isinstance(steps, int) else steps[1]


# --- weights -------------------------------------------------------------------------------------


def weights_grid(title: str, runs: Mapping[str, tuple[Result, str]]) -> Grid:
    """Return the weights mu of runs, session by session; by a label a result and its algorithm."""
    lines = []
    for label, (result, algorithm) in runs.items():
        for session in range(result.pilot + 3, result.config.sessions + 1):
            weights = result.start(CurveKey(algorithm, "warm_start", session))["weights"]
            if weights:
                shares = ", ".join(f"{z}: {mu:.3f}" for z, mu in weights.items())
                lines.append([label, str(session), f"{1 / len(weights):.3f}", shares])
    return Grid(title, ["", "session", "uniform would be", "weight of past session"], lines)


def farthest(result: Result, algorithm: str) -> float:
    """Return how far the weights of a run are from uniform at most."""
    return max(
        abs(mu - 1 / len(weights))
        for session in range(result.pilot + 3, result.config.sessions + 1)
        for weights in [result.start(CurveKey(algorithm, "warm_start", session))["weights"]]
        for mu in weights.values()
    )


def printed_distance(results: Path, window: Window) -> tuple[list[str], list[Grid]]:
    """Return what the printed distance does on MNIST, beside the authors'."""
    split = DataSplit(DATASET, overlap=OVERLAPS[0], alpha=ALPHA)
    everyone = (*MAIN_ALGORITHMS, *EXTRA_ALGORITHMS)
    try:
        authors = read_result(results, make_cell(split, everyone, SEED).name)
        printed = read_result(results, printed_cell().name)
    except EbbflowError:
        return ["The two cells that show it have not been run: `python -m chang2025 fit`."], []
    algorithm = FITTED[0]
    far = {name: farthest(r, algorithm) for name, r in (("a", authors), ("p", printed))}
    nearly = far["p"] <= CLOSE
    lines = [
        f"With R = {printed.config.parameters['warm_start']['scale']:g} and the distance as it is "
        "printed, "
        f"||G_s - G_z||, the weights on {DATASETS[DATASET]} (overlap {split.overlap}, alpha "
        f"{split.alpha}, {algorithm}, seed {SEED}) are {'nearly uniform: ' if nearly else ''}at "
        f"most {far['p']:.3f} away from uniform; "
        "normalised tensor by tensor, as in the authors' code, they are up to "
        f"{far['a']:.3f} away. A warm start with uniform weights is the plain average of past "
        "models.",
    ]
    grid = weights_grid(
        "Weights under both distances",
        {"as printed": (printed, algorithm), "authors' code": (authors, algorithm)},
    )
    rows = []
    for name in FITTED:
        for k in (1, 2, 3, 4):
            session = authors.pilot + 2 + k
            warm, average = (
                CurveKey(name, "warm_start", session),
                CurveKey(name, "average", session),
            )
            values = (
                authors.accuracy(warm, window),
                printed.accuracy(warm, window),
                authors.accuracy(average, window),
            )
            rows.append([name, str(k), *(f"{value:.2f}" for value in values)])
    head = ["algorithm", "transition", "authors' distance", "printed distance", "`average`"]
    return lines, [grid, Grid(f"Accuracy over {window}", head, rows)]


# --- AG News -------------------------------------------------------------------------------------


def news_findings(rows: Sequence[ComparedRow]) -> tuple[list[str], list[Grid]]:
    """Return what happens on AG News without common labels, and with many."""
    lines = []
    for row in rows:
        if not row.counted or row.transition != FIRST_SHOWN or "previous" not in row.both():
            continue
        if row.setting.startswith("overlap 0.0"):
            ours = row.mean("warm_start") - row.mean("previous")
            theirs = row.theirs["warm_start"].mean - row.theirs["previous"].mean
            lines.append(
                f"{row.setting}, {row.algorithm}, transition {FIRST_SHOWN}: `warm_start` is "
                f"{ours:+.1f} points from `previous` (in the paper {theirs:+.1f})"
            )
        else:
            ours_order, theirs_order = row.orders()
            lines.append(
                f"{row.setting}, {row.algorithm}, transition {FIRST_SHOWN}: `{ours_order[0]}` is "
                f"first (in the paper `{theirs_order[0]}`)"
            )
    shown_weights = {
        row.family.name.removeprefix("agnews-"): (row.family.results[0], row.algorithm)
        for row in rows
        if row.algorithm in MAIN_ALGORITHMS
    }
    grids = [weights_grid("Weights on AG News", shown_weights)] if shown_weights else []
    return lines, grids


# --- precision -----------------------------------------------------------------------------------


def precision_check(rows: Sequence[ComparedRow]) -> Iterator[str]:
    """Yield how far rows that were run in both precisions are apart, and whether the order is."""
    usual_rows = {(r.setting, r.algorithm, r.transition): r for r in rows if not r.note}
    for exact in rows:
        usual = usual_rows.get((exact.setting, exact.algorithm, exact.transition))
        if exact.note != "fp32" or usual is None:
            continue
        twins = [
            (a, b) for a in usual.family.results for b in exact.family.results if a.seed == b.seed
        ]
        if not twins:
            continue
        apart = [
            abs(a - b)
            for ours, theirs in twins
            for key in ours.curves.keys() & theirs.curves.keys()
            for a, b in zip(ours.curves[key], theirs.curves[key], strict=True)
        ]
        seeds = {result.seed for result, _ in twins}
        means = [
            {
                method: fmean(
                    value
                    for seed, value in zip(row.seeds, row.ours[method], strict=True)
                    if seed in seeds
                )
                for method in exact.ours
            }
            for row in (usual, exact)
        ]
        orders = [sorted(each, key=each.__getitem__, reverse=True) for each in means]
        same = "in the same order" if orders[0] == orders[1] else "in another order"
        values = "; ".join(
            f"{method} {means[0][method]:.2f} and {means[1][method]:.2f}" for method in orders[0]
        )
        yield (
            f"The same in fp32 ({exact.setting}, {exact.algorithm}): accuracies of single rounds "
            f"are {median(apart):.1f} points from those in {usual.family.config.precision} in the "
            f"median, {max(apart):.1f} at most. At transition {exact.transition} the starts are "
            f"{same} ({values}).\n"
        )


# --- P -------------------------------------------------------------------------------------------


def pilot_length_grid(results: Path, window: Window) -> Grid:
    """Return the warm start after one pilot session and after three, at the same transitions."""
    lines = []
    long = {f.config.dataset: f for f in families("pilot-ema", results) if _averaged(f.name)}
    for dataset, three in long.items():
        ones = [f for f in families("probe-rounds", results) if _usual(f.name, three.name)]
        for one in ones:
            for algorithm in three.config.algorithm:
                for k in (2, 4):
                    ours = [f.windows(algorithm, "warm_start", k, window) for f in (one, three)]
                    if all(ours):
                        means = [sum(values) / len(values) for values in ours]
                        lines.append(
                            [
                                DATASETS[dataset],
                                algorithm,
                                str(k),
                                *map(mean_text, ours),
                                f"{means[1] - means[0]:+.2f}",
                            ]
                        )
    lengths = [f"P = {length}" for length in (1, LONG_PILOT["pilot.sessions"])]
    head = ["data set", "algorithm", "transition", *lengths, "difference"]
    return Grid("One pilot session or three", head, lines)


def _averaged(name: str) -> bool:
    return name.endswith("-p3")


def _usual(name: str, long: str) -> bool:
    """Whether a family is the one with a short pilot and all else the same."""
    return name == long.removesuffix("-p3")


# --- the paper's own tables ----------------------------------------------------------------------


def repeated_rows() -> list[str]:
    """Return the rows of the appendix that share most numbers, as two experiments hardly would."""
    series: dict[tuple[str, ...], tuple[float, ...]] = {}
    for file in (
        "first10_two_shard_partial_overlap.csv",
        "first10_half_distinct.csv",
        "first10_100_clients_partial_overlap.csv",
        "first10_tinyimagenet_fedavg.csv",
    ):
        many = ", 100 clients" if "100" in file else ""
        for row in reference.table(file):
            where = row["algorithm"], row["label_distribution"] + many, row["dataset_model"]
            value = float(row["accuracy"])
            series[where] = (*series.get(where, ()), value)
    return [
        f"{_where(a)} = {_where(b)} ({_common(series[a], series[b])} numbers)"
        for a, b in combinations(series, 2)
        if _common(series[a], series[b]) >= REPEATED
    ]


def _common(a: Sequence[float], b: Sequence[float]) -> int:
    return len(set(a) & set(b))


def _where(place: Sequence[str]) -> str:
    return ", ".join(place)


def contradictions() -> list[str]:
    """Return where an ablation's usual variant is another number than the accuracy table's row."""
    sentences = []
    for name, file, column in (
        ("V", "ablation_probe_rounds.csv", "v"),
        ("R", "ablation_similarity_scale.csv", "r"),
    ):
        for line in reference.table(file):
            dataset = reference.NAMES[line["dataset"]]
            usual = 1.0 if column == "v" else SIMILARITY_SCALES[dataset][0]
            if float(line[column]) != usual:
                continue
            where = RowKey(
                float(line["overlap"]),
                float(line["alpha"]),
                reference.ALGORITHMS[line["algorithm"]],
                int(line["transition"]),
            )
            here, there = float(line["accuracy"]), published_rows(dataset)[where]["warm_start"]
            if here != there.mean:
                sentences.append(
                    f"{DATASETS[dataset]}, overlap {where.overlap}, alpha {where.alpha}, "
                    f"{line['algorithm']}, transition {where.transition}: {there.mean:.2f} in the "
                    f"accuracy table, {here:.2f} for {name} = {usual:g}"
                )
    return sentences


def papers_exceptions() -> Grid:
    """Return in how many rows of the paper's own tables another start is ahead, by algorithm."""
    lines = []
    for dataset in DATASETS:
        rows = published_rows(dataset)
        cells = []
        for algorithm in MAIN_ALGORITHMS:
            own = [by_method for where, by_method in rows.items() if where.algorithm == algorithm]
            behind = sum(
                max(their.mean for their in each.values()) > each["warm_start"].mean for each in own
            )
            cells.append(f"{behind} of {len(own)}")
        lines.append([DATASETS[dataset], *cells])
    return Grid(
        "Where the paper's proposed start is not first", ["data set", *MAIN_ALGORITHMS], lines
    )
