"""What pages tell of the small runs, computed once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from ebbflow.analysis.views.run_view import RunView
from ebbflow.report.page.content import PageContent, page_content
from tests.report import run_views


@cache
def view(name: str) -> RunView:
    """Return one of the runs in `tests.report.run_views`."""
    found: RunView = getattr(run_views, name)()
    return found


@cache
def content(*names: str) -> PageContent:
    """Return what the page of some of these runs tells."""
    views = [view(name) for name in names]
    return page_content(views, [own.name for own in views])


def leaves(value: Any) -> Iterator[Any]:
    """Yield everything that is neither a list nor a dictionary."""
    if isinstance(value, dict):
        for each in value.values():
            yield from leaves(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from leaves(each)
    else:
        yield value
