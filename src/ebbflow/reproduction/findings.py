"""What the results say, in numbers: the sentences and small tables of the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from ebbflow.core.errors import EbbflowError
from ebbflow.paper.presets import DATASETS
from ebbflow.reproduction import reference
from ebbflow.reproduction.cells import Spread, make_cell
from ebbflow.reproduction.collecting import Family, chosen, families, shown, table_families
from ebbflow.reproduction.comparing import Row, Where, accuracy_rows, agreement, published_rows
from ebbflow.reproduction.fit import ALGORITHMS as FITTED
from ebbflow.reproduction.fit import ALPHA, DATASET, OVERLAPS, SEED, printed_cell
from ebbflow.reproduction.rendering import Grid
from ebbflow.reproduction.results import Lane, Result, read_result
from ebbflow.reproduction.studies import BESIDE, RAN, SIMILARITY_SCALES, accuracy_file
from ebbflow.reproduction.windows import Window

OTHERS = ("previous", "average", "continuous")
REPEATED = 6
"""Of nine numbers of two decimals: so many in common are no chance."""
CLOSE = 0.05
"""Largest distance of every weight from uniform that is called nearly uniform."""


# --- how much it gains ---------------------------------------------------------------------------


def gains(rows: Sequence[Row]) -> dict[str, tuple[float, float]]:
    """Return the median lead of the warm start over every other start, ours and the paper's.

    "best other" is the lead over whichever of them is best in the row.
    """
    found: dict[str, tuple[float, float]] = {}
    own = [row for row in rows if row.counted and "warm_start" in row.both()]
    for other in OTHERS:
        with_it = [row for row in own if other in row.both()]
        if with_it:
            found[other] = (
                median(row.mean("warm_start") - row.mean(other) for row in with_it),
                median(row.theirs["warm_start"].mean - row.theirs[other].mean for row in with_it),
            )
    leads = [lead(row) for row in own if len(row.both()) > 1]
    if leads:
        found["best other"] = (median(a for a, _ in leads), median(b for _, b in leads))
    return found


def lead(row: Row) -> tuple[float, float]:
    """Return the warm start's lead over the best other start, ours and the paper's."""
    others = [column for column in row.both() if column != "warm_start"]
    return (
        row.mean("warm_start") - max(row.mean(other) for other in others),
        row.theirs["warm_start"].mean - max(row.theirs[other].mean for other in others),
    )


class Group(NamedTuple):
    """Rows of a table whose sessions have equally much in common.

    ``common`` is how many labels the devices of one session share with those of the next.
    """

    dataset: str
    setting: str
    common: str
    rows: Sequence[Row]

    @property
    def label(self) -> str:
        """The data set and the setting."""
        return f"{DATASETS[self.dataset]}, {self.setting}"


def groups(rows: Sequence[Row]) -> list[Group]:
    """Return counted rows by data set and overlap; the appendix's by labels, devices and model."""
    own: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.counted and row.theirs:
            own.setdefault((row.dataset, _sessions(row)), []).append(row)
    return [
        Group(dataset, setting, _common_labels(_families(each)), each)
        for (dataset, setting), each in own.items()
    ]


def _sessions(row: Row) -> str:
    """Return what a row's sessions are like: the overlap, or labels, devices and model."""
    kind = row.setting.partition(",")[0]
    if row.study.startswith("first10"):
        return f"{kind}, {row.family.config.partition.devices} devices, {row.model}"
    return kind


def _families(rows: Sequence[Row]) -> list[Family]:
    """Return the families behind rows, each once."""
    return list({row.family.name: row.family for row in rows}.values())


def _common_labels(found: Sequence[Family]) -> str:
    """Return how many labels two sessions that follow each other share, of how many."""
    shared, classes = [], 0
    for family in found:
        for result in family.results:
            sessions = result.facts["sessions"][result.pilot :]
            classes = result.facts["dataset"]["classes"]
            shared += [len(set(a["labels"]) & set(b["labels"])) for a, b in pairwise(sessions)]
    return f"{fmean(shared):.2g} of {classes}" if shared else ""


def gains_grid(found: Sequence[Group]) -> Grid:
    """Return the median leads of every group."""
    lines = []
    for group in found:
        leads = gains(group.rows)
        first = agreement(group.rows)
        lines.append(
            [
                DATASETS[group.dataset],
                group.setting,
                group.common,
                str(first.rows),
                *(
                    f"{leads[name][0]:+.1f} ({leads[name][1]:+.1f})" if name in leads else ""
                    for name in (*OTHERS, "best other")
                ),
                f"{first.warm_first} ({first.warm_first_theirs})",
            ]
        )
    head = ["data set", "sessions", "common labels", "rows"]
    head += [f"over {name}" for name in (*OTHERS, "best other")]
    return Grid("Lead of the warm start", [*head, "first in"], lines)


def beside(rows: Sequence[Row]) -> dict[tuple[str, str, str], list[Row]]:
    """Return rows of algorithms that the paper did not run, by data set, sessions, algorithm."""
    found: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        own = row.algorithm in BESIDE and not row.counted and not row.note
        if own and "warm_start" in row.ours:
            where = DATASETS[row.dataset], _sessions(row), row.algorithm
            found.setdefault(where, []).append(row)
    return found


def own_lead(row: Row, others: Sequence[str] = OTHERS) -> float:
    """Return our warm start's lead over the best of other starts, whatever the paper has."""
    return row.mean("warm_start") - max(row.mean(other) for other in others if other in row.ours)


