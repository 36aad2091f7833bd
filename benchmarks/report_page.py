"""How long a report takes to make and to draw, and how large it is; and its pictures.

    python -m benchmarks.report_page             # measures, and fills the table of docs/report.md
    python -m benchmarks.report_page --pictures  # draws docs/report/ from runs/demo, and prints it

The large run has 3 seeds, 4 starts, 350 rounds and about 100 devices at a time, of which each has
test samples of its own; the folder has 60 runs. Everything is made by the commands that a user
would type. Drawing is timed in Debian's Chromium.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from PIL import Image

from ebbflow.data import datasets
from ebbflow.report.markdown import filled, table

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "report.md"
PICTURES = ROOT / "docs" / "report"
OWNERS, SAMPLES, TRAINING = 200, 16_000, 12_800
REPEATS = 3
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
LARGEST_PICTURE = 300_000
CHART = "() => performance.getEntriesByName('ebbflow chart')[0].startTime"
CHARTS = "() => performance.getEntriesByName('ebbflow charts')[0].startTime"


class Measured(NamedTuple):
    """What making and drawing a page took."""

    name: str
    seconds: float
    megabytes: float
    first: float
    all: float


def main(arguments: list[str]) -> None:
    """Measure, or draw the pictures."""
    if "--pictures" in arguments:
        draw_pictures(ROOT / "runs" / "demo")
        return
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        make_large_run(here)
        make_many_runs(here / "many", 60)
        rows = [
            measured("the demo", make_demo(here)),
            measured("3 seeds × 4 starts × 350 rounds, 100 devices", here / "large"),
            measured("a folder of 60 runs", here / "many"),
        ]
    head = ("", "made in", "size", "first chart", "all charts")
    text = table(
        head,
        [
            (
                row.name,
                f"{row.seconds:.1f} s",
                f"{row.megabytes:.1f} MB",
                f"{row.first:.2f} s",
                f"{row.all:.2f} s",
            )
            for row in rows
        ],
    )
    print(text)
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(filled(page, "times", text), encoding="utf-8")


# --- runs ----------------------------------------------------------------------------------------


def ebbflow(*arguments: str, folder: Path) -> float:
    """Run a command as a user would, and return the seconds that it took."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "ebbflow", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - began


def make_demo(folder: Path) -> Path:
    ebbflow("compare", "--preset", "demo", "--out", "demo", folder=folder)
    return folder / "demo"


def make_large_run(folder: Path) -> None:
    """Make a run on noisy digits that belong to 200 phones, each with labels that it prefers."""
    draw = np.random.default_rng(3)
    digits = datasets.load("digits")
    x, y = digits.train.x.numpy().reshape(len(digits.train), -1), digits.train.y.numpy()
    owners = draw.integers(0, OWNERS, size=SAMPLES)
    tastes = draw.dirichlet(np.full(10, 0.4), size=OWNERS)
    wanted = np.array([draw.choice(10, p=tastes[owner]) for owner in owners])
    rows = np.array([draw.choice(np.flatnonzero(y == label)) for label in wanted])
    noisy = (x[rows] / 16 + draw.normal(0, 0.25, size=(SAMPLES, x.shape[1]))).astype(np.float32)
    names = np.array([f"phone {owner:03d}" for owner in owners])
    parts = {"train": slice(TRAINING), "test": slice(TRAINING, None)}
    arrays = {"x": noisy, "y": wanted, "device": names}
    np.savez(
        folder / "phones.npz",
        **{
            f"{key}_{part}": array[rows]
            for key, array in arrays.items()
            for part, rows in parts.items()
        },
    )
    ebbflow(
        # By its whole path: the model's size, and so the costs, are found from anywhere.
        *("compare", "--dataset", str(folder / "phones.npz"), "--seeds", "100,200,300"),
        *("--out", "large"),
        *("--methods", "learned,warm_start,previous,average", "--sessions", "7", "--rounds", "50"),
        *("--set", "schedule.kind=random", "--set", "schedule.stay=3.0"),
        *("--set", "schedule.away=3.0"),
        folder=folder,
    )


def make_many_runs(folder: Path, count: int) -> None:
    """Make runs with all combinations of two settings."""
    folder.mkdir()
    alphas, overlaps = (
        (0.05, 0.1, 0.2, 0.3, 0.6, 1.0, 2.0, 3.0, 5.0, 10.0),
        (0, 0.2, 0.4, 0.6, 0.8, 1),
    )
    for alpha, overlap in list(product(alphas, overlaps))[:count]:
        ebbflow(
            *("compare", "--preset", "demo", "--seeds", "1,2", "--alpha", str(alpha)),
            *("--overlap", f"{overlap:.1f}", "--out", f"alpha-{alpha}-overlap-{overlap}"),
            folder=folder,
        )


# --- measuring -----------------------------------------------------------------------------------


def measured(name: str, folder: Path) -> Measured:
    """Make the page of a folder, and draw it a few times: the median counts."""
    page = folder / "report.html"
    seconds = ebbflow("report", str(folder), "--out", str(page), folder=folder)
    firsts, everything = [], []
    with started_browser() as browser:
        for _ in range(REPEATS):
            context = browser.new_context(viewport={"width": 1280, "height": 900})
            tab = context.new_page()
            tab.goto(page.resolve().as_uri())
            tab.wait_for_selector("html[data-drawn=yes]", state="attached", timeout=120_000)
            firsts.append(tab.evaluate(CHART) / 1000)
            everything.append(tab.evaluate(CHARTS) / 1000)
            context.close()
    size = page.stat().st_size / 1e6
    return Measured(name, seconds, size, statistics.median(firsts), statistics.median(everything))


@contextmanager
def started_browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only this needs it

    path = shutil.which("chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


# --- pictures ------------------------------------------------------------------------------------


def draw_pictures(run: Path) -> None:
    """Draw what a reader sees first of a run, on a desk and on a phone, in light and dark."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, started_browser() as browser:
        page = Path(folder) / "report.html"
        ebbflow("report", str(run), "--out", str(page), folder=ROOT)
        for place, width, section in (
            ("desktop", 1280, "main"),
            ("phone", 390, "main"),
            ("compared", 1280, "first"),
        ):
            for scheme in ("light", "dark"):
                context = browser.new_context(
                    viewport={"width": width, "height": 1180},
                    color_scheme=scheme,
                    reduced_motion="reduce",
                    device_scale_factor=1.5 if place == "phone" else 1.25,
                    is_mobile=place == "phone",
                )
                tab = context.new_page()
                tab.goto(page.resolve().as_uri())
                tab.wait_for_selector("html[data-drawn=yes]", state="attached")
                if section != "main":
                    tab.evaluate("(id) => document.getElementById(id).scrollIntoView()", section)
                    tab.wait_for_timeout(300)
                path = PICTURES / f"{place}-{scheme}.png"
                tab.screenshot(path=path)
                context.close()
                shrink(path)
        tab = browser.new_page()
        tab.goto(page.resolve().as_uri())
        tab.wait_for_selector("html[data-drawn=yes]", state="attached")
        # Without the last part, which tells of the machine that made the run.
        tab.pdf(path=PICTURES / "printed.pdf", format="A4", page_ranges="1-5")


def shrink(path: Path) -> None:
    """Store a picture with as many colours as fit into the largest size."""
    picture = Image.open(path).convert("RGB")
    picture.save(path, optimize=True)
    for colours in (256, 128, 64, 32):
        if path.stat().st_size <= LARGEST_PICTURE:
            return
        picture.quantize(colours, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main(sys.argv[1:])
