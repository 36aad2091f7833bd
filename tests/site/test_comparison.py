"""What the page on other frameworks says of versions and of speed is what was measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.comparison import PEERS, PLACE, WORKS, speeds
from benchmarks.performance_page import write_page
from benchmarks.results import Measurement, Results, Suite, read_results

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "comparison.md").read_text("utf-8")
PERFORMANCE = (ROOT / "docs" / "performance.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "package", "file"),
    [
        ("Flower", "flwr", "flower"),
        ("pfl-research", "pfl", "pfl"),
        ("FedJAX", "fedjax", "fedjax"),
        ("FedLab", "fedlab", "fedlab"),
        ("BlazeFL", "blazefl", "blazefl"),
    ],
)
def test_the_versions_are_those_that_were_measured(name: str, package: str, file: str) -> None:
    constraints = (ROOT / "benchmarks/peers/constraints" / f"{file}.txt").read_text("utf-8")
    (measured,) = re.findall(rf"^{package}==(\S+)$", constraints, re.MULTILINE)
    (shown,) = re.findall(rf"^\| {name} \| ([\d.]+)", PAGE, re.MULTILINE)
    assert measured == shown or measured.startswith(f"{shown}.")


SENTENCE = re.compile(
    r"A round of (?P<work>[a-z ]+) on (?P<devices>\d+) devices took the fastest peer, "
    r"(?P<fastest>[\w -]+), (?P<least>[\d.]+) times as long as ebbflow"
    r"(, and the slowest, (?P<slowest>[\w -]+), (?P<most>[\d.]+) times)?\."
)


def beside_us(workload: str) -> dict[str, str]:
    """Return how many times as long as ebbflow each peer took, as the table has it."""
    section = PERFORMANCE.split(f"## {workload}: ")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\w+) \| [^|]+ \| ([\d.]+) \|", section, re.MULTILINE)
    return {PEERS[name]: ratio for name, ratio in rows if name in PEERS}


def test_the_speeds_are_those_of_the_page_on_performance() -> None:
    said = list(SENTENCE.finditer(re.sub(r"\s+", " ", PAGE)))
    assert [each["work"] for each in said] == list(WORKS.values())
    for workload, each in zip(WORKS, said, strict=True):
        measured = beside_us(workload)
        assert len(measured) > 1
        in_order = sorted(measured, key=lambda name: float(measured[name]))
        assert (each["fastest"], each["slowest"]) == (in_order[0], in_order[-1])
        assert (each["least"], each["most"]) == (measured[in_order[0]], measured[in_order[-1]])
        assert re.search(
            rf"^## {workload}: .* {each['devices']} devices", PERFORMANCE, re.MULTILINE
        )


def test_the_sentences_are_written_from_the_kept_results() -> None:
    results = read_results(ROOT / "docs" / "performance.json")
    assert f"<!-- {PLACE} -->\n\n{speeds(results)}\n\n<!-- /{PLACE} -->" in PAGE


def measured(**seconds: float) -> Results:
    """Return results of W1 in which each peer took so long, and ebbflow a second."""
    ours = Measurement(name="ebbflow", seconds=[1.0])
    peers = [Measurement(name=name, seconds=[each], peer=True) for name, each in seconds.items()]
    gone = Measurement(name="pfl", peer=True, note="not measured: pfl ended")
    return Results(
        suites={
            "W1": Suite(
                name="W1",
                title="softmax regression 784 → 10, 7 devices, 600 samples each",
                measurements=[ours, *peers, gone],
                machine={"cores": "4"},
            )
        }
    )


def test_the_sentences_are_true_whichever_peer_is_fastest() -> None:
    said = speeds(measured(flower=2, fedjax=3.456, blazefl=2.5)).replace("\n", " ")
    assert said == (
        "A round of softmax regression on 7 devices took the fastest peer, Flower on Ray, 2.00 "
        "times as long as ebbflow, and the slowest, FedJAX, 3.46 times. That was on *four cores "
        "without a GPU*."
    )
    alone = speeds(measured(fedlab=2)).replace("\n", " ")
    assert "the fastest peer, FedLab, 2.00 times as long as ebbflow. That was" in alone


def test_measuring_again_changes_the_sentences_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "comparison.md"
    text = f"before\n\n<!-- {PLACE} -->\n\nold\n\n<!-- /{PLACE} -->\n\nbehind\n"
    page.write_text(text, encoding="utf-8")
    write_page(tmp_path / "performance.md", list(measured().suites.values()))
    assert page.read_text(encoding="utf-8") == text  # no peer was measured
    write_page(tmp_path / "performance.md", list(measured(fedlab=2).suites.values()))
    new = speeds(measured(fedlab=2))
    assert page.read_text(encoding="utf-8") == text.replace("old", new)
    other = tmp_path / "other" / "performance.md"
    other.parent.mkdir()
    write_page(other, list(measured(fedlab=2).suites.values()))
    assert sorted(path.suffix for path in other.parent.iterdir()) == [".json", ".md", ".png"]