def beside_grid(rows: Sequence[Row]) -> Grid:
    """Return the median leads under algorithms that the paper did not run."""
    lines = []
    for where, each in beside(rows).items():
        columns = [
            [own_lead(row, [other]) for row in each if other in row.ours] for other in OTHERS
        ]
        best = [own_lead(row) for row in each]
        cells = [f"{median(leads):+.1f}" if leads else "" for leads in (*columns, best)]
        lines.append([*where, str(len(each)), *cells, str(sum(lead > 0 for lead in best))])
    head = ["data set", "sessions", "algorithm", "rows"]
    head += [f"over {name}" for name in (*OTHERS, "best other")]
    return Grid("Lead of the warm start under other algorithms", [*head, "first in"], lines)


def beside_verdict(rows: Sequence[Row]) -> str:
    """Return in how many lines of the grid the warm start leads in the median."""
    leads = [median(own_lead(row) for row in each) for each in beside(rows).values()]
    return f"in {sum(lead > 0 for lead in leads)} of {len(leads)} lines"


def verdict(found: Sequence[Group]) -> str:
    """Return in how many groups the warm start leads in the median, and where it trails most."""
    leads = {group.label: gains(group.rows)["best other"][0] for group in found}
    ahead = sum(value > 0 for value in leads.values())
    text = f"In {ahead} of {len(leads)} lines it leads the best other start in the median"
    least = min(leads, key=leads.__getitem__)
    return f"{text}." if leads[least] > 0 else f"{text}; least in {least} ({leads[least]:+.1f})."


ROUNDS = (1, 2, 5, 10, 20)
"""At which the lead is shown, beside a session's last round."""


def lead_by_round(found: Sequence[Group]) -> Grid:
    """Return the warm start's median lead in single rounds, from a session's first to its last."""
    lines = []
    for group in found:
        for other in OTHERS:
            leads = [each for row in group.rows if (each := _leads(row, other))]
            if leads:
                cells = [f"{median(column):+.1f}" for column in zip(*leads, strict=True)]
                lines.append([DATASETS[group.dataset], group.setting, other, *cells])
    head = ["data set", "sessions", "over", *(f"round {t}" for t in ROUNDS), "last round"]
    return Grid("Lead of the warm start, round by round", head, lines)


def _leads(row: Row, other: str) -> list[float]:
    """Return the mean lead over the seeds at each of the rounds; nothing without such curves."""
    session = row.family.session(row.transition)
    found = []
    for result in row.family.results:
        lanes = [Lane(row.algorithm, method, session) for method in ("warm_start", other)]
        if any(lane not in result.curves for lane in lanes):
            return []
        warm, there = (result.curves[lane] for lane in lanes)
        places = [min(t, len(warm)) - 1 for t in ROUNDS] + [-1]
        found.append([warm[place] - there[place] for place in places])
    return [fmean(column) for column in zip(*found, strict=True)]


def lead_by_transition(found: Sequence[Group], window: Window) -> Grid:
    """Return the warm start's median lead at every transition, of which the paper shows two."""
    lines = []
    for group in found:
        runs = {(row.family.name, row.algorithm): row.family for row in group.rows}
        last = min(f.config.sessions - f.session(0) for f in runs.values())
        for other in OTHERS:
            cells = []
            for k in range(1, last + 1):
                leads = [
                    fmean(warm) - fmean(there)
                    for (_, algorithm), family in runs.items()
                    for warm in [family.windows(algorithm, "warm_start", k, window)]
                    for there in [family.windows(algorithm, other, k, window)]
                    if warm and there
                ]
                cells.append(f"{median(leads):+.1f}" if leads else "")
            if any(cells):
                lines.append([DATASETS[group.dataset], group.setting, other, *cells])
    most = max((len(line) for line in lines), default=3)
    lines = [[*line, *[""] * (most - len(line))] for line in lines]
    head = ["data set", "sessions", "over", *(f"transition {k}" for k in range(1, most - 2))]
    return Grid("Lead of the warm start, transition by transition", head, lines)


def not_first(rows: Sequence[Row]) -> list[str]:
    """Return the counted rows in which the warm start is not the best start."""
    found = []
    for row in rows:
        if row.counted and row.theirs and row.orders()[0][0] != "warm_start":
            ours, theirs = lead(row)
            found.append(
                f"{DATASETS[row.dataset]}, {row.setting}, {row.algorithm}, transition "
                f"{row.transition}: {row.orders()[0][0]} is ahead by {-ours:.2f} points (in the "
                f"paper the warm start is {'ahead' if theirs > 0 else 'behind'} by "
                f"{abs(theirs):.2f})"
            )
    return found


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
        return ["The two cells that show it have not been run: `ebbflow paper fit`."], []
    algorithm = FITTED[0]
    far = {name: farthest(r, algorithm) for name, r in (("a", authors), ("p", printed))}
    nearly = far["p"] <= CLOSE
    lines = [
        f"With R = {printed.config.warm_start.scale:g} and the distance as it is printed, "
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


def news_findings(results: Path, window: Window) -> tuple[list[str], list[Grid]]:
    """Return what happens on AG News without common labels, and with many."""
    rows = accuracy_rows("agnews", results, window)
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
    shown_weights = {}
    for family in chosen(families("agnews-accuracy", results)):
        for algorithm in family.config.algorithm:
            if algorithm in RAN:
                label = family.name.removeprefix("agnews-")
                shown_weights[label] = (family.results[0], algorithm)
    grids = [weights_grid("Weights on AG News", shown_weights)] if shown_weights else []
    return lines, grids


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
