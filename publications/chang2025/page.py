"""docs/reproduction.md and its pictures, from the results alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, median
from textwrap import fill

from chang2025 import ablations, comparing, errata, figures, findings, leads
from chang2025 import resource_tables as ledgers
from chang2025 import time_to_accuracy as adapting
from chang2025.cells import WHOLE
from chang2025.collecting import Family, chosen, families
from chang2025.comparing import Row, accuracy_rows, agreement, first_ten_rows
from chang2025.fit import LENGTHS, Fit, read_fit
from chang2025.rendering import Grid, Report
from chang2025.reports import FIGURES, appendix_window
from chang2025.results import Lane
from chang2025.speed import seconds
from chang2025.studies import GREY, RAN, STUDIES, Scale, cells_of, default_seeds
from chang2025.tables import duration
from chang2025.windows import Window
from ebbflow.config.paper_rows import DATASETS, SEEDS
from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import write_atomically
from ebbflow.report.markdown import table

FIRST_TEN = (
    "first10-two-shard-partial-overlap",
    "first10-half-distinct",
    "first10-100-clients",
    "first10-tinyimagenet",
)
HEAD = """# The paper, made again

Written by `python -m chang2025 page` from the files in `results/`; no number on this page was
written by hand. It is about Chang et al., "Communication-Efficient Federated Learning under Dynamic
Device Arrival and Departure". We had its text, its tables and its authors' published code, and
nothing else; where code and text differ, the code is what was run (`--preset authors-code`, see
[method.md](method.md)). Its "Proposed" is called `warm_start` here, and its "SCAFFOLD"
`scaffold-authors`, for that is what the code has: no correction of local steps, and a server step
times the devices' rate. The true SCAFFOLD and FedAvg are shown beside it, in parentheses, and never
counted.
"""


def page_text(results: Path, pictures: str = "reproduction") -> str:
    """Return the page; ``pictures`` is the folder of its pictures, beside it."""
    fitted = read_fit(results)
    window = fitted.window
    rows = {d: accuracy_rows(d, results, window) for d in DATASETS}
    with_rows = {d: own for d, own in rows.items() if any(r.counted and r.theirs for r in own)}
    adapted = adapting.all_adaptations(results)
    parts = [
        HEAD,
        *_short(with_rows, adapted, window, results),
        *_window(fitted, results, with_rows),
        *_accuracy(with_rows, pictures, results),
        *_distance(results, window),
        *_sensitivity(results, window),
        *_time(adapted),
        *_first_ten(results),
        *_costs(results, pictures),
        *_resources(results),
        *_bound(results),
        *_illustrations(pictures),
        *_errata(),
        *_what_was_run(results),
        *_commands(),
        *_machines(results),
    ]
    return "\n".join(map(_wrapped, parts))


def _wrapped(part: str) -> str:
    """Return a paragraph in lines of the usual length; tables and lists as they are."""
    if part.startswith(("|", "#", "-", "<", "!", "```")) or part == HEAD:
        return part
    return (
        "\n\n".join(
            fill(each, 100, break_long_words=False, break_on_hyphens=False)
            for each in part.strip().split("\n\n")
        )
        + "\n"
    )


def write_page(results: Path, path: Path, *, draw: bool = True) -> list[Path]:
    """Write the page and, unless told otherwise, its pictures; return what was written."""
    folder = path.with_suffix("")
    written = []
    if draw:
        folder.mkdir(parents=True, exist_ok=True)
        for name in FIGURES:
            picture = folder / f"{name}.png"
            try:
                figures.figure(name, results, picture)
            except EbbflowError:
                continue  # the page says what was not run
            written.append(picture)
    write_atomically(path, page_text(results, folder.name).encode())
    return [*written, path]


# --- pieces --------------------------------------------------------------------------------------


def _grid(grid: Grid) -> Iterator[str]:
    yield table(grid.head, grid.rows)
    for note in grid.notes:
        yield f"{note}\n"


def _folded(title: str, grid: Grid) -> Iterator[str]:
    """Yield a long table that a reader may open."""
    yield f"<details><summary>{title}</summary>\n"
    yield from _grid(grid)
    yield "</details>\n"


def _titled(grid: Grid) -> Iterator[str]:
    yield f"**{grid.title}**\n"
    yield from _grid(grid)


def _listed(items: Sequence[str]) -> str:
    return "".join(
        fill(f"- {item}", 100, subsequent_indent="  ", break_on_hyphens=False) + "\n"
        for item in items
    )


# --- sections ------------------------------------------------------------------------------------


def appendix_rows(results: Path) -> list[Row]:
    """Return the rows of the appendix's tables, without those that only show that the path runs."""
    window = appendix_window(results)
    found = [row for name in FIRST_TEN for row in first_ten_rows(name, results, window)]
    return [row for row in found if row.family.scale == "full"]


