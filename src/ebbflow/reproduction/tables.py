"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.table import Table

from ebbflow.reproduction.fit import WINDOWS, Fit


def fit_tables(found: Fit) -> Iterator[Table]:
    """Yield the errors of every reading and window, and those of the best reading by method."""
    title = "Mean absolute difference from the paper (points), by reading and window"
    yield _errors("reading", found.errors, title, found)
    title = f"The same for {found.reading}, by method"
    yield _errors("method", found.methods, title, found)


def _errors(head: str, errors: Mapping[str, Mapping[int, float]], title: str, found: Fit) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(head, no_wrap=True)
    for window in WINDOWS:
        table.add_column(str(window), justify="right")
    for name, by_window in errors.items():
        least = min(by_window.values())
        cells = [
            f"[bold]{error:.2f}[/]" if error == least else f"{error:.2f}"
            for error in by_window.values()
        ]
        table.add_row(f"[bold]{name}[/]" if name == found.reading else name, *cells)
    return table
