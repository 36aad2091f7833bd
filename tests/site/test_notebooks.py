"""The notebooks run, and keep the outputs that they give, and nothing of a machine."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tools.site.notebooks import FOLDER, joined, page_of, run

NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
FIRST = "first-comparison"
RUN = [name if name == FIRST else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
LARGEST = 150_000
"""Bytes of a notebook with its outputs."""


def without_numbers(output: Any) -> tuple[str, str]:
    """Return an output's kind and its text, in which numbers may differ from machine to machine."""
    data = output.get("data", {})
    kind = "image/png" if "image/png" in data else output["output_type"]
    text = "" if kind == "image/png" else joined(output.get("text") or data.get("text/plain", ""))
    return kind, re.sub(r"\s+", " ", re.sub(r"-?\d+(\.\d+)?(e-?\d+)?", "#", text))


@pytest.mark.parametrize("name", RUN)
def test_a_notebook_runs_and_gives_what_it_keeps(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nbclient", reason="notebooks need nbclient")
    pytest.importorskip("ipykernel", reason="notebooks need a kernel")
    monkeypatch.setenv("EBBFLOW_STATE", str(tmp_path / "state"))
    kept = json.loads((FOLDER / f"{name}.ipynb").read_text("utf-8"))
    again = run(FOLDER / f"{name}.ipynb", tmp_path)
    for before, now in zip(kept["cells"], again.cells, strict=True):
        ours = [without_numbers(output) for output in before.get("outputs", [])]
        assert ours == [without_numbers(output) for output in now.get("outputs", [])]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_small_and_names_no_machine(name: str) -> None:
    text = (FOLDER / f"{name}.ipynb").read_text("utf-8")
    assert len(text) < LARGEST
    for word in ("/home/", "/root", "/tmp", "/work", "Traceback", "Warning"):
        assert word not in text, word
    cells = json.loads(text)["cells"]
    assert cells[0]["cell_type"] == "markdown"
    assert joined(cells[0]["source"]).startswith("# ")


def test_the_list_names_every_notebook() -> None:
    page = (FOLDER / "index.md").read_text("utf-8")
    assert sorted(re.findall(r"\]\(([\w-]+)\.ipynb\)", page)) == NAMES


def test_a_page_shows_text_code_and_outputs_in_order() -> None:
    notebook = {
        "cells": [
            {"cell_type": "markdown", "source": ["# Title\n", "text"]},
            {
                "cell_type": "code",
                "source": "print(1)\n2",
                "outputs": [
                    {"output_type": "stream", "text": "1\n"},
                    {"output_type": "execute_result", "data": {"text/plain": ["2"]}},
                    {
                        "output_type": "display_data",
                        "data": {"image/png": "AA\n", "text/plain": ""},
                    },
                ],
            },
        ]
    }
    page = page_of(notebook, "name")
    order = ["# Title", "(name.ipynb)", "~~~python\nprint(1)\n2\n~~~", "~~~text\n1\n~~~"]
    order += ["~~~text\n2\n~~~", 'src="data:image/png;base64,AA"']
    places = [page.index(part) for part in order]
    assert places == sorted(places)
