"""What the documents say is so."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import ebbflow
from ebbflow.algorithms import ALGORITHMS
from ebbflow.analysis.metrics import mean_and_deviation
from ebbflow.config.merge import Layers, keys
from ebbflow.config.schema import Settings
from ebbflow.core.registry import Registry
from ebbflow.data.datasets import DATASETS
from ebbflow.models import MODELS
from ebbflow.starts import STARTS

ROOT = Path(__file__).parent.parent


def test_every_key_is_documented_and_no_other() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    table = page.split("## Keys")[1].split("## Parameters of starts")[0]
    documented = re.findall(r"^\| `([a-z_.]+)`", table, flags=re.MULTILINE)
    assert documented == list(keys(Settings))


def test_every_parameter_of_a_start_is_documented_with_its_default() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    table = page.split("## Parameters of starts")[1].split("## By data set")[0]
    rows = re.findall(r"^\| `parameters\.(\w+)\.(\w+)` \| ([^|]+) \|", table, flags=re.MULTILINE)
    documented = {(start, key): default for start, key, default in rows}
    known = {
        (name, key): default
        for name, record in STARTS.items()
        for key, default in record.defaults.items()
    }
    assert documented.keys() == known.keys()
    for place, default in documented.items():
        assert default in ("by data set", f"`{json.dumps(known[place])}`")


def test_defaults_by_data_set_are_as_documented() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    table = page.split("## By data set")[1].split("## Results")[0]
    rows = re.findall(r"^\| ([a-z0-9 ]+) \| ([a-z0-9]+ \| .*\d) \|$", table, flags=re.MULTILINE)
    assert len(rows) == 9
    for name, cells in rows:
        layers = Layers()
        layers.add_key("dataset", "own.npz" if name == "own data" else name, "test")
        layers.add_key("methods", list(STARTS), "test")
        config = layers.config()
        rate = config.lr.algorithms["fedavg"]
        usual = config.parameters
        shown = (
            f"{config.model.kind} | {config.rounds} | {config.partition.device_count} | "
            f"{config.local.batch} | {usual['warm_start']['scale']:g} | "
            f"{usual['continuous']['kl']:g} | "
            f"{rate.initial:g}, {rate.floor:g}"
        )
        assert cells == shown


def test_links_in_the_documents_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if not link.startswith("http"):
                assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_every_extra_is_listed_with_what_it_brings() -> None:
    page = (ROOT / "docs" / "installing.md").read_text(encoding="utf-8")
    table = page.split("## Extras")[1].split("## The compiler")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, flags=re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert rows.keys() == extras.keys()
    for extra in rows.keys() - {"dev"}:
        packages = [re.split(r"[^\w-]", text)[0] for text in extras[extra]]
        assert rows[extra] == (", ".join(packages) or "nothing more")


def test_the_table_of_the_first_five_minutes_is_what_the_demo_prints() -> None:
    page = (ROOT / "docs" / "five-minutes.md").read_text(encoding="utf-8")
    found = ebbflow.compare(preset="demo")
    for method in ("learned", "warm_start", "previous", "average"):
        (line,) = re.findall(rf"^\| {method} \| (\d.*)$", page, flags=re.MULTILINE)
        shown = [float(number) for number in re.findall(r"\d+\.\d+", line)]
        for k in (1, 2, 3, 4):
            cell = [r for r in found.rows if (r["method"], r["transition"]) == (method, k)]
            ours = mean_and_deviation([row["accuracy"] for row in cell])
            # Another processor may round otherwise: a test sample or two, not more.
            assert shown[2 * k - 2 : 2 * k] == pytest.approx(ours, abs=0.3)


def test_python_in_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


def test_what_a_reader_adds_by_the_page_on_extending_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    registries: list[Registry[Any]] = [ALGORITHMS, STARTS, DATASETS, MODELS]
    before = [set(registry) for registry in registries]
    try:
        for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
            exec(compile(block, "extending.md", "exec"), names)
        pairs = list(zip(registries, before, strict=True))
        added = {name for registry, old in pairs for name in registry.keys() - old}
        assert added == {
            "fednova",
            "every_other",
            "carry_on_or_restart",
            "nearest",
            "blobs",
            "narrow",
        }
    finally:  # what the page registers is of no use to other tests
        for registry, old in zip(registries, before, strict=True):
            for name in registry.keys() - old:
                registry.unregister(name)


def test_documents_and_examples_import_from_the_front_door() -> None:
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        page = path.read_text(encoding="utf-8")
        for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
            assert "ebbflow.core" not in block, f"{path.name} imports from ebbflow.core"
