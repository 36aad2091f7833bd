"""Who holds which samples: the command, its tables and its picture."""

from __future__ import annotations

import re
import struct
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from rich.console import Console
from rich.table import Table

from ebbflow import cli
from ebbflow.analysis.holdings import Holdings, count_holdings
from ebbflow.core.errors import EbbflowError
from ebbflow.core.types import Dataset, Examples, Session
from ebbflow.data.distributions import DISTRIBUTIONS
from ebbflow.report import partition_report
from ebbflow.report.partition_report import DRAWN, device_table, partition_picture, session_table

Show = Callable[..., tuple[int, str, str]]


@pytest.fixture
def show(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Show:
    """Return a function that runs `ebbflow data show` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ebbflow", "data", "show", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        out, err = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return end.value.code, out, err

    return command


def png_size(path: Path) -> tuple[int, int]:
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", content[16:24])
    return int(width), int(height)


def cells(text: str) -> list[list[str]]:
    """Return the rows of all tables in a text."""
    return [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in text.splitlines()
        if line.startswith("│")
    ]


def printed(table: Table) -> str:
    console = Console(width=300)
    with console.capture() as found:
        console.print(table)
    return found.get()


def some(devices: int, labels: int, sessions: int = 7) -> Holdings:
    """Return two groups that take turns, with as many samples of a label as its number tells."""
    counts = np.tile(np.arange(labels), (devices, 1))
    counts[: devices // 2, : labels // 2] = 0
    turns = np.arange(sessions) % 2 == 0
    present = np.array([turns] * (devices // 2) + [~turns] * (devices - devices // 2))
    return Holdings("some", tuple(range(devices)), counts, present)


# --- the command ---------------------------------------------------------------------------------


def test_tables_and_picture(show: Show, tmp_path: Path) -> None:
    code, out, err = show("--partition", "half", "--devices", "6", "--seeds", "5,6")
    assert (code, err) == (0, "")
    rows = cells(out)
    assert rows[0] == ["1, 3, 5, 7", "3", "5", "0-4", "712", "237 to 238"]
    assert rows[1] == ["2, 4, 6", "3", "5", "5-9", "725", "241 to 242"]
    assert [row[0] for row in rows[2:]] == ["0", "1", "2", "3", "4", "5"]
    assert [row[1] for row in rows[2:]] == ["session 1"] * 3 + ["session 2"] * 3
    for row in rows[2:]:
        held = re.findall(r"(\d)(?:-(\d))?×(\d+)", row[4])
        total = sum((int(b or a) - int(a) + 1) * int(count) for a, b, count in held)
        assert total == int(row[2])
    assert "digits, half, seed 5" in out
    assert out.splitlines()[-1] == "picture  data.png"
    assert min(png_size(tmp_path / "data.png")) > 400


@pytest.mark.parametrize("kind", ["dirichlet", "dirichlet_labels", *DISTRIBUTIONS])
def test_every_partition_can_be_shown(show: Show, kind: str, tmp_path: Path) -> None:
    code, out, _ = show("--partition", kind, "--picture", "who.png")
    assert code == 0
    assert f"digits, {kind}, seed 100" in out
    assert "picture  who.png" in out
    assert [path.name for path in tmp_path.iterdir()] == ["who.png"]


def test_a_random_schedule_can_be_shown(show: Show) -> None:
    code, out, _ = show("--set", "schedule.kind=random", "--sessions", "3", "--devices", "5")
    assert code == 0
    assert [row[0] for row in cells(out)[:3]] == ["1", "2", "3"]


def test_a_configuration_file_and_a_preset_are_read(show: Show, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('sessions = 2\n[partition]\nkind = "distinct"\n')
    code, out, _ = show("mine.toml", "--preset", "demo", "--devices", "10")
    assert code == 0
    assert "digits, distinct" in out


def test_many_devices_are_shown_in_part_unless_all_are_wanted(show: Show) -> None:
    arguments = ("--devices", "60", "--partition", "half")
    _, out, _ = show(*arguments)
    assert "24 of 60 devices; --all shows every one" in out
    assert [row[0] for row in cells(out)[2:]] == [
        *map(str, range(12)),
        *map(str, range(30, 42)),
    ]
    _, out, _ = show(*arguments, "--all")
    assert "--all" not in out
    assert [row[0] for row in cells(out)[2:]] == [*map(str, range(60))]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--partition", "halves"], ["partition.kind", "'halves'", "did you mean half?"]),
        (["--partition", "half", "--devices", "1"], ["`partition.devices` is 1", "at least 2"]),
        (["--partition", "half", "--devices", "2000"], ["2000", "1437", "lower `partition.dev"]),
        (["--partition", "half", "--set", "schedule.kind=random"], ['"half"', '"random"']),
        (["--picture", "who.doc"], ["--picture who.doc", ".png, .pdf or .svg"]),
        (["--picture", "nosuch/who.png"], ["nosuch/who.png", "check the path"]),
        (["--dataset", "mnits"], ["mnits", "mnist"]),
    ],
)
def test_one_sentence_says_what_is_wrong(
    show: Show, tmp_path: Path, arguments: list[str], says: list[str]
) -> None:
    code, _, err = show(*arguments)
    assert code == 2
    assert len(err.splitlines()) == 1
    for words in says:
        assert words in err
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_tables_are_still_there(
    show: Show, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, _ = show("--partition", "half")
    assert code == 0
    assert len(cells(out)) == 22
    assert "pip install matplotlib" in out
    assert not list(tmp_path.iterdir())


# --- counting and tables -------------------------------------------------------------------------


def test_devices_are_counted_in_the_order_of_their_first_session() -> None:
    y = torch.tensor([0, 0, 1, 2, 2, 2, 1])
    data = Dataset("toy", Examples(torch.zeros(7, 1), y), Examples(torch.zeros(7, 1), y), 4)
    held = {5: np.array([0, 1, 2]), 1: np.array([3, 4]), 3: np.array([5, 6])}
    sessions = [
        Session(1, (3, 5), 1, (0, 1, 2), held),
        Session(2, (1, 5), 1, (0, 1, 2), held),
    ]
    found = count_holdings("toy", sessions, data)
    assert found.devices == (3, 5, 1)
    assert found.counts.tolist() == [[0, 1, 1, 0], [2, 1, 0, 0], [0, 0, 2, 0]]
    assert found.present.tolist() == [[True, False], [True, True], [False, True]]
    assert found.blocks == [2, 1]


def test_long_rows_are_cut_and_say_so() -> None:
    found = some(4, 40)
    assert "20×20, 21×21, 22×22" in printed(device_table(found))
    assert "27×27, ... (12 more)" in printed(device_table(found))
    assert "39×39" in printed(device_table(found, everything=True))
    assert "more)" not in printed(device_table(found, everything=True))


def test_labels_with_equal_counts_next_to_each_other_are_one_entry() -> None:
    present = np.array([[True]])
    found = Holdings("some", (0,), np.array([[3, 3, 3, 0, 3, 2, 2]]), present)
    assert "0-2×3, 4×3, 5-6×2" in printed(device_table(found))
    assert "0-2, 4-6" in printed(session_table(found))


def test_many_different_sessions_are_cut_and_say_so() -> None:
    present = np.eye(30, dtype=np.bool_)
    found = Holdings("some", tuple(range(30)), np.ones((30, 3), dtype=np.int64), present)
    assert "24 of 30 different sessions" in printed(session_table(found))
    assert "different" not in printed(session_table(found, everything=True))
    # Thirty sessions with a device of their own each: one row each, as far as there is room.
    assert "24 of 30 devices" in printed(device_table(found))


# --- the picture ---------------------------------------------------------------------------------


@pytest.mark.parametrize("devices", [2, 20, 200])
@pytest.mark.parametrize("labels", [2, 10, 200])
def test_the_picture_fits_on_a_screen(devices: int, labels: int, tmp_path: Path) -> None:
    partition_picture(some(devices, labels), tmp_path / "picture.png")
    width, height = png_size(tmp_path / "picture.png")
    assert 900 <= width <= 3000
    assert 400 <= height <= 1800


def test_a_picture_of_many_devices_draws_some_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[int, ...]] = []
    imshow = Axes.imshow

    def noted(axis: Axes, values: Any, **options: Any) -> Any:
        drawn.append(values.shape)
        assert options["extent"][2] == 20_000 - 0.5  # the axis still counts all devices
        return imshow(axis, values, **options)

    monkeypatch.setattr(Axes, "imshow", noted)
    tracemalloc.start()
    holdings = some(20_000, 10)
    before, _ = tracemalloc.get_traced_memory()
    partition_picture(holdings, tmp_path / "picture.png")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(drawn) == 2
    assert all(DRAWN / 2 < rows <= DRAWN for rows, _ in drawn)
    assert peak - before < 60e6  # it took three times that when all were drawn


def test_the_same_shares_give_the_same_picture(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        partition_picture(some(20, 10, sessions=1), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_a_name_that_is_no_pictures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EbbflowError, match=r"\.png, \.pdf or \.svg"):
        partition_picture(some(4, 4), tmp_path / "picture")


@pytest.mark.parametrize(
    ("blocks", "ticks"),
    [
        ([2, 2], [0, 1, 2, 3]),
        ([100, 100], [*range(0, 200, 5)]),
        ([51, 51], [*range(0, 50, 5), *range(51, 102, 5)]),
        ([1] * 200, [*range(0, 200, 5)]),
    ],
)
def test_devices_are_named_where_there_is_room(blocks: list[int], ticks: list[int]) -> None:
    assert partition_report._device_ticks(blocks) == ticks
