"""`python -m learned_start`: what it lists, runs, prints and refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chang2025.studies import all_cells
from learned_start import page, picture, trajectories, within
from learned_start.rules import LEARNED
from learned_start.settings import DESIGN_SEEDS, FAMILIES, cells_of
from tests.chang2025.made import write_made
from tests.learned_start.command import learned_start
from tests.learned_start.made import keep, made_rows
from tests.learned_start.test_page import LEVELS, level

COMMANDS = ("fork", "regret", "run", "leads", "within", "page")


def test_help_lists_every_command() -> None:
    for arguments in ((), ("--help",)):
        answer = learned_start(*arguments)
        assert answer.code == 0
        words = answer.out.split()
        assert all(command in words for command in COMMANDS)


def test_it_is_a_module_of_its_own_and_its_help_does_not_wait_for_torch() -> None:
    code = "import sys, learned_start.cli; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("fork", "softmx"), "there is no family 'softmx': did you mean softmax?"),
        (("regret", "churn"), "there is no family 'churn': "),
        (("run", "papers"), "there is no family 'papers': did you mean paper?"),
        (("leads", "softmax"), "there is no family 'softmax': "),
        (("fork", "mlp", "--only", "svhn*"), "--only svhn* fits none of 6 cells"),
        (("fork", "mlp", "--only", "a", "--only", "b"), "--only a or b fits none of 6 cells"),
        (("fork", "mlp", "--seeds", "1,1"), "--seeds '1,1' name one more than once"),
        (("fork", "mlp", "--jobs", "0"), "--jobs"),
        (("fork",), "FAMILY"),
        (("run", "paper", "--only", "svhn*"), "--only svhn* fits none of 24 cells"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    answer = learned_start(*arguments, "--results", str(tmp_path))
    assert answer.code == 2
    assert sentence in answer.err
    assert len(answer.err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_help_of_forks_names_every_family() -> None:
    words = learned_start("fork", "--help").out.replace(",", " ").replace(".", " ").split()
    assert [family for family in FAMILIES if family not in words] == []


def test_forks_that_are_done_are_not_run_again(tmp_path: Path) -> None:
    (cell,) = (c for c in cells_of("mlp", [100]) if "distinct" in c.name)
    keep(cell, made_rows(LEVELS), tmp_path)
    arguments = (
        "fork",
        "mlp",
        "--seeds",
        "100",
        "--only",
        "*distinct*",
        "--results",
        str(tmp_path),
    )
    answer = learned_start(*arguments)
    assert (answer.code, answer.out) == (0, "1 of 1 cells are done already\n")


def test_regret_is_printed_over_what_is_done(tmp_path: Path) -> None:
    keep(cells_of("mlp", DESIGN_SEEDS)[0], made_rows(LEVELS), tmp_path)
    answer = learned_start("regret", "mlp", "texts", "--results", str(tmp_path))
    assert answer.code == 0
    assert "mlp: 1 of 6 cells are done" in answer.out
    assert "texts: 0 of 2 cells are done" in answer.out
    (line,) = (line for line in answer.out.splitlines() if line.split()[1:2] == [LEARNED])
    assert "+1.50" in line and "100.0%" in line


def test_leads_are_printed_over_what_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trajectories, "PAPER_RESULTS", tmp_path / "paper")
    (cell,) = (c for c in trajectories.FAMILIES["appendix"]([100]) if "mnist-half" in c.name[:10])
    write_made([cell], tmp_path, level)
    write_made([all_cells(["full"], [100])[cell.name]], tmp_path / "paper", level)
    answer = learned_start("leads", "appendix", "--results", str(tmp_path))
    assert answer.code == 0
    assert "mnist-half" in answer.out and "+20.0" in answer.out and "+10.0" in answer.out
    nothing = learned_start("leads", "paper", "--results", str(tmp_path))
    assert (nothing.code, nothing.out) == (0, "")


def test_trajectories_that_are_done_are_not_run_again(tmp_path: Path) -> None:
    (cell,) = (c for c in trajectories.FAMILIES["appendix"]([100]) if "mnist-half" in c.name[:10])
    write_made([cell], tmp_path, level)
    arguments = ("run", "appendix", "--seeds", "100", "--only", cell.name)
    answer = learned_start(*arguments, "--results", str(tmp_path))
    assert (answer.code, answer.out) == (0, "1 of 1 cells are done already\n")


def test_the_other_commands_hand_on_what_they_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[object] = []
    monkeypatch.setattr(within, "run_within", lambda seeds, results: said.append((seeds, results)))
    monkeypatch.setattr(page, "write_page", lambda: said.append("page"))
    monkeypatch.setattr(picture, "draw", said.append)
    assert learned_start("within", "--seeds", "400", "--results", str(tmp_path)).code == 0
    answer = learned_start("page")
    assert answer.code == 0 and str(page.PAGE) in answer.out
    assert said == [((400,), tmp_path), "page", page.PICTURE]
