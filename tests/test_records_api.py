"""Records in Python: how they show themselves, and what they become."""

from __future__ import annotations

import html
import json
import math
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import ebbflow
from ebbflow import EbbflowError, Records, Runs, experiment
from ebbflow.config.resolve import LABEL_KINDS
from ebbflow.core.errors import RunStoppedError
from ebbflow.data.distributions import DISTRIBUTIONS
from ebbflow.data.partition import PARTITIONS
from ebbflow.outcomes.sheet_html import as_html
from ebbflow.outcomes.sheet_text import MOST_ROWS, as_text
from ebbflow.report.export.frames import TABLES
from ebbflow.report.export.sheets import HeadCell, Sheet, SheetCell
from ebbflow.report.figures.gallery import FIGURES
from ebbflow.runs import records
from ebbflow.runs.configuration import read_config
from ebbflow.runs.summary import WITH_ALPHA
from tests.test_cli import ebbflow as command_line
from tests.test_cli import tree

ROOT = Path(__file__).parent.parent
TINY: dict[str, Any] = {"sessions": 5, "rounds": 3, "devices": 4, "window": [2]}
METHODS = ("learned", "warm_start", "previous", "average")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two finished runs, and one that was stopped."""
    below = tmp_path_factory.mktemp("runs")
    ebbflow.compare("digits", **TINY, seeds=[1, 2], out=below / "a")
    ebbflow.compare("digits", **{**TINY, "devices": 6}, seeds=[2, 1, 3], out=below / "b")
    asked = iter([False] * (13 + 4))  # after every round and session
    config = read_config(below / "a")
    with pytest.raises(RunStoppedError):
        experiment.run(config, below / "stopped", stop=lambda: next(asked, True))
    return below


@pytest.fixture(scope="module")
def loaded(folder: Path) -> Records:
    return one(folder / "a")


def one(path: Path) -> Records:
    found = ebbflow.load(path)
    assert isinstance(found, Records)
    return found


def several(*paths: Path) -> Runs:
    found = ebbflow.load(*paths)
    assert isinstance(found, Runs)
    return found


# --- loading -------------------------------------------------------------------------------------


def test_what_is_loaded_is_what_was_returned(tmp_path: Path) -> None:
    returned = ebbflow.compare("digits", **TINY, seeds=[1], out=tmp_path / "run")
    assert one(tmp_path / "run") == returned
    assert returned.environment == one(tmp_path / "run").environment != {}
    assert one(tmp_path / "run").name == returned.name == "run"


def test_loading_imports_no_torch_and_changes_nothing(folder: Path) -> None:
    before = tree(folder)
    code = (
        "import sys, ebbflow; found = ebbflow.load(*sys.argv[1:]); print(found)\n"
        "for run in found: run.to_pandas(), run.to_pandas('starts')\n"
        "assert 'torch' not in sys.modules"
    )
    paths = [str(folder / name) for name in ("a", "stopped")]
    subprocess.run([sys.executable, "-c", code, *paths], check=True, cwd=folder)
    assert tree(folder) == before


def test_an_unfinished_run_is_read_as_far_as_it_is(folder: Path) -> None:
    found = one(folder / "stopped")
    assert not found.finished
    assert found.state == "stopped, seed 1, session 5 of 5, round 2 (14 of 30 rounds)"
    assert found.state in repr(found)
    whole = one(folder / "a")
    assert found.rounds == whole.rounds[: len(found.rounds)]
    # Sessions 1 to 4 are over, and their rows are those of the finished run.
    assert found.rows == [r for r in whole.rows if r["seed"] == 1 and r["session"] < 5]
    assert found.summary().verdicts[0].window == 2
    assert len(found.to_pandas()) == 14 * 4


def test_a_run_that_has_not_begun_says_so(folder: Path, tmp_path: Path) -> None:
    records.claim_folder(tmp_path / "run", read_config(folder / "a").model_dump())
    found = one(tmp_path / "run")
    assert (found.rounds, found.rows, found.finished) == ([], [], False)
    assert found.verdict == "No round is finished yet."
    assert repr(found.summary()) == found.verdict
    assert found.verdict in found._repr_html_()
    assert "before the first round" in repr(found)
    assert found.summary().winner == ""
    assert math.isnan(found.summary().score)
    with pytest.raises(EbbflowError, match="holds no rounds yet"):
        found.to_pandas()
    # Beside a run that has begun, it does not keep that one from being shown.
    assert "warm_start" in several(folder / "a", tmp_path / "run")._repr_html_()


def test_a_damaged_run_is_not_loaded(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "a", tmp_path / "run")
    path = tmp_path / "run" / records.METRICS
    lines = path.read_bytes()
    path.write_bytes(lines.replace(b'"seed":1', b'"seed":3', 1))
    assert path.read_bytes() != lines
    with pytest.raises(EbbflowError, match="does not match its checksum"):
        ebbflow.load(tmp_path / "run")
    with pytest.raises(EbbflowError, match="is no folder: name a run folder"):
        ebbflow.load(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(EbbflowError, match="holds no ebbflow run"):
        ebbflow.load(tmp_path / "empty")


def test_rows_need_no_torch_to_know_their_setting() -> None:
    assert set(PARTITIONS) == WITH_ALPHA
    assert set(DISTRIBUTIONS) == LABEL_KINDS


# --- one run -------------------------------------------------------------------------------------


def test_one_line_says_what_a_run_is(loaded: Records, folder: Path) -> None:
    assert repr(loaded) == (
        "<Records of digits: fedavg with learned, warm_start, previous, average; seeds 1, 2; 5 "
        f"sessions of 3 rounds; finished; {folder / 'a'}>"
    )
    in_memory = ebbflow.run("digits", **{**TINY, "sessions": 1}, seeds=7, pilot=1)
    assert repr(in_memory) == (
        "<Records of digits: fedavg with warm_start; seed 7; 1 session of 3 rounds; finished; in "
        "memory>"
    )


def test_the_summary_is_readable_and_has_numbers(loaded: Records) -> None:
    summary = loaded.summary()
    means = {
        method: statistics.fmean(
            row["accuracy"]
            for row in loaded.rows
            if row["method"] == method and row["transition"] is not None
        )
        for method in METHODS
    }
    assert summary.winner == max(means, key=lambda method: means[method])
    assert summary.score == pytest.approx(max(means.values()))
    overall = {s.method: s.mean for s in summary.scores if s.transition is None}
    assert overall == pytest.approx(means)
    assert summary.lead is not None
    assert summary.lead.n == 2
    assert summary.p == 0.5
    text = repr(summary)
    assert " ".join(text.split("\n\n")[0].split()) == loaded.verdict == summary.verdict
    assert loaded.verdict.startswith(summary.winner)
    (line,) = re.findall(rf"^{summary.winner}  .*$", text, flags=re.MULTILINE)
    assert f"{summary.score:.2f}" in line
    assert line.endswith("*")
    assert max(map(len, text.splitlines())) <= 100
    frame = summary.to_pandas()
    assert frame[frame["transition"].isna()].set_index("method")["mean"].to_dict() == overall


def test_several_algorithms_have_a_verdict_each() -> None:
    found = ebbflow.compare("digits", **TINY, seeds=[1], algorithm=["fedavg", "fedprox"])
    told = found.verdict.splitlines()
    assert [line.partition(":")[0] for line in told] == ["fedavg", "fedprox"]
    assert [verdict.algorithm for verdict in found.summary().verdicts] == ["fedavg", "fedprox"]
    assert found._repr_html_().count("<table") == 2


def test_starts_of_the_caller_and_errors_of_which_less_is_better_are_shown() -> None:
    def mine() -> ebbflow.Start:
        return ebbflow.STARTS["previous"].build({})

    inputs = np.random.default_rng(0).normal(size=(300, 3))
    found = ebbflow.compare(
        (inputs, inputs[:, 0] * 2 - inputs[:, 1]),
        **{**TINY, "task": "regression", "methods": [mine, "average"], "test_split": 0.2},
        seeds=[1, 2],
    )
    assert "mine" in repr(found.summary())
    assert "RMSE" in found.verdict
    best = min(s.mean for s in found.summary().scores if s.transition is None)
    assert found.summary().score == pytest.approx(best)


@pytest.mark.parametrize("name", TABLES)
def test_every_table_becomes_a_data_frame(name: str, loaded: Records) -> None:
    frame = loaded.to_pandas(name)
    assert len(frame)
    assert frame.columns.is_unique
    for column, kind in frame.dtypes.items():
        if column in ("seed", "session", "round", "transition", "devices"):
            assert str(kind) in ("int64", "Int64"), column


def test_the_table_of_rounds_holds_every_round(loaded: Records) -> None:
    frame = loaded.to_pandas()
    names = ["algorithm", "method", "seed", "session", "round", "accuracy", "loss"]
    assert list(frame[names].itertuples(index=False, name=None)) == [
        tuple(getattr(r, name) for name in names) for r in loaded.rounds
    ]
    assert frame["transition"].isna().sum() == 3 * 3 * 4 * 2  # sessions, rounds, methods, seeds


def test_without_pandas_a_sentence_says_how_to_get_it(
    loaded: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(EbbflowError, match=r"need pandas, .* `pip install 'ebbflow\[table\]'`"):
        loaded.to_pandas()


@pytest.mark.parametrize("name", [name for name in FIGURES if name != "devices"])
def test_every_figure_is_drawn(name: str, loaded: Records) -> None:
    figure = loaded.plot(name, width="column", seeds=[1])
    assert isinstance(figure, Figure)
    assert figure.get_figwidth() == 3.5


def test_names_that_are_unknown_are_told(loaded: Records) -> None:
    with pytest.raises(EbbflowError, match="there is no table 'round': did you mean rounds"):
        loaded.to_pandas("round")
    with pytest.raises(EbbflowError, match="there is no figure 'curve': did you mean curves"):
        loaded.plot("curve")
    with pytest.raises(EbbflowError, match="there is no method 'warm': "):
        loaded.plot(methods=["warm"])


def test_a_report_is_one_page(loaded: Records, folder: Path, tmp_path: Path) -> None:
    path = loaded.report(tmp_path / "page.html")
    assert path == tmp_path / "page.html"
    assert path.read_text("utf-8").startswith("<!")
    shutil.copytree(folder / "a", tmp_path / "run")
    assert one(tmp_path / "run").report() == tmp_path / "run" / "report.html"
    both = several(folder / "a", folder / "b").report(tmp_path / "both.html")
    assert both.stat().st_size > path.stat().st_size / 2
    in_memory = Records(loaded.config, loaded.rounds, loaded.rows, loaded.events, name="mine")
    with pytest.raises(EbbflowError, match="in memory only"):
        in_memory.report()
    assert in_memory.report(str(tmp_path / "mine.html")).is_file()


# --- several runs --------------------------------------------------------------------------------


def test_a_folder_of_runs_and_several_folders_give_runs(folder: Path) -> None:
    runs = several(folder)
    assert runs.names == ["a", "b", "stopped"]
    assert [run.name for run in runs] == runs.names
    assert runs["b"] is runs[1]
    assert runs[-1].name == "stopped"
    assert runs[:2].names == ["a", "b"]
    assert len(runs) == 3
    assert several(folder / "b", folder / "a").names == ["b", "a"]
    assert "stopped (stopped, seed 1" in repr(runs)
    assert repr(runs).startswith("<3 runs: a (finished), b (finished), ")
    with pytest.raises(EbbflowError, match="there is no run 'c': known are a, b, stopped"):
        runs["c"]


def test_tables_of_runs_have_their_names_and_the_settings_that_differ(folder: Path) -> None:
    runs = several(folder / "a", folder / "b")
    assert runs.settings == {"partition.devices": [4, 6]}
    frame = runs.to_pandas()
    assert list(frame.columns[:2]) == ["run", "partition.devices"]
    assert frame.groupby("run")["partition.devices"].unique().map(list).to_dict() == {
        "a": [4],
        "b": [6],
    }
    assert len(frame) == sum(len(run.rounds) for run in runs)
    summary = runs.summary()
    assert list(summary.winners) == ["a", "b"]
    assert repr(summary).startswith("a: ")
    assert "<table" in summary._repr_html_()
    figure = runs.plot("curves", methods=["learned", "previous"])
    assert isinstance(figure, Figure)


def scores_of(run: Records, method: str, seed: int) -> float:
    """Return the mean over transitions of a method's window accuracies under a seed."""
    return statistics.fmean(
        row["accuracy"]
        for row in run.rows
        if (row["method"], row["seed"]) == (method, seed) and row["transition"] is not None
    )


