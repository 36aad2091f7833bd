"""Several runs beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from ebbflow.analysis.views.run_view import RunView
from ebbflow.core.errors import EbbflowError, unknown
from ebbflow.core.names import listed, printable, shortened
from ebbflow.outcomes.one_run import LONGEST, Records, drawn, tables_to_pandas, write_report

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from ebbflow.outcomes.summaries import RunsSummary


class Runs(Sequence[Records]):
    """The records of several runs, in order: what `load` returns for more than one.

    ``runs[0]`` and ``runs["name"]`` are the `Records` of one.
    """

    def __init__(self, runs: Sequence[Records]) -> None:
        self._runs = tuple(runs)

    @property
    def names(self) -> list[str]:
        """What the runs are called: the names of their folders, as far as it takes."""
        return [run.name for run in self._runs]

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Records]:
        return iter(self._runs)

    @overload
    def __getitem__(self, place: int | str) -> Records: ...

    @overload
    def __getitem__(self, place: slice) -> Runs: ...

    def __getitem__(self, place: int | str | slice) -> Records | Runs:
        if isinstance(place, slice):
            return Runs(self._runs[place])
        if isinstance(place, str):
            if place not in self.names:
                raise unknown(place, self.names, "run", "the runs")
            return self._runs[self.names.index(place)]
        return self._runs[place]

    @property
    def _views(self) -> list[RunView]:
        return [run.view for run in self._runs]

    @property
    def settings(self) -> dict[str, list[Any]]:
        """The settings in which the runs differ, with each run's value."""
        from ebbflow.report.export.frames import differing_settings  # noqa: PLC0415 - slow

        return differing_settings(self._views)

    def __repr__(self) -> str:
        return f"<{self._described()}>"

    def _described(self) -> str:
        told = [f"{printable(run.name)} ({run.state})" for run in self._runs]
        return shortened(f"{len(self)} runs: {listed(told)}", LONGEST)

    def _repr_html_(self) -> str:
        from ebbflow.outcomes.sheet_html import as_html  # noqa: PLC0415 - takes a second
        from ebbflow.outcomes.summaries import score_sheets  # noqa: PLC0415

        try:
            return as_html(self._described(), [], score_sheets(self._views))
        except EbbflowError as error:  # what is shown must not fail
            return as_html(self._described(), [str(error)], [])

    def summary(self) -> RunsSummary:
        """Return each run's verdict, and every method's score in each run."""
        from ebbflow.outcomes.summaries import RunsSummary  # noqa: PLC0415 - takes a second

        return RunsSummary(self._views, [run.verdicts for run in self._runs])

    def to_pandas(self, table: str = "rounds") -> DataFrame:
        """Return a table of all runs as a data frame.

        The first column is the run's name; the settings in which runs differ follow.

        Args:
            table: rounds, summary, metrics, costs, sessions, devices or starts.
        """
        return tables_to_pandas(self._views, table)

    def plot(
        self,
        figure: str = "curves",
        *,
        width: str | float = "page",
        algorithms: Sequence[str] = (),
        methods: Sequence[str] = (),
        seeds: Sequence[int] = (),
    ) -> Figure:
        """Return one figure of all runs; the arguments are those of `Records.plot`."""
        from ebbflow.report.figures.gallery import narrowed  # noqa: PLC0415 - slow to import

        views = [narrowed(view, algorithms, methods, seeds) for view in self._views]
        return drawn(views, figure, width)

    def report(self, path: Path | str | None = None) -> Path:
        """Write one page of HTML with all runs, and return where it is."""
        return write_report(self._views, path)
