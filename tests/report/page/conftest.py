"""Pages of small runs, each written once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from ebbflow import experiment
from ebbflow.report.page.rendering import render_page
from tests.configs import with_keys
from tests.report.page.contents import content
from tests.run_folders import SMALL

PageOf = Callable[..., Path]


@pytest.fixture(scope="session")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> PageOf:
    """Write the page of some of the runs in `tests.report.run_views`, by their names."""
    folder = tmp_path_factory.mktemp("pages")

    @cache
    def write(*names: str) -> Path:
        path = folder / f"{'-'.join(names)}.html"
        path.write_text(render_page(content(*names)), encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished run; tests that change it copy it first."""
    folder = tmp_path_factory.mktemp("report") / "small"
    experiment.run(with_keys(SMALL), folder)
    return folder
