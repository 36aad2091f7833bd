"""The table of the privacy that a run has spent."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from ebbflow.analysis.privacy import Spent


def privacy_table(spent: Sequence[Spent], delta: float) -> Table:
    """Return a row for each algorithm, method and seed."""
    table = Table(
        title=f"epsilon of a device, delta = {delta:g}",
        caption="neighbours differ in all data of one device; every round, auxiliary round and "
        "question charged to all devices that might have been drawn",
        title_justify="left",
    )
    for column in ("algorithm", "method"):
        table.add_column(column)
    for column in ("seed", "devices", "largest", "median"):
        table.add_column(column, justify="right")
    for each in spent:
        numbers = f"{each.most:.2f}", f"{each.median:.2f}"
        table.add_row(each.algorithm, each.method, str(each.seed), str(len(each.devices)), *numbers)
    return table