def _short(
    rows: dict[str, list[Row]],
    adapted: Sequence[adapting.Adaptation],
    window: Window,
    results: Path,
) -> Iterator[str]:
    yield "## In short\n"
    if not rows:
        yield "Nothing has been run yet.\n"
        return
    everyone = [row for own in rows.values() for row in own]
    grouped = leads.groups(everyone)
    yield (
        "Points of accuracy by which the warm start is ahead of another start: the median over the "
        "rows of a table, and in parentheses the paper's for the same rows; then how many labels a "
        "session has in common with the one before, and in how many rows the warm start is first. "
        f"Accuracies are means over {window}, which is what fits the paper's tables best (below). "
        f"{leads.verdict(grouped)}\n"
    )
    yield from _grid(leads.gains_grid(grouped))
    if window.early:
        later = Window(window.length)
        plain = [row for dataset in rows for row in accuracy_rows(dataset, results, later)]
        yield f"The same over {later}, without the round before:\n"
        yield from _grid(leads.gains_grid(leads.groups(plain)))
    yield (
        "And in single rounds of the same sessions (the median over the same rows): a better start "
        "is worth most at once, and what is left of it in the last round is what it is worth to "
        "someone who trains that long anyway.\n"
    )
    yield from _grid(leads.lead_by_round(grouped))
    yield (
        "The paper's tables have transitions 2 and 4. There the group that comes back has been "
        "there less often than the other (1 of 3 and 2 of 5 past sessions), which the plain "
        "average suffers from; at transitions 1 and 3 both have been there equally often:\n"
    )
    yield from _grid(leads.lead_by_transition(grouped, window))
    if leads.beside(everyone):
        yield (
            "With FedAvg and with the true SCAFFOLD, which the paper did not run, over the rounds "
            "of the first table. The true SCAFFOLD is at the rate of the authors'. The more an "
            "algorithm learns in a round, the less a better start is worth:\n"
        )
        yield from _grid(leads.beside_grid(everyone))
    further = appendix_rows(results)
    appendix = leads.groups(further)
    if appendix:
        yield (
            "The appendix has other distributions of labels and fewer devices, and the first ten "
            f"rounds. {leads.verdict(appendix)} A warm start goes on from sessions like this "
            "one and leaves aside what was learnt in the others since. Where those have most "
            "labels in common with this one, or where a session is too short to learn its task, "
            "that is a loss:\n"
        )
        yield from _grid(leads.gains_grid(appendix))
        yield from _folded("Round by round", leads.lead_by_round(appendix))
    if leads.beside(further):
        yield (
            "How much of that is due to sessions that are too short? The true SCAFFOLD learns more "
            "in a round. With it, on the same devices and over the same rounds, the warm start "
            f"leads the best other start in the median {leads.beside_verdict(further)}:\n"
        )
        yield from _grid(leads.beside_grid(further))
    for dataset, own in rows.items():
        yield f"**{DATASETS[dataset]}.** {comparing.sentence(agreement(own))}\n"
    behind = leads.not_first(everyone)
    if behind:
        yield "Where it does not lead, in the tables of the main text:\n"
        yield _listed(behind)
    else:
        yield "There is no counted row of the main text in which another start is ahead.\n"
    yield f"{adapting.summary_sentence(adapted)}\n"


COMMITTED: tuple[tuple[Scale, tuple[str, ...], tuple[str, ...]], ...] = (
    ("full", ("mnist-accuracy", "fmnist-accuracy"), ()),
    ("full", ("probe-rounds", "similarity-scale", "pilot-ema"), GREY),
    ("full", FIRST_TEN[:3], GREY),
    ("full", ("resources-20", "bound"), ()),
    ("small", ("agnews-accuracy", "svhn-accuracy"), ()),
    ("small", ("probe-rounds", "similarity-scale", "pilot-ema"), ("agnews",)),
    ("small", ("cifar10-accuracy", "cifar100-accuracy", "tinyimagenet-accuracy"), ()),
)
"""What is run for this page: scale, tables, and the data sets if not all of them."""