def test_two_runs_are_paired_by_their_seeds(folder: Path) -> None:
    a, b = one(folder / "a"), one(folder / "b")
    pairs = a.compared_with(folder / "b")
    assert pairs.names == ("a", "b")
    assert pairs.seeds == [1, 2]
    assert pairs.settings == {"partition.devices": (4, 6)}
    assert [score.method for score in pairs.scores] == list(METHODS)
    for score in pairs.scores:
        ours, theirs = ([scores_of(run, score.method, s) for s in (1, 2)] for run in (a, b))
        apart = [x - y for x, y in zip(ours, theirs, strict=True)]
        assert score.ours == pytest.approx(statistics.fmean(ours))
        assert score.theirs == pytest.approx(statistics.fmean(theirs))
        assert score.difference == pytest.approx(statistics.fmean(apart))
        assert (score.seeds, score.transitions) == (2, 2)
        assert score.wins == sum(value > 0 for value in apart)
    text = repr(pairs)
    assert "Paired under 2 seeds (1, 2). They differ in partition.devices (4 and 6)." in text
    assert len(pairs.to_pandas()) == 4
    assert "<table" in pairs._repr_html_()


def test_a_run_beside_itself_is_level(folder: Path) -> None:
    for score in one(folder / "a").compared_with(one(folder / "a")).scores:
        assert (score.difference, score.low, score.high, score.wins) == (0, 0, 0, 0)
        assert score.p == 1


