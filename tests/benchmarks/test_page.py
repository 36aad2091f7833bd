"""The page is made of the numbers, and keeps those that were not measured again."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.performance_page import page_text, write_page
from benchmarks.results import Measurement, Requirement, Results, Suite, read_results
from ebbflow.core.errors import EbbflowError


def suite(name: str = "W1", seconds: float = 0.05) -> Suite:
    return Suite(
        name=name,
        title="softmax, few devices",
        measurements=[
            Measurement(name="ebbflow", seconds=[seconds, 2 * seconds, 3 * seconds], memory=10**8),
            Measurement(
                name="slow", seconds=[1.0, 1.0, 1.0], difference=1e-8, peer=True, note="1 thread"
            ),
            Measurement(name="gone", peer=True, note="not measured: gone ended"),
        ],
        requirements=[
            Requirement(what="beside the fastest peer", value=10, bound=3, at_least=True)
        ],
        machine={"processor": "a processor", "cores": "2"},
        versions={"python": "3.11.0", "slow": "1.0"},
    )


def curve() -> Suite:
    measurements = [
        Measurement(
            name=f"{n} devices", seconds=[n / 1000], memory=n + 10**8, steps=5 * n, devices=n
        )
        for n in (10, 100)
    ]
    requirement = Requirement(what="memory", value=1.3, bound=1.1)
    return Suite(
        name="scaling", title="sessions", measurements=measurements, requirements=[requirement]
    )


def test_a_page_has_bounds_tables_machine_and_versions() -> None:
    profile = Suite(
        name="profile", title="where", shares={"a round": {"gather": 0.7, "busy threads": 1.9}}
    )
    text = page_text(Results().updated([curve(), suite(), profile]), "p.png", "p.json")
    assert text.index("## W1") < text.index("## scaling") < text.index("## where")
    assert "| **ebbflow** | 100 ms (50 ms to 150 ms) | 1.00 |  | 100 MB |  |" in text
    assert "| slow | 1 s (1 s to 1 s) | 10.00 | 1.0e-08 |  | 1 thread |" in text
    assert "| W1 | beside the fastest peer | 10.00 x | at least 3 x | yes |" in text
    assert "| scaling | memory | 1.30 x | at most 1.1 x | **no** |" in text
    assert "| 10 devices | 10 ms | 200.0 µs |" in text.replace("**", "")
    assert "| gather | 70.0 % |" in text and "(1.9 threads busy on average)" in text
    assert "processor a processor, cores 2" in text
    assert "python 3.11.0, slow 1.0" in text


def test_suites_that_are_not_measured_again_stay(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    write_page(page, [suite(), curve()])
    write_page(page, [suite(seconds=0.2)])
    kept = read_results(tmp_path / "performance.json")
    assert kept.suites["W1"].measurements[0].median == 0.4
    assert kept.suites["scaling"] == curve()
    assert (tmp_path / "performance.png").read_bytes().startswith(b"\x89PNG")
    assert "![times" in page.read_text(encoding="utf-8")
    first = page.read_bytes()
    write_page(page, [])
    assert page.read_bytes() == first


def test_another_file_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "performance.json").write_text('{"a": 1}', encoding="utf-8")
    with pytest.raises(EbbflowError, match="delete it"):
        read_results(tmp_path / "performance.json")
