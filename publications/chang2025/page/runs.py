"""The page's sections on what was run, how to make it again, and on which machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from chang2025.collecting import Family, families
from chang2025.page.pieces import bullets, folded
from chang2025.rendering import Grid
from chang2025.speed import seconds
from chang2025.studies import APPENDIX_STUDIES, STUDIES, cells_of, default_seeds
from chang2025.study_cells import MAIN_ALGORITHMS, SMALL_MODEL_DATASETS, Scale
from chang2025.tables import duration
from ebbflow.config.defaults import SETTINGS

COMMITTED: tuple[tuple[Scale, tuple[str, ...], tuple[str, ...]], ...] = (
    ("full", ("mnist-accuracy", "fmnist-accuracy"), ()),
    ("full", ("probe-rounds", "similarity-scale", "pilot-ema"), SMALL_MODEL_DATASETS),
    ("full", APPENDIX_STUDIES[:3], SMALL_MODEL_DATASETS),
    ("full", ("resources-20", "bound"), ()),
    ("small", ("agnews-accuracy", "svhn-accuracy"), ()),
    ("small", ("probe-rounds", "similarity-scale", "pilot-ema"), ("agnews",)),
    ("small", ("cifar10-accuracy", "cifar100-accuracy", "tinyimagenet-accuracy"), ()),
)
"""What is run for this page: scale, tables, and the data sets if not all of them."""


def what_was_run(results: Path) -> Iterator[str]:
    """Yield every run with its settings, and what has not been run."""
    yield "## What was run\n"
    devices = SETTINGS["mnist"].devices
    yield (
        "Every line is a run for each of its seeds; tables share them. `full` is the paper's "
        f"set-up, `small` a part of the data, fewer devices or fewer rounds. {devices} devices in "
        f"a session are {2 * devices} in all, for two groups take turns; the numbers of the "
        "appendix are "
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
            yield from folded(f"run: {len(there)} of {len(own)} settings", grid)
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


def commands() -> Iterator[str]:
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


def machines(results: Path) -> Iterator[str]:
    """Yield where and with what the results were made."""
    made_on: dict[tuple[str, ...], int] = {}
    dates = set()
    for name in STUDIES:
        for family in families(name, results):
            for result in family.results:
                machine, versions = result.facts["machine"], result.facts["versions"]
                where = ", ".join(f"{k} {v}" for k, v in machine.items() if k != "memory")
                what = ", ".join(f"{k} {v}" for k, v in versions.items())
                made_on.setdefault((result.name, where, what), 1)
                dates.add(result.facts["date"])
    yield "## Made with\n"
    pairs: dict[tuple[str, str], int] = {}
    for _, where, what in made_on:
        pairs[where, what] = pairs.get((where, what), 0) + 1
    yield bullets([f"{n} runs on {where}; {what}" for (where, what), n in pairs.items()])
    if dates:
        yield f"From {min(dates)} to {max(dates)}.\n"
    algorithms = ", ".join(MAIN_ALGORITHMS)
    yield f"Counted algorithms of the main tables: {algorithms}.\n"