def _commands() -> Iterator[str]:
    """Yield the commands that make everything again, with how long each should take."""
    yield "## Make it again\n"
    yield (
        "Each command may be stopped and started again, and runs nothing that is done. Times are "
        "estimates for the machine of `python -m chang2025 speed`.\n"
    )
    lines = ["$ python -m chang2025 list                    # what there is, what is done"]
    lines.append("$ python -m chang2025 fit                     # the window, on two MNIST cells")
    for scale, names, datasets in COMMITTED:
        cells = {
            cell.name: cell
            for name in names
            for cell in cells_of(name, scale, default_seeds(scale))
            if not datasets or cell.config.dataset in datasets
        }
        minutes = sum(map(seconds, cells.values())) / 60
        option = "" if scale == "full" else " --scale small"
        only = "".join(f" --only '{dataset}*'" for dataset in datasets)
        lines.append(
            f"$ python -m chang2025 run {' '.join(names)}{option}{only}    # {duration(minutes)}"
        )
    lines.append("$ python -m chang2025 compare mnist-accuracy  # or --json, --csv, --html")
    lines.append("$ python -m chang2025 page                    # this page and its pictures")
    text = "\n".join(lines)
    yield f"```console\n{text}\n```\n"


def _scale(family: Family) -> list[str]:
    config, facts = family.config, family.results[0].facts
    part = config.partition
    return [
        f"`{family.name}`",
        ", ".join(map(str, family.seeds)),
        f"{facts['dataset']['train']:,}",
        str(part.devices),
        f"{config.sessions} x {config.rounds}",
        config.precision,
        ", ".join(config.algorithm),
    ]


def _what_was_run(results: Path) -> Iterator[str]:
    yield "## What was run\n"
    yield (
        "Every line is a run for each of its seeds; tables share them. `full` is the paper's "
        "set-up, `small` a part of the data, fewer devices or fewer rounds. 100 devices in a "
        "session are 200 in all, for two groups take turns; the numbers of the appendix are "
        "totals. Curves of all rounds are in the CSV files: any window can be read off them.\n"
    )
    head = ["run", "seeds", "training samples", "devices", "sessions x rounds", "precision"]
    for name, study in STUDIES.items():
        own = families(name, results, missing=True)
        if not own or name.endswith("-curves") or name in ("time-to-accuracy", "resources-100"):
            continue
        yield f"**{study.title}** (`{name}`)\n"
        there = [family for family in own if family.results]
        if there:
            lines = [[f.scale, *_scale(f)] for f in there]
            grid = Grid(name, ["scale", *head, "algorithms"], lines)
            yield from _folded(f"run: {len(there)} of {len(own)} settings", grid)
        absent = [family for family in own if not family.results]
        for scale in ("full", "small"):
            missing = [f"`{family.name}`" for family in absent if family.scale == scale]
            if missing and (scale == "full" or not there):
                more = "" if scale == "full" else " --scale small"
                yield (
                    f"<details><summary>not run ({scale}): {len(missing)} of "
                    f"{sum(f.scale == scale for f in own)} settings</summary>\n"
                )
                yield f"`python -m chang2025 run {name}{more}`: {', '.join(missing)}.\n"
                yield "</details>\n"


