"""Draws the pictures of docs/figures.md and docs/demo.png, and fills the page's tables.

    python -m benchmarks.pages figures

The pictures are those of `ebbflow compare --preset demo`, which runs for a few seconds; that of
devices is of a federation whose test samples say whose they are.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from ebbflow.analysis.views.run_view import RunView, load_view
from ebbflow.config.merge import Layers
from ebbflow.config.resolved import Config
from ebbflow.core.files import make_folder, write_atomically
from ebbflow.core.types import Dataset
from ebbflow.data import datasets
from ebbflow.experiment import run
from ebbflow.report.export.columns import Frame
from ebbflow.report.export.frames import TABLES, table
from ebbflow.report.export.markdown_sheets import markdown
from ebbflow.report.export.printed import sheets
from ebbflow.report.figures.gallery import FIGURES, figure
from ebbflow.report.figures.style import encoded
from ebbflow.report.markdown import filled
from ebbflow.report.markdown import table as markdown_table
from ebbflow.report.plots import accuracy_picture

WIDTHS = {"curves": "page", "transitions": "page", "mixture": "page", "costs": "page"}
DOTS = 120
WARDS = 12


def write_page(page: Path) -> None:
    """Make the runs, draw the pictures beside the page, and fill its tables."""
    with tempfile.TemporaryDirectory() as folder:
        demo, wards = _demo(Path(folder)), _wards(Path(folder))
    pictures = page.parent / "figures"
    make_folder(pictures)
    for name in FIGURES:
        view = wards if name == "devices" else demo
        drawn = figure([view], name, WIDTHS.get(name, "column"))
        write_atomically(pictures / f"{name}.png", encoded(drawn, "png", DOTS))
    accuracy_picture(replace(demo, name="digits"), page.parent / "demo.png")
    text = page.read_text(encoding="utf-8")
    text = filled(text, "summary", markdown(sheets([demo], "summary")))
    text = filled(text, "columns", "\n".join(_columns(table([demo], name)) for name in TABLES))
    write_atomically(page, text.encode())


def _columns(frame: Frame) -> str:
    kinds = {"whole": "whole number", "switch": "yes or no"}
    rows = [
        [f"`{column.name}`", kinds.get(column.kind, column.kind), column.about]
        for column in frame.columns
    ]
    what = TABLES[frame.name].about
    return f"**{frame.name}**: {what}\n\n" + markdown_table(["column", "holds", "which is"], rows)


def _demo(folder: Path) -> RunView:
    run(_config({}, preset="demo"), folder / "demo")
    return load_view(folder / "demo")


def _wards(folder: Path) -> RunView:
    """Return a run of wards, each of which has some of the digits, for training and for tests."""
    settings = {
        "partition.kind": "natural",
        "sessions": 7,
        "rounds": 10,
        "seeds": [100, 200, 300],
        "methods": ["learned", "warm_start", "previous"],
    }
    run(_config(settings), folder / "wards", dataset=_owned(datasets.load("digits")))
    return load_view(folder / "wards")


def _owned(data: Dataset) -> Dataset:
    def owners(labels: torch.Tensor) -> torch.Tensor:
        return (labels + torch.arange(len(labels)) % 4) % WARDS

    return replace(
        data,
        train=replace(data.train, device=owners(data.train.y)),
        test=replace(data.test, device=owners(data.test.y)),
        devices=tuple(f"ward {number}" for number in range(1, WARDS + 1)),
    )


def _config(settings: dict[str, object], preset: str | None = None) -> Config:
    layers = Layers()
    if preset is not None:
        layers.add_preset(preset)
    for key, value in settings.items():
        layers.add_key(key, value, "the page of figures")
    return layers.config()
