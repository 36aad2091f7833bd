"""What the results say, in numbers: the sentences and small tables of the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean, median

from chang2025 import reference
from chang2025.cells import Spread, make_cell
from chang2025.collecting import families, shown, table_families
from chang2025.comparing import Row, Where, accuracy_rows, agreement, published_rows
from chang2025.fit import ALGORITHMS as FITTED
from chang2025.fit import ALPHA, DATASET, OVERLAPS, SEED, printed_cell
from chang2025.rendering import Grid
from chang2025.results import Lane, Result, read_result
from chang2025.studies import BESIDE, RAN, SIMILARITY_SCALES, accuracy_file
from chang2025.windows import Window
from ebbflow.config.paper_rows import DATASETS
from ebbflow.core.errors import EbbflowError

REPEATED = 6
"""Of nine numbers of two decimals: so many in common are no chance."""
CLOSE = 0.05
"""Largest distance of every weight from uniform that is called nearly uniform."""


# --- the window ----------------------------------------------------------------------------------


def window_grid(datasets: Sequence[str], results: Path, windows: Sequence[Window]) -> Grid:
    """Return how far the agreement depends on the window that is read off."""
    lines = []
    for dataset in datasets:
        for window in windows:
            found = agreement(accuracy_rows(dataset, results, window))
            if found.rows:
                medians = ", ".join(f"{m} {value:.2f}" for m, value in found.medians.items())
                lines.append(
                    [
                        DATASETS[dataset],
                        window.mark,
                        f"{found.winners} of {found.rows}",
                        f"{found.orders} of {found.rows}",
                        medians,
                    ]
                )
    head = ["data set", "window", "same winner", "same order", "median absolute difference"]
    return Grid("Sensitivity to the window", head, lines)


def held_out(rows: Sequence[Row]) -> list[Row]:
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
        if (row.overlap, row.alpha, row.transition, row.method) == (0.0, 0.7, 2, "previous")
    }
    found = []
    for family in table_families("agnews", results):
        algorithm, part = family.config.algorithm[0], family.config.partition
        if algorithm in paper and (part.overlap, part.alpha) == (0.0, 0.7):
            lane = Lane(algorithm, "previous", family.session(2))
            result = family.results[0]
            before = result.curves[lane._replace(session=lane.session - 1)][-1]
            first = Window(window.length - 1).accuracy([], result.curves[lane])
            found.append(
                f"{algorithm}: {before:.1f} in the last round before, then {first:.2f} on "
                f"average over {window.length - 1} rounds (the paper's {paper[algorithm]:.2f} is "
                f"{1 / window.length:.0%} of {window.length * paper[algorithm]:.1f})"
            )
    if found:
        yield (
            "AG News without common labels, which took no part in the fit, shows it by itself. "
            f"There `previous` has, at transition 2: {'; '.join(found)}.\n"
        )


# --- weights -------------------------------------------------------------------------------------


def weights_grid(title: str, found: Mapping[str, tuple[Result, str]]) -> Grid:
    """Return the weights mu of runs, session by session; by a label a result and its algorithm."""
    lines = []
    for label, (result, algorithm) in found.items():
        for session in range(result.pilot + 3, result.config.sessions + 1):
            weights = result.start(Lane(algorithm, "warm_start", session))["weights"]
            if weights:
                shares = ", ".join(f"{z}: {mu:.3f}" for z, mu in weights.items())
                lines.append([label, str(session), f"{1 / len(weights):.3f}", shares])
    return Grid(title, ["", "session", "uniform would be", "weight of past session"], lines)


def farthest(result: Result, algorithm: str) -> float:
    """Return how far the weights of a run are from uniform at most."""
    return max(
        abs(mu - 1 / len(weights))
        for session in range(result.pilot + 3, result.config.sessions + 1)
        for weights in [result.start(Lane(algorithm, "warm_start", session))["weights"]]
        for mu in weights.values()
    )


def printed_distance(results: Path, window: Window) -> tuple[list[str], list[Grid]]:
    """Return what the printed distance does on MNIST, beside the authors'."""
    spread = Spread("mnist", overlap=0.0, alpha=0.3)
    try:
        authors = read_result(results, make_cell(spread, (*RAN, *BESIDE), SEED).name)
        printed = read_result(results, printed_cell().name)
    except EbbflowError:
        return ["The two cells that show it have not been run: `python -m chang2025 fit`."], []
    algorithm = FITTED[0]
    far = {name: farthest(r, algorithm) for name, r in (("a", authors), ("p", printed))}
    nearly = far["p"] <= CLOSE
    lines = [
        f"With R = {printed.config.parameters['warm_start']['scale']:g} and the distance as it is "
        "printed, "
        f"||G_s - G_z||, the weights on MNIST (overlap 0.0, alpha 0.3, {algorithm}, seed {SEED}) "
        f"are {'nearly uniform: ' if nearly else ''}at most {far['p']:.3f} away from uniform; "
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
            warm, average = Lane(name, "warm_start", session), Lane(name, "average", session)
            values = (
                authors.accuracy(warm, window),
                printed.accuracy(warm, window),
                authors.accuracy(average, window),
            )
            rows.append([name, str(k), *(f"{value:.2f}" for value in values)])
    head = ["algorithm", "transition", "authors' distance", "printed distance", "`average`"]
    return lines, [grid, Grid(f"Accuracy over {window}", head, rows)]


# --- AG News -------------------------------------------------------------------------------------


def news_findings(rows: Sequence[Row]) -> tuple[list[str], list[Grid]]:
    """Return what happens on AG News without common labels, and with many."""
    lines = []
    for row in rows:
        if not row.counted or row.transition != 2 or "previous" not in row.both():
            continue
        if row.setting.startswith("overlap 0.0"):
            ours = row.mean("warm_start") - row.mean("previous")
            theirs = row.theirs["warm_start"].mean - row.theirs["previous"].mean
            lines.append(
                f"{row.setting}, {row.algorithm}, transition 2: `warm_start` is {ours:+.1f} "
                f"points from `previous` (in the paper {theirs:+.1f})"
            )
        else:
            ours_order, theirs_order = row.orders()
            lines.append(
                f"{row.setting}, {row.algorithm}, transition 2: `{ours_order[0]}` is first (in "
                f"the paper `{theirs_order[0]}`)"
            )
    shown_weights = {
        row.family.name.removeprefix("agnews-"): (row.family.results[0], row.algorithm)
        for row in rows
        if row.algorithm in RAN
    }
    grids = [weights_grid("Weights on AG News", shown_weights)] if shown_weights else []
    return lines, grids


# --- precision -----------------------------------------------------------------------------------


def precision_check(rows: Sequence[Row]) -> Iterator[str]:
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
            for lane in ours.curves.keys() & theirs.curves.keys()
            for a, b in zip(ours.curves[lane], theirs.curves[lane], strict=True)
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
                                *map(shown, ours),
                                f"{means[1] - means[0]:+.2f}",
                            ]
                        )
    head = ["data set", "algorithm", "transition", "P = 1", "P = 3", "difference"]
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
    found = []
    for name, file, column in (
        ("V", "ablation_probe_rounds.csv", "v"),
        ("R", "ablation_similarity_scale.csv", "r"),
    ):
        for line in reference.table(file):
            dataset = reference.NAMES[line["dataset"]]
            usual = 1.0 if column == "v" else SIMILARITY_SCALES[dataset][0]
            if float(line[column]) != usual:
                continue
            where = Where(
                float(line["overlap"]),
                float(line["alpha"]),
                reference.ALGORITHMS[line["algorithm"]],
                int(line["transition"]),
            )
            here, there = float(line["accuracy"]), published_rows(dataset)[where]["warm_start"]
            if here != there.mean:
                found.append(
                    f"{DATASETS[dataset]}, overlap {where.overlap}, alpha {where.alpha}, "
                    f"{line['algorithm']}, transition {where.transition}: {there.mean:.2f} in the "
                    f"accuracy table, {here:.2f} for {name} = {usual:g}"
                )
    return found


def papers_exceptions() -> Grid:
    """Return in how many rows of the paper's own tables another start is ahead, by algorithm."""
    lines = []
    for dataset in DATASETS:
        rows = published_rows(dataset)
        cells = []
        for algorithm in RAN:
            own = [by_method for where, by_method in rows.items() if where.algorithm == algorithm]
            behind = sum(
                max(their.mean for their in each.values()) > each["warm_start"].mean for each in own
            )
            cells.append(f"{behind} of {len(own)}")
        lines.append([DATASETS[dataset], *cells])
    return Grid("Where the paper's proposed start is not first", ["data set", *RAN], lines)
