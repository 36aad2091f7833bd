"""The tab key, as a shell asks: with the words so far in the environment of a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ebbflow.algorithms import ALGORITHMS
from ebbflow.cli import completion
from ebbflow.config.presets import preset_names
from ebbflow.data.sources import SOURCES
from ebbflow.starts import STARTS
from tests.test_cli import EXECUTABLE, ebbflow

# What may be imported to complete a name: neither torch nor rich, and nothing that reads data.
HEAVY = ("torch", "numpy", "rich", "matplotlib", "scipy")


def completed(line: str, folder: Path | None = None) -> list[str]:
    """Return what bash would offer after a line, at whose end the cursor is."""
    words = line.split(" ")
    environment = {
        **os.environ,
        "_EBBFLOW_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run(
        [EXECUTABLE], env=environment, capture_output=True, text=True, check=True, cwd=folder
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_commands_and_options() -> None:
    assert completed("ebbflow comp") == ["compare"]
    assert {"ls", "get", "show", "verify"} <= set(completed("ebbflow data "))
    assert completed("ebbflow compare --sess") == ["--sessions"]
    assert "--seed" not in completed("ebbflow compare --seed")  # the other spelling is hidden
    assert completed("ebbflow compare --seed") == ["--seeds"]


def test_names() -> None:
    assert completed("ebbflow compare --dataset ") == list(SOURCES)
    assert completed("ebbflow data get mn") == ["mnist"]
    assert completed("ebbflow compare --algorithm ") == list(ALGORITHMS)
    assert completed("ebbflow compare --methods ") == ["auto", *STARTS]
    assert completed("ebbflow compare --methods learned,pr") == ["learned,previous"]
    assert "demo" in completed("ebbflow compare --preset ")
    rows = [name for name in preset_names() if name.startswith("mnist-two")]
    assert rows
    assert completed("ebbflow compare --preset mnist-two") == rows
    assert completed("ebbflow presets show dem") == ["demo"]


def test_an_earlier_mistake_says_nothing_in_the_middle_of_a_line() -> None:
    assert completed("ebbflow compare --rounds many --meth") == ["--methods"]


def test_run_folders(tmp_path: Path) -> None:
    for name in ("runs/one", "runs/two", "here", "elsewhere/deep/three", "runs/a\x1b[31m"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.toml").touch()
    (tmp_path / "runs" / "notes").mkdir()
    assert completed("ebbflow metrics ", tmp_path) == ["here", "runs/one", "runs/two"]
    assert completed("ebbflow resume runs/t", tmp_path) == ["runs/two"]
    assert completed("ebbflow cost elsewhere/deep/", tmp_path) == ["elsewhere/deep/three"]
    assert completed(f"ebbflow verify {tmp_path}/ru", tmp_path) == []
    assert completed(f"ebbflow verify {tmp_path}/he", tmp_path) == [f"{tmp_path}/here"]
    assert completed("ebbflow metrics nowhere/", tmp_path) == []


@pytest.mark.parametrize(
    "name", ["dataset_names", "algorithm_names", "method_names", "run_folders"]
)
def test_completing_imports_nothing_heavy(name: str) -> None:
    code = (
        f"import sys; from ebbflow.cli import completion; completion.{name}('m')\n"
        f"found = [m for m in {HEAVY} + ('pydantic',) if m in sys.modules]; assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_completing_a_preset_imports_no_more_than_the_settings() -> None:
    code = (
        "import sys; from ebbflow.cli import completion; completion.preset_names('mnist-')\n"
        f"found = [m for m in {HEAVY} if m in sys.modules]; assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_a_list_has_is_not_offered_again() -> None:
    assert completion.method_names("learned,") == [
        f"learned,{name}" for name in ("auto", *STARTS) if name != "learned"
    ]


def test_the_script_for_a_shell_is_shown() -> None:
    # Which shell it is for is found by looking at the processes above: here that is bash.
    done = subprocess.run(
        ["bash", "-c", f"{EXECUTABLE} --show-completion; true"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "_EBBFLOW_COMPLETE=complete_bash" in done.stdout
    assert "--install-completion" in ebbflow("--help").out
