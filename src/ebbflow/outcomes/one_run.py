"""The records of one run, which show themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ebbflow.analysis.views.run_view import RunView
from ebbflow.config.merge import read_written
from ebbflow.core.errors import EbbflowError, unknown
from ebbflow.core.names import listed, printable, shortened
from ebbflow.runs import records
from ebbflow.runs.records import RunRecords

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from ebbflow.analysis.views.verdict import StartVerdict
    from ebbflow.outcomes.pairs import SeedPairs
    from ebbflow.outcomes.summaries import RunSummary

FINISHED = "finished"
LONGEST = 300
"""Characters of a line that tells what a run is."""


@dataclass(frozen=True, repr=False)
class Records(RunRecords):
    """The records of a run: what `compare`, `run`, `resume`, `extend` and `load` return.

    Attributes:
        config: Every setting, as in ``config.toml``.
        rounds: Every round of every method: a `Round` for each line of ``metrics.jsonl``.
        rows: The window accuracies, as in ``summary.json``; of an unfinished run those of the
            sessions that are over.
        events: Everything else: where each session began and on what it drew, costs, warnings.
        folder: The run folder, if there is one.
        name: What the run is called beside others.
        state: ``finished``, or how far the run was when it was read.
        environment: The machine, the versions and the data; empty for a run without a folder.

    Shown in a notebook, they are the verdict and the comparison as a table.
    """

    name: str = field(default="", compare=False)
    state: str = field(default=FINISHED, compare=False)
    environment: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, plain: RunRecords) -> Records:
        """Return the records of a run that has just finished."""
        name, environment = Path(plain.config["dataset"]).stem, {}
        if plain.folder is not None:
            name = plain.folder.resolve().name
            environment = records.read_sealed(plain.folder / records.ENVIRONMENT)
        found = plain.config, plain.rounds, plain.rows, plain.events, plain.folder
        return cls(*found, name=name, environment=environment)

    @property
    def finished(self) -> bool:
        """Whether nothing was left to do when the run was read."""
        return self.state == FINISHED

    @cached_property
    def view(self) -> RunView:
        """The run as figures and pages show it."""
        return RunView(
            self.name,
            read_written(self.config, f"the records of {self.name}"),
            self.rounds,
            self.events,
            self.folder,
            self.environment,
            self.finished,
        )

    def __repr__(self) -> str:
        return f"<Records of {described(self)}>"

    def _repr_html_(self) -> str:
        from ebbflow.outcomes.sheet_html import as_html  # noqa: PLC0415 - takes a second
        from ebbflow.outcomes.summaries import score_sheets, sentences  # noqa: PLC0415

        try:
            told = sentences(self.view, self.verdicts)
            return as_html(described(self), told, score_sheets([self.view]))
        except EbbflowError as error:  # what is shown must not fail
            return as_html(described(self), [str(error)], [])

    @cached_property
    def verdicts(self) -> list[StartVerdict]:
        """Which start won under each algorithm, in numbers; empty before a transition is over."""
        from ebbflow.outcomes.summaries import judged  # noqa: PLC0415 - takes a second

        return judged(self.view)

    @property
    def verdict(self) -> str:
        """Which start won, by how much, how sure that is, and what it cost: in words."""
        from ebbflow.outcomes.summaries import sentences  # noqa: PLC0415 - takes a second

        return "\n".join(sentences(self.view, self.verdicts))

    def summary(self) -> RunSummary:
        """Return the verdict and the comparison: readable, and with its numbers as attributes."""
        from ebbflow.outcomes.summaries import RunSummary  # noqa: PLC0415 - takes a second

        return RunSummary(self.view, self.verdicts)

    def to_pandas(self, table: str = "rounds") -> DataFrame:
        """Return a table as a data frame.

        Args:
            table: rounds, summary, metrics, costs, sessions, devices or starts.
        """
        return tables_to_pandas([self.view], table)

    def plot(
        self,
        figure: str = "curves",
        *,
        width: str | float = "page",
        algorithms: Sequence[str] = (),
        methods: Sequence[str] = (),
        seeds: Sequence[int] = (),
    ) -> Figure:
        """Return a figure of matplotlib, which a notebook shows and ``savefig`` writes.

        Args:
            figure: curves, transitions, timeline, mixture, devices or costs.
            width: "column" or "page" of a journal, or a number of inches.
            algorithms: Those to draw; by default all.
            methods: Those to draw; by default all.
            seeds: Those to draw; by default all.
        """
        from ebbflow.report.figures.gallery import narrowed  # noqa: PLC0415 - slow to import

        return drawn([narrowed(self.view, algorithms, methods, seeds)], figure, width)

    def report(self, path: Path | str | None = None) -> Path:
        """Write one page of HTML with everything about the run, and return where it is.

        By default it is ``report.html`` in the run folder; a run without one needs a path.
        """
        return write_report([self.view], path)

    def compared_with(self, other: Records | Path | str) -> SeedPairs:
        """Return how this run fares beside another, paired by the seeds that both have."""
        from ebbflow.outcomes.loading import load_run  # noqa: PLC0415 - which imports this module
        from ebbflow.outcomes.pairs import SeedPairs  # noqa: PLC0415 - takes a second

        theirs = other if isinstance(other, Records) else load_run(Path(other))
        return SeedPairs(self.view, theirs.view)


def described(run: Records) -> str:
    """Return in one line what a run is, and how far."""
    config = run.config
    methods = listed([printable(name) for name in config["methods"]], 6)
    seeds = listed([str(seed) for seed in config["seeds"]], 6)
    sessions, rounds = config["sessions"], config["rounds"]
    parts = [
        f"{printable(Path(config['dataset']).name)}: {listed(config['algorithm'])} with {methods}",
        f"seed{'s' if len(config['seeds']) > 1 else ''} {seeds}",
        f"{sessions} session{'s' if sessions > 1 else ''} of {rounds} "
        f"round{'s' if rounds > 1 else ''}",
        run.state,
        "in memory" if run.folder is None else printable(str(run.folder)),
    ]
    return shortened("; ".join(parts), LONGEST)


def tables_to_pandas(views: Sequence[RunView], name: str) -> DataFrame:
    """Return a table of one or several runs as a data frame."""
    from ebbflow.outcomes.data_frames import data_frame  # noqa: PLC0415 - takes a second
    from ebbflow.report.export.frames import TABLES, table  # noqa: PLC0415

    if name not in TABLES:
        raise unknown(name, TABLES, "table", "to_pandas")
    return data_frame(table(views, name))


def drawn(views: Sequence[RunView], name: str, width: str | float) -> Figure:
    """Return a figure of one or several runs."""
    from ebbflow.report.figures.gallery import FIGURES, figure  # noqa: PLC0415 - slow to import

    if name not in FIGURES:
        raise unknown(name, FIGURES, "figure", "plot")
    return figure(views, name, width)


def write_report(views: Sequence[RunView], path: Path | str | None) -> Path:
    """Write one page with everything about runs, and return where it is."""
    from ebbflow.report.page.content import page_content  # noqa: PLC0415 - takes a second
    from ebbflow.report.page.writing import default_page, write_page  # noqa: PLC0415

    if path is None:
        folders = [view.folder for view in views if view.folder is not None]
        if len(folders) < len(views):
            raise EbbflowError(
                "the records are in memory only, so that the report has no folder: name a file, "
                'as in records.report("report.html")'
            )
        path = default_page(folders)
    write_page(Path(path), page_content(views, [view.name for view in views]))
    return Path(path)
