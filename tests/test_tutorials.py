"""What the pages for new users say is run, in order, in an empty folder."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ebbflow.core.judging import JUDGES, MEASURES
from ebbflow.core.registry import Registry
from ebbflow.core.tasks import LOSSES, TASKS
from ebbflow.models import MODELS
from ebbflow.starts import STARTS
from tests.test_cli import ebbflow

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "tutorials.md"
SECTIONS = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
SHORTER = ("--rounds=2", "--seeds=1")


def forget_metric(name: str) -> None:
    JUDGES.pop(name, None)
    for task, names in MEASURES.items():
        MEASURES[task] = tuple(other for other in names if other != name)
        known = {other: m for other, m in TASKS[task].known.items() if other != name}
        TASKS[task] = replace(TASKS[task], known=known)


def blocks(text: str) -> list[tuple[str, str]]:
    return re.findall(r"```(python|console)\n(.*?)```", text, flags=re.DOTALL)


def as_program(*words: str) -> None:
    """Run Python as a user would."""
    paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    subprocess.run([sys.executable, *words], check=True, env=environment)


def _need_datasets() -> None:
    if importlib.util.find_spec("datasets") is None:
        pytest.skip("Hugging Face's datasets are not installed")


@pytest.fixture(autouse=True)
def nothing_stays_registered() -> Iterator[None]:
    registries: list[Registry[Any]] = [STARTS, MODELS]
    before = [set(registry) for registry in registries]
    yield
    for registry, known in zip(registries, before, strict=True):
        for name in set(registry) - known:
            registry.unregister(name)
    for name in [name for name in sys.modules if name.startswith("ebbflow_plugin_")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    "section",
    [
        pytest.param(s, id=s.splitlines()[0], marks=[pytest.mark.slow] * ("import datasets" in s))
        for s in SECTIONS
    ],
)
def test_a_tutorial_works_as_it_stands(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pandas", reason="tables need pandas")
    monkeypatch.chdir(tmp_path)
    if "import datasets" in section:
        _need_datasets()
    monkeypatch.setenv("EBBFLOW_STATE", str(tmp_path / "state"))
    ran = 0
    for kind, block in blocks(section):
        if kind == "python":
            Path("block.py").write_text(block, encoding="utf-8")
            as_program("block.py")
            ran += 1
            continue
        for line in block.splitlines():
            ran += 1
            words = shlex.split(line.removeprefix("$ "))
            if words[0] == "cd":
                monkeypatch.chdir(words[1])
            elif words[0] == "python":
                as_program(*words[1:])
            else:
                short = SHORTER if words[1] == "compare" else ()
                answer = ebbflow(*words[1:], *short)
                assert answer.code == 0, (line, answer.err)
    assert ran


def test_the_examples_of_the_page_on_tasks_work(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
    try:
        for kind, block in blocks(page):
            if kind == "python":
                exec(compile(block, "tasks.md", "exec"), {})
    finally:
        forget_metric("within_a_day")
        LOSSES.pop("huber", None)
    assert capsys.readouterr().out