def test_less_is_better_where_the_measure_says_so(folder: Path) -> None:
    a, b = one(folder / "a"), one(folder / "b")
    more = a.compared_with(b)
    for run in (a, b):  # the same numbers, taken for perplexities
        run.config.update(task="tokens", metrics=["perplexity"], dataset="shakespeare")
    less = Records(a.config, a.rounds, a.rows, a.events).compared_with(
        Records(b.config, b.rounds, b.rows, b.events)
    )
    assert [s.difference for s in less.scores] == pytest.approx(
        [-s.difference for s in more.scores]
    )


def test_runs_without_a_seed_in_common_are_not_tested(folder: Path, tmp_path: Path) -> None:
    other = ebbflow.compare("digits", **TINY, seeds=[5], methods=["previous"], out=tmp_path / "o")
    pairs = one(folder / "a").compared_with(other)
    (score,) = pairs.scores
    assert (score.method, score.seeds, pairs.seeds) == ("previous", 0, [])
    assert math.isnan(score.p)
    assert math.isnan(score.low)
    assert "no seed in common" in repr(pairs)


def test_runs_with_nothing_in_common_are_refused(folder: Path) -> None:
    other = ebbflow.compare("digits", **{**TINY, "window": [3]}, seeds=[1])
    with pytest.raises(EbbflowError, match="a and digits have nothing to compare"):
        one(folder / "a").compared_with(other)
    other = ebbflow.compare("digits", **TINY, seeds=[1], metrics=["f1"])
    with pytest.raises(EbbflowError, match="a is judged by accuracy and digits by f1"):
        one(folder / "a").compared_with(other)