def _window(fitted: Fit, results: Path, rows: dict[str, list[Row]]) -> Iterator[str]:
    yield "## Which window, which reading\n"
    window = fitted.window
    errors = fitted.errors[fitted.reading]
    other = min((w for w in errors if w.early != window.early), key=errors.__getitem__)
    yield (
        'The main text averages over "initial rounds" and does not say how many; the appendix says '
        "ten. We fitted the number, and the disputed readings, on two MNIST cells (overlap 0.0 and "
        "0.2, alpha 0.3, seed 100; FedProx, FedACG and the authors' SCAFFOLD) and nowhere else. "
        f"The least mean absolute difference, {errors[window]:.2f} points, is that of {window}, "
        f"and the reading {fitted.reading}. The best that begins "
        f"{'with the session' if window.early else 'one entry early'} is {other}: "
        f"{errors[other]:.2f} points; the first ten rounds have {errors[Window(10)]:.2f}. What was "
        "fitted is used unchanged for all tables of the main text and its supplement; the "
        "appendix's tables are read at its ten, counted the same way. MOON, alpha 0.7, the other "
        "seeds and all other data sets took no part in the fit.\n"
    )
    yield (
        f"That is the least of {sum(map(len, fitted.errors.values()))} combinations on "
        "few numbers, and two of the readings (windows that begin early, and the first teacher of "
        "Continuous) were thought of because the first of these cells did not fit; so the rows "
        "outside the fit are the test.\n"
    )
    if "mnist" in rows:
        yield (
            "The MNIST rows that took no part: "
            f"{comparing.sentence(agreement(findings.held_out(rows['mnist'])))}\n"
        )
    if window.early:
        yield (
            "Why early? The authors' list of accuracies begins with the untrained model, so that "
            "a list cut every T entries gives a session the last round of the one before. How "
            "their tables were cut is not published; this is what the numbers say. It makes the "
            "paper's tables kinder to the starts that fall at a transition than a reader would "
            "think: the lead of the warm start over the rounds themselves is larger (below).\n"
        )
        yield from findings.early_evidence(results, window)
    yield (
        "`each_step`: five steps for every device, each on a fresh draw; `carried`: session P+1 "
        "goes on from the pilot; `raw`: the printed distance; `untaught`: no teacher in the first "
        "session of Continuous. Mean absolute differences in points, by the length of the window, "
        "from the first round on and early:\n"
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
    yield from _grid(findings.window_grid(list(rows), results, list(several)))


def _accuracy(rows: dict[str, list[Row]], pictures: str, results: Path) -> Iterator[str]:
    yield "## Accuracy after a transition\n"
    yield (
        "In a cell our mean and deviation over seeds, below it the paper's mean, the difference in "
        "points and in the paper's standard deviations. Best start in bold. The last column says "
        "what agrees with the paper: the order of all starts, the winner, or not even that.\n"
    )
    for dataset, own in rows.items():
        yield f"### {DATASETS[dataset]}\n"
        yield f"{comparing.sentence(agreement(own))}\n"
        yield from _part(dataset, own)
        yield from findings.precision_check(own)
        yield f"![Accuracy over the rounds]({pictures}/{dataset}-curves.png)\n"
        grid = Grid(dataset, *comparing.compact_table(own))
        yield from _folded(f"All rows: {len(own)}", grid)
        yield from _differences(own)
        if dataset == "agnews":
            lines, grids = findings.news_findings(own)
            yield _listed(lines)
            for each in grids:
                yield from _folded(each.title, each)
    for dataset in DATASETS:
        if dataset not in rows:
            yield f"### {DATASETS[dataset]}\n"
            yield _path_only(dataset, chosen(families(f"{dataset}-accuracy", results)))


def _part(dataset: str, rows: Sequence[Row]) -> Iterator[str]:
    """Yield how a table on a part of the data differs from the paper's, if it is one."""
    own = [row for row in rows if row.counted]
    if all(row.family.scale == "full" for row in own):
        return
    here, paper = own[0].family, cells_of(f"{dataset}-accuracy", "full", default_seeds("full"))[0]
    config, theirs = here.config, paper.config
    learnt, before = [], []
    for row in own:
        lane = Lane(row.algorithm, "warm_start", row.family.session(row.transition))
        for result in row.family.results:
            weights = result.start(lane)["weights"]
            nearest = int(max(weights, key=weights.__getitem__))
            learnt.append(result.curves[lane][-1])
            before.append(result.curves[lane._replace(session=nearest)][-1])
    yield (
        f"A part of it: {here.results[0].facts['dataset']['train']:,} of {WHOLE[dataset]:,} "
        f"samples, {config.partition.devices} devices a session (in the paper "
        f"{theirs.partition.devices}), {config.sessions} sessions of {config.rounds} rounds "
        f"({theirs.sessions} of {theirs.rounds}), {len(here.seeds)} of {len(SEEDS)} seeds, "
        f"{config.precision}. In the last round of these sessions `warm_start` has "
        f"{fmean(learnt):.1f} percent on average; the past session that its start draws on most "
        f"had ended at {fmean(before):.1f} percent.\n"
    )


def _path_only(dataset: str, own: Sequence[Family]) -> str:
    """Return what is said of a data set whose table is not compared."""
    if not own:
        return f"Not run: `python -m chang2025 run {dataset}-accuracy`.\n"
    family = own[0]
    last = family.config.sessions - family.config.pilot.sessions - 2
    scores = ", ".join(
        f"{method} {value:.1f}"
        for method in family.config.methods
        for value in family.windows(family.config.algorithm[0], method, last, Window(10))[:1]
    )
    return (
        f"Only the path was tried: {family.results[0].facts['dataset']['train']:,} images, "
        f"{family.config.partition.devices} devices, {family.config.sessions} sessions of "
        f"{family.config.rounds} rounds, no trained weights ({family.config.algorithm[0]}: "
        f"{scores} percent, which says nothing about the method). The full table is one command "
        f"for someone with a GPU and the weights: `python -m chang2025 run {dataset}-accuracy "
        "--device cuda --weights FILE`.\n"
    )


def _differences(rows: Sequence[Row]) -> Iterator[str]:
    listed = comparing.large_differences(rows)
    if not listed.rows:
        yield f"No difference is larger than {comparing.LARGE:g} points.\n"
        return
    unexplained = sum(line[-1] == "unexplained" for line in listed.rows)
    title = f"{len(listed.rows)} differences of more than {comparing.LARGE:g} points"
    if unexplained:
        title += f", {unexplained} of them unexplained"
    yield from _folded(title, listed)


def _distance(results: Path, window: Window) -> Iterator[str]:
    yield "## The printed distance\n"
    lines, grids = findings.printed_distance(results, window)
    yield "\n\n".join(lines) + "\n"
    for grid in grids:
        yield from _titled(grid)


def _sensitivity(results: Path, window: Window) -> Iterator[str]:
    yield "## Sensitivity\n"
    yield (
        "The paper has rows for AG News, SVHN, CIFAR-100 and TinyImageNet; ours on MNIST and "
        "Fashion-MNIST are further ones, at overlap 0.2 and alpha 0.3. Accuracy of `warm_start`.\n"
    )
    for name in ablations.ABLATIONS:
        found = ablations.ablation(name, results, window)
        yield f"### {found.title}\n"
        yield f"{found.lines[1]}\n"
        for grid in found.grids:
            yield from _folded(grid.title, grid)
        absent = [
            DATASETS[dataset]
            for dataset in STUDIES[name].datasets
            if not any(row["dataset"] == dataset for row in found.rows)
        ]
        if absent:
            yield f"Not run: {', '.join(absent)}.\n"
    grid = findings.pilot_length_grid(results, window)
    if grid.rows:
        apart = [abs(float(line[-1])) for line in grid.rows]
        yield f"### {grid.title}\n"
        yield (
            f"At most {max(apart):.2f} points apart, in the median {median(apart):.2f}: after the "
            "restart at session P+1 the pilot serves the signatures alone.\n"
        )
        yield from _folded("All rows", grid)


def _time(adapted: Sequence[adapting.Adaptation]) -> Iterator[str]:
    found = adapting.reported(adapted)
    yield "## Time to accuracy\n"
    yield "\n\n".join(found.lines) + "\n"
    yield (
        "Latency and energy are rounds times the mean cost of a round, by [costs.md](costs.md) "
        "with its defaults (the paper's table of simulation parameters, 100 MHz shared equally); "
        "the paper's own latencies come out with `--preset fitted`. The pilot session is not "
        "charged here: that page has what this changes. A gain is a sum of points over a "
        "session's rounds.\n"
    )
    for grid in found.grids:
        yield from _folded(grid.title, grid)
    for dataset in adapting.MEASURED:
        if not any(row["dataset"] == dataset for row in found.rows):
            yield f"Not run: {DATASETS[dataset]}.\n"


def _first_ten(results: Path) -> Iterator[str]:
    yield "## The first ten rounds\n"
    yield (
        "The appendix names an MLP for MNIST and Fashion-MNIST, while the paper's parameter counts "
        "are those of softmax regression; both were run. It says what labels devices hold, but not "
        "which of them form a session, nor rates, local steps or rounds: ours are two halves that "
        "take turns, and the main text's settings. So these rows say what the method does there, "
        "and their distance from the paper's numbers (one for each cell, without a deviation) says "
        "little.\n"
    )
    for name in FIRST_TEN:
        own = first_ten_rows(name, results, appendix_window(results))
        yield f"### {STUDIES[name].title}\n"
        if not any(row.counted for row in own):
            yield f"Not run in full: `python -m chang2025 run {name}`.\n"
            continue
        for model in dict.fromkeys(row.model for row in own):
            part = [row for row in own if row.model == model]
            yield f"`{model}`: {comparing.sentence(agreement(part))}\n"
            for dataset in dict.fromkeys(row.dataset for row in part):
                rows = [row for row in part if row.dataset == dataset]
                grid = Grid(name, *comparing.compact_table(rows))
                yield from _folded(f"{DATASETS[dataset]}, {model}: {len(rows)} rows", grid)
        yield from _differences(own)
    yield "Rows of the paper's appendix that share most of their numbers:\n"
    yield _listed(findings.repeated_rows())


def _costs(results: Path, pictures: str) -> Iterator[str]:
    reports: tuple[Callable[[], Report], ...] = (
        lambda: ledgers.cost_analysis(results),
        ledgers.simulation_parameters,
    )
    yield "## Costs\n"
    for make in reports:
        found = make()
        yield f"### {found.title}\n"
        yield "\n\n".join(found.lines) + "\n"
        for grid in found.grids:
            yield from _grid(grid)
    yield f"### {STUDIES['bandwidth'].title}\n"
    label, rounds = figures.svhn_rounds(results)
    counts = ", ".join(f"{method} {count:.3g}" for method, count in rounds.items())
    yield f"Rounds to the target, {label}: {counts}.\n"
    yield f"![Latency and energy over the bandwidth]({pictures}/bandwidth.png)\n"


def _resources(results: Path) -> Iterator[str]:
    yield "## Resources\n"
    for name in ("resources-100", "resources-20"):
        found = ledgers.resources(name, results)
        yield f"### {found.title}\n"
        if not found.rows:
            yield f"Not run: `python -m chang2025 run {name}`.\n"
            continue
        for grid in found.grids:
            yield from _folded(f"{len(grid.rows)} rows", grid)


def _bound(results: Path) -> Iterator[str]:
    found = ledgers.bound(results)
    yield "## The bound\n"
    if not found.grids:
        yield "Not run: `python -m chang2025 run bound`.\n"
        return
    yield "\n\n".join(found.lines) + "\n"
    for grid in found.grids:
        yield from _titled(grid)


def _illustrations(pictures: str) -> Iterator[str]:
    yield "## The two illustrations\n"
    yield f"![Sessions, and devices that come and go]({pictures}/system-model.png)\n"
    yield f"![Algorithm 1 with four sessions]({pictures}/algorithm-illustration.png)\n"


def _errata() -> Iterator[str]:
    yield "## Errata\n"
    yield (
        "What in the paper is not as it was run, or cannot be, and what is done about it here. "
        "The findings above stand or fall with the method, not with these. The proof's are in "
        "[theory.md](theory.md), the wireless model's in [costs.md](costs.md).\n"
    )
    for title, group in errata.GROUPS:
        yield f"**{title}**\n"
        yield table(["where", "what", "here"], [list(erratum) for erratum in group])
    yield "Numbers of the paper's tables that contradict each other:\n"
    yield _listed(findings.contradictions())
    yield "Rows of the paper's accuracy tables in which the proposed start is not the best:\n"
    yield from _grid(findings.papers_exceptions())


def _machines(results: Path) -> Iterator[str]:
    """Yield where and with what the results were made."""
    found: dict[tuple[str, ...], int] = {}
    dates = set()
    for name in STUDIES:
        for family in families(name, results):
            for result in family.results:
                machine, versions = result.facts["machine"], result.facts["versions"]
                where = ", ".join(f"{k} {v}" for k, v in machine.items() if k != "memory")
                what = ", ".join(f"{k} {v}" for k, v in versions.items())
                found.setdefault((result.name, where, what), 1)
                dates.add(result.facts["date"])
    yield "## Made with\n"
    pairs: dict[tuple[str, str], int] = {}
    for _, where, what in found:
        pairs[where, what] = pairs.get((where, what), 0) + 1
    yield _listed([f"{n} runs on {where}; {what}" for (where, what), n in pairs.items()])
    if dates:
        yield f"From {min(dates)} to {max(dates)}.\n"
    algorithms = ", ".join(RAN)
    yield f"Counted algorithms of the main tables: {algorithms}.\n"
