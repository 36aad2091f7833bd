"""`ebbflow export`: where tables go, in which form, and what is refused."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest

from ebbflow.experiment import run
from tests.configs import with_settings
from tests.test_cli import ebbflow

SMALL = ("rounds=2", "sessions=4", "engine.workers=1", "partition.devices=4", "window=[2]")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two runs."""
    folder = tmp_path_factory.mktemp("export")
    for name, alpha in (("a", 0.1), ("b", 1.0)):
        config = with_settings(
            *SMALL,
            "seeds=[1,2]",
            f"partition.alpha={alpha}",
            "data.limit_train=200",
            "methods=['learned','previous']",
        )
        run(config, folder / name)
    return folder


def test_without_a_file_the_table_is_printed(runs: Path) -> None:
    answer = ebbflow("export", str(runs / "a"), "--csv")
    assert (answer.code, answer.err) == (0, "")
    frame = pd.read_csv(io.StringIO(answer.out))
    assert len(frame) == 2 * 2 * 4 * 2  # methods, seeds, sessions, rounds
    assert ebbflow("export", str(runs / "a"), "--csv", "-").out == answer.out
    assert ebbflow("export", "--csv", str(runs / "a")).out == answer.out


def test_each_format_is_written_to_its_file(runs: Path, tmp_path: Path) -> None:
    files = {kind: tmp_path / f"table.{kind}" for kind in ("csv", "parquet", "latex", "markdown")}
    options = [text for kind, path in files.items() for text in (f"--{kind}", str(path))]
    answer = ebbflow("export", str(runs / "a"), *options)
    assert answer == (0, "", "")
    by_rows = pd.read_csv(files["csv"])
    pd.testing.assert_frame_equal(by_rows, pd.read_parquet(files["parquet"]), check_dtype=False)
    assert "\\begin{table}" in files["latex"].read_text(encoding="utf-8")
    assert "| method |" in files["markdown"].read_text(encoding="utf-8")


def test_a_folder_of_runs_is_one_table(runs: Path) -> None:
    answer = ebbflow("export", str(runs), "--csv", "--table", "summary")
    frame = pd.read_csv(io.StringIO(answer.out))
    assert list(frame.columns[:2]) == ["run", "partition.alpha"]
    assert set(frame["run"]) == {"a", "b"}
    printed = ebbflow("export", str(runs / "a"), str(runs / "b"), "--markdown").out
    assert "| run | partition.alpha | learned | previous |" in printed


def test_a_document_compiles_by_itself(runs: Path) -> None:
    text = ebbflow("export", str(runs / "a"), "--latex", "--document").out
    assert text.startswith("\\documentclass{article}\n")
    assert text.rstrip().endswith("\\end{document}")


def refusals(a: str) -> dict[tuple[str, ...], str]:
    return {
        (a,): "no format is named",
        (a, "--parquet"): "--parquet needs a file",
        (a, "--parquet", "-"): "--parquet needs a file",
        (a, "--csv", "--latex"): "name a file for one of them",
        (a, "--csv", "--table", "round"): "did you mean rounds",
        (a, "--csv", "no/such/x.csv"): "there is no folder no/such",
        (a, "--csv", "--document"): "--document is about LaTeX",
        ("nowhere", "--csv"): "nowhere is no folder",
    }


def test_what_cannot_be_gets_one_sentence(runs: Path) -> None:
    for arguments, sentence in refusals(str(runs / "a")).items():
        answer = ebbflow("export", *arguments)
        assert (answer.code, answer.out) == (2, "")
        assert sentence in answer.err
        assert answer.err.count("\n") == 1


def test_before_a_transition_there_is_no_summary(tmp_path: Path) -> None:
    run(with_settings(*SMALL, "sessions=2", "seeds=[1]", "data.limit_train=100"), tmp_path / "run")
    answer = ebbflow("export", str(tmp_path / "run"), "--markdown")
    assert answer.code == 2
    assert "the first session with a choice of models is session 4" in answer.err
    assert ebbflow("export", str(tmp_path / "run"), "--csv", "--table", "summary").code == 0