# --- in a notebook -------------------------------------------------------------------------------


class Tags(HTMLParser):
    """Collects the tags, the attributes and the text of a piece of HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.open.append(tag)
        self.attributes |= {name for name, _ in attributes}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


SAFE = {"div", "p", "code", "table", "caption", "thead", "tbody", "tr", "th", "td", "b"}


def safe_text(shown: str) -> str:
    """Return the text of a piece of HTML that holds nothing but text and tables."""
    found = Tags(shown)
    assert found.tags <= SAFE
    assert found.attributes <= {"style"}
    assert found.open == []
    return found.text


def test_a_notebook_shows_the_verdict_and_the_best_in_bold(loaded: Records) -> None:
    shown = loaded._repr_html_()
    text = safe_text(shown)
    assert loaded.verdict in text
    assert "digits: fedavg with learned" in text
    bold = {html.unescape(cell) for cell in re.findall(r"<b>(.*?)</b>", shown)}
    assert any(f"{loaded.summary().score:.2f}" in cell for cell in bold)
    assert not re.search(r"color: *#|background: *#|<style|<script", shown)


def test_a_notebook_takes_what_objects_offer(loaded: Records, folder: Path) -> None:
    formatters = pytest.importorskip("IPython.core.formatters")
    both = several(folder / "a", folder / "b")
    for thing in (loaded, both, loaded.summary(), both.summary(), both[0].compared_with(both[1])):
        found, _ = formatters.DisplayFormatter().format(thing)
        assert set(found) == {"text/plain", "text/html"}
        safe_text(found["text/html"])
        assert found["text/plain"].strip()


def hostile_names() -> Iterator[str]:
    yield from (
        "<script>alert(1)</script>",
        "</td></tr></table><h1>x",
        '"><img src=x onerror=alert(1)>',
        "' onmouseover='alert(1)",
        "<svg/onload=alert(1)>",
        "&lt;b&gt;",
        "&#60;script&#62;",
        "a\x1b[31mb",
        "a\x00b",
        "a\rb\nc",
        "a\u2028b\u2029c",
        "\u202egnp.exe",
        "\ud800",
        "<!-- x",
        "]]>",
        "<![CDATA[x",
        "{{7*7}}",
        "${7*7}",
        "<%= 7 %>",
        "javascript:alert(1)",
        "<b",
        "</div>",
        "</code>",
        "<a href='javascript:x'>y</a>",
        "x" * 5000,
    )
    for character in "<>&\"'`=/\\\t\v\f\x07\x08\x7f\x9b\u200b\ufeff\U000e0001%#;":
        yield f"{character}script{character}x"


HOSTILE = list(hostile_names())


def test_there_are_enough_hostile_names() -> None:
    assert len(set(HOSTILE)) >= 45


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_no_name_becomes_markup_or_a_terminal_code(name: str, loaded: Records) -> None:
    config = {**loaded.config, "dataset": name}
    here = Records(config, loaded.rounds, loaded.rows, loaded.events, Path(f"/x/{name}"), name=name)
    twice = Runs([here, here])
    for thing in (here, twice):
        safe_text(thing._repr_html_())
        line = repr(thing)
        assert len(line) < 400
        assert line.isprintable()
    cells = [SheetCell(name, best=True), SheetCell(name)]
    heads = [HeadCell(name, name), HeadCell(name)]
    sheet = Sheet(name, name, name, heads, [True, False], [[cells]])
    safe_text(as_html(name, [name], [sheet]))
    assert as_text([name], [sheet]).replace("\n", "").isprintable()


def test_a_long_table_is_cut() -> None:
    rows = [[SheetCell(str(number))] for number in range(MOST_ROWS + 7)]
    sheet = Sheet("t", "n", "l", [HeadCell("number")], [False], [rows])
    for shown in (as_text([], [sheet]), as_html("", [], [sheet])):
        assert "7 more rows are not shown" in shown
        assert str(MOST_ROWS) not in shown
        assert str(MOST_ROWS - 1) in shown


# --- more seeds ----------------------------------------------------------------------------------


def test_seeds_are_added_from_python(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "a", tmp_path / "run")
    found = ebbflow.extend(tmp_path / "run", seeds=range(3, 5))
    assert isinstance(found, Records)
    assert found.config["seeds"] == [1, 2, 3, 4]
    assert found == one(tmp_path / "run")
    whole = ebbflow.compare("digits", **TINY, seeds=[1, 2, 3, 4])
    assert (found.rounds, found.rows) == (whole.rounds, whole.rows)
    assert ebbflow.extend(tmp_path / "run", 9).config["seeds"][-1] == 9
    with pytest.raises(EbbflowError, match="already has the seed 9: name others"):
        ebbflow.extend(tmp_path / "run", 9)


def test_seeds_are_added_on_the_command_line(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "a", tmp_path / "run")
    path = str(tmp_path / "run")
    answer = command_line("extend", path, "--seeds", "7,3-4", "--json")
    assert answer.code == 0
    assert json.loads(answer.out)["config"]["seeds"] == [1, 2, 7, 3, 4]
    assert "seed 7  session 1/5" in answer.err
    assert "seed 2 " not in answer.err
    quiet = command_line("extend", path, "--seeds", "8", "--quiet", "--log", "csv")
    assert quiet == (0, f"{path}\n", "")
    # The log has what was there before, too: methods, rounds and sessions of six seeds.
    assert len((tmp_path / "run/csv/rounds.csv").read_text("utf-8").splitlines()) == 1 + 6 * 60
    told = command_line("extend", path, "--seeds", "9")
    assert "mean ± standard deviation over 7 seeds" in told.out
    assert f"records  {path}" in told.out
    assert "resumed by: " in (tmp_path / "run" / records.LOG).read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--seeds", "2"), "already has the seed 2: name others"),
        (("--seeds", "x"), "--seeds 'x' are no seeds: write whole numbers"),
        (("--seeds", "5-3"), "--seeds 5-3 ends before it begins: write 3-5"),
        (("--seeds", "3,3"), "names 3 more than once"),
        ((), "Missing option '--seeds'"),
    ],
)
def test_seeds_that_make_no_sense_get_a_sentence(
    arguments: tuple[str, ...], message: str, folder: Path
) -> None:
    before = tree(folder)
    answer = command_line("extend", str(folder / "a"), *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err
    assert len(answer.err.splitlines()) == 1
    assert tree(folder) == before


# --- the page ------------------------------------------------------------------------------------


def test_python_on_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of docs/records.md, in order; what it says about tables and figures is so."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "records.md").read_text("utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(compile(block, "records.md", "exec"), names)
    assert names["records"].config["seeds"] == [100, 200, 300, 400, 500]
    assert names["page"] == Path("runs/first/report.html")
    assert (tmp_path / "curves.pdf").stat().st_size > 1000
    assert names["runs"].names == ["10-devices", "6-devices"]
    tables = re.findall(r'^\| `"(\w+)"` \| (.*?) \|$', page, flags=re.MULTILINE)
    assert tables == [(name, kind.about) for name, kind in TABLES.items()]
    drawn = page.split("returns a figure of matplotlib:")[1].split("`report` writes")[0]
    assert re.findall(r'`"(\w+)"`', drawn) == list(FIGURES)
