"""`python -m chang2025`: what it lists, runs, compares and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from chang2025.folders import RESULTS
from chang2025.studies import STUDIES, cells_of
from tests.chang2025.command import chang2025
from tests.chang2025.made import write_made


def test_every_table_and_figure_is_listed_with_its_state(tmp_path: Path) -> None:
    write_made(cells_of("mnist-accuracy", "full", (100,))[:1], tmp_path)
    answer = chang2025("list", "--json", "--results", str(tmp_path))
    found = {state["id"]: state for state in json.loads(answer.out)}
    assert list(found) == list(STUDIES)
    assert found["mnist-accuracy"]["full"]["done"] == 1
    assert found["mnist-accuracy"]["full"]["cells"] == 12
    assert found["mnist-curves"]["kind"] == "figure"
    assert "GPU" in found["cifar10-accuracy"]["full"]["needs"]
    plain = chang2025("list", "--results", str(tmp_path))
    assert plain.code == 0 and "algorithm-illustration" in plain.out


def test_a_dry_run_names_cells_and_their_state(tmp_path: Path) -> None:
    cells = cells_of("mnist-accuracy", "full", (100,))
    write_made(cells[:1], tmp_path)
    arguments = ("run", "mnist-accuracy", "--dry-run", "--results", str(tmp_path))
    answer = chang2025(*arguments, "--seeds", "100")
    states = dict(line.split()[::-1] for line in answer.out.splitlines())
    assert states == {cell.name: "done" if cell is cells[0] else "open" for cell in cells}
    some = chang2025(*arguments, "--only", "*a0.7-s200")
    assert some.out.split() == ["open", "mnist-o0.0-a0.7-s200", "open", "mnist-o0.2-a0.7-s200"]


def test_a_comparison_is_printed_and_written(tmp_path: Path) -> None:
    write_made(cells_of("mnist-accuracy", "full", (100,))[:1], tmp_path)
    base = ("compare", "mnist-accuracy", "--window", "5", "--results", str(tmp_path))
    files = [tmp_path / name for name in ("x.csv", "x.md", "x.html")]
    answer = chang2025(
        *(*base, "--csv", str(files[0]), "--markdown", str(files[1]), "--html", str(files[2]))
    )
    assert answer.code == 0
    assert "8 of 8 rows" in answer.out.replace("\n", " ")
    assert all(path.stat().st_size > 1000 for path in files)
    found = json.loads(chang2025(*base, "--json").out)
    assert found["summary"]["rows"] == 8


def test_a_window_longer_than_a_session_is_said_to_be(tmp_path: Path) -> None:
    write_made(cells_of("mnist-accuracy", "full", (100,))[:1], tmp_path)
    base = ("compare", "mnist-accuracy", "--results", str(tmp_path), "--window")
    assert "rounds only" not in chang2025(*base, "50").out
    assert "A session has 50 rounds only: all of them count." in chang2025(*base, "51").out
    assert "rounds only" not in chang2025(*base, "51", "--early").out


def test_what_needs_no_runs_says_so(tmp_path: Path) -> None:
    for name, command in (("bandwidth", "figure"), ("cost-analysis", "compare")):
        answer = chang2025("run", name, "--results", str(tmp_path))
        assert answer.code == 0
        assert (
            f"{name} needs no runs: `python -m chang2025 {command} {name}` shows it" in answer.out
        )


def test_it_is_a_module_of_its_own_and_its_help_does_not_wait_for_torch() -> None:
    code = "import sys, chang2025.cli; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    answer = subprocess.run(
        [sys.executable, "-m", "chang2025", "run", "nothing"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("python -m chang2025: ID: there is no table or figure")


def test_the_kept_results_are_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = chang2025("compare", "mnist-accuracy", "--json")
    assert answer.code == 0
    assert json.loads(answer.out)["summary"]["rows"] == 32
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("run", "mnist-accuracy"), "--results"),
        (("fit",), "--results"),
        (("page",), "--out"),
        (("costs",), "PAGE"),
        (("speed", "--out", str(RESULTS.parent / "speed.json")), "--out"),
    ],
)
def test_nothing_is_written_into_an_installed_package(
    arguments: tuple[str, ...], option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chang2025.folders.is_checkout", lambda: False)
    answer = chang2025(*arguments)
    assert answer.code == 2
    assert answer.err.endswith(f"which is never written to: say where with {option}\n")


def test_a_table_of_speeds_needs_a_place() -> None:
    answer = chang2025("speed")
    assert answer.code == 2 and "'--out'" in answer.err


def test_a_page_needs_the_fit(tmp_path: Path) -> None:
    answer = chang2025("page", "--results", str(tmp_path), "--out", str(tmp_path / "p.md"))
    assert answer.code == 2 and "`python -m chang2025 fit`" in answer.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("run", "mnist"), "there is no table or figure 'mnist': did you mean mnist-"),
        (("run", "mnist-accuracy", "--scale", "big"), "--scale 'big' is no scale"),
        (("run", "mnist-accuracy", "--seeds", "a"), "--seeds 'a' are no seeds"),
        (("run", "mnist-accuracy", "--seeds", "1,1"), "--seeds '1,1' name one more than once"),
        (("run", "mnist-accuracy", "--only", "svhn*"), "--only svhn* fits none of the 12 cells"),
        (("compare", "mnist-curves"), "mnist-curves is a figure"),
        (("compare", "mnist-accuracy"), "does not say which window"),
        (("compare", "mnist-accuracy", "--window", "5", "--csv", "no/x.csv"), "no folder no"),
        (("figure", "mnist-accuracy"), "mnist-accuracy is a table"),
        (("figure", "bandwidth", "--out", "no/where.png"), "there is no folder no"),
        (("figure", "mnist-curves"), "there are no results of mnist"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    answer = chang2025(*arguments, "--results", str(tmp_path))
    assert answer.code == 2
    assert sentence in answer.err
    assert len(answer.err.strip().splitlines()) == 1
