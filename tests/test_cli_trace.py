"""`ebbflow trace show`: a trace in numbers, its oddities, its sessions, and a picture."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbflow.analysis.traces import stays_of, trace_cut, trace_facts
from ebbflow.data.schedule import Roster
from ebbflow.data.traces.trace import Cut, from_trace
from ebbflow.data.traces.trace_files import Trace
from tests.data.traces import CHURN, random_trace, trace
from tests.test_cli import ebbflow, process

PAGE = Path(__file__).parent.parent / "docs" / "traces.md"
STAYS = "device,start,end\na,0,4\nb,1,3\nc,2,\na,6,7\n"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stays.csv").write_text(STAYS, encoding="utf-8")
    (tmp_path / "stamps.csv").write_text(
        "time,device,event\n2024-05-01T00:00:00Z,a,join\n2024-05-03T00:00:00Z,b,join\n",
        encoding="utf-8",
    )
    return tmp_path


def test_the_page_shows_what_the_command_prints(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    section = PAGE.read_text(encoding="utf-8").split("## A look at a trace")[1]
    content, shown = re.findall(r"```(?:csv)?\n(.*?)```", section, flags=re.DOTALL)[:2]
    (desk / "devices.csv").write_text(content, encoding="utf-8")
    answer = ebbflow("trace", "show", "devices.csv", "--interval", "1d")
    assert (answer.code, answer.err) == (0, "")
    assert [line.rstrip() for line in answer.out.splitlines()] == shown.splitlines()


def test_every_form_on_the_page_can_be_read(desk: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    forms = re.findall(r"```(csv|json)\n(.*?)```", page, flags=re.DOTALL)
    assert len(forms) == 5
    for kind, content in forms:
        suffix = kind if kind == "csv" or content.startswith("{\n") else "jsonl"
        path = desk / f"form.{suffix}"
        path.write_text(content, encoding="utf-8")
        answer = ebbflow("trace", "show", str(path), "--interval", "1h", "--unit", "1s")
        assert (answer.code, answer.err) == (0, ""), content


def test_json_holds_everything(desk: Path) -> None:
    answer = ebbflow("trace", "show", "stays.csv", "--interval", "2", "--json")
    assert answer.code == 0
    found = json.loads(answer.out)
    sessions = found.pop("sessions")
    assert found == {
        "devices": 3,
        "events": 7,
        "first": 0.0,
        "last": 7.0,
        "median_stay": 2.0,
        "median_absence": 2.0,
        "present": pytest.approx((1 + 2 + 3 + 2 + 1 + 1 + 2) / 7),
        "least": 1,
        "most": 3,
        "unit_seconds": None,
        "timestamps": False,
        "odd": [],
        "session_count": 4,
    }
    assert [each["start"] for each in sessions] == [0, 2, 4, 6]
    assert [each["devices"] for each in sessions] == [1, 3, 1, 2]
    assert [each["joined"] for each in sessions] == [1, 2, 0, 1]
    assert [each["left"] for each in sessions] == [0, 0, 2, 0]
    assert [each["back"] for each in sessions] == [0, 0, 0, 1]
    assert [each["common"] for each in sessions] == pytest.approx([None, 1 / 3, 1 / 3, 1 / 2])
    assert [each["nearest"] for each in sessions] == pytest.approx([None, 1 / 3, 1 / 3, 2 / 3])
    assert [each["nearest_session"] for each in sessions] == [None, 1, 2, 2]


def test_a_trace_that_cannot_be_cut_is_shown_all_the_same(desk: Path) -> None:
    answer = ebbflow("trace", "show", "stamps.csv")
    assert answer.code == 2
    assert "2024-05-01 00:00:00 to 2024-05-03 00:00:00 UTC (2d)" in answer.out
    assert answer.err.startswith("ebbflow: The trace stamps.csv has timestamps, and without")
    answer = ebbflow("trace", "show", "stamps.csv", "--json")
    assert answer.code == 2
    assert json.loads(answer.out)["sessions"] is None
    answer = ebbflow("trace", "show", "stamps.csv", "--cut", "change")
    assert (answer.code, answer.err) == (0, "")


def test_all_that_is_odd_is_shown(desk: Path) -> None:
    lines = "".join(f"{time},a,join\n" for time in range(9))
    (desk / "odd.csv").write_text(f"time,device,event\n{lines}9,b,leave\n", encoding="utf-8")
    answer = ebbflow("trace", "show", "odd.csv")
    assert (answer.code, answer.err) == (0, "")
    assert "odd       8 joins of devices that are present (the first at line 3: " in answer.out
    assert "at line 3; line 4; line 5; line 6; line 7 and 3 more" in answer.out
    assert "odd       1 leave without a join (the first at line 11: " in answer.out
    assert 'a run stops at the first of these, unless schedule.odd = "mend"' in answer.out
    mended = ebbflow("trace", "show", "odd.csv", "--set", "schedule.odd=mend")
    assert "a run stops" not in mended.out
    found = json.loads(ebbflow("trace", "show", "odd.csv", "--json").out)
    assert [(odd["kind"], len(odd["places"])) for odd in found["odd"]] == [
        ("second join", 8),
        ("no join", 1),
    ]


def test_settings_and_a_configuration_apply(desk: Path) -> None:
    (desk / "own.toml").write_text('[schedule]\nfile = "other.csv"\ninterval = 3\n')
    answer = ebbflow("trace", "show", "stays.csv", "--config", "own.toml", "--json")
    assert [each["start"] for each in json.loads(answer.out)["sessions"]] == [0, 3, 6]
    more = ("--set", "schedule.min_devices=2")
    answer = ebbflow("trace", "show", "stays.csv", "--config", "own.toml", "--json", *more)
    assert [each["start"] for each in json.loads(answer.out)["sessions"]] == [3, 6]
    answer = ebbflow("trace", "show", "stays.csv", "--unit", "1h", "--interval", "90m")
    assert "(7h)" in answer.out
    assert "1.5h" in answer.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nosuch.csv"], "The trace nosuch.csv does not exist"),
        (["stays.csv", "--interval", "1x"], "= \"1x\" (--interval) is refused: '1x' has the unk"),
        (["stays.csv", "--cut", "weekly"], "schedule.cut"),
        (["stays.csv", "--unit", "5"], "(--unit) is refused: a unit of time is"),
        (["stays.csv", "--set", "schedule.intervall=1"], "did you mean schedule.interval?"),
        (["stays.csv", "--picture", "x.txt"], "--picture x.txt does not say"),
        (["stays.csv", "--set", "schedule.columns.time=t"], "line 1: the header"),
    ],
)
def test_bad_input_is_refused(desk: Path, arguments: Sequence[str], says: str) -> None:
    answer = ebbflow("trace", "show", *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert says in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("devices", [3, 1800])
def test_a_picture_is_drawn_of_any_number_of_devices(desk: Path, devices: int) -> None:
    rows = [f"d${i}\x1b,{i % 7},{i % 7 + 1 + i % 3}" for i in range(devices)]
    (desk / "many.csv").write_text("\n".join(["device,start,end", *rows]), encoding="utf-8")
    answer = ebbflow("trace", "show", "many.csv", "--picture", "who.png")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.endswith("picture   who.png\n")
    assert (desk / "who.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_of_dates_and_of_hours_and_of_an_instant(desk: Path) -> None:
    for arguments in (
        ["stamps.csv", "--interval", "1d"],
        ["stamps.csv", "--interval", "1s"],
        ["stays.csv", "--unit", "1h"],
        ["instant.csv", "--unit", "1s"],
    ):
        (desk / "instant.csv").write_text("device,start,end\na,3,\n", encoding="utf-8")
        answer = ebbflow("trace", "show", *arguments, "--picture", "who.svg")
        assert (answer.code, answer.err) == (0, "")
        assert "<svg" in (desk / "who.svg").read_text(encoding="utf-8")


def test_a_look_needs_no_torch(desk: Path) -> None:
    script = (
        "import sys; from ebbflow.cli import app; "
        "app(['trace', 'show', 'stays.csv'], standalone_mode=False); "
        "assert 'torch' not in sys.modules; assert 'matplotlib' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert process("trace").stdout.startswith("Usage: ebbflow trace")


# --- against plain twins -------------------------------------------------------------------------


def jaccard(one: set[int], other: set[int]) -> float:
    return len(one & other) / len(one | other)


def sets(roster: Roster) -> list[set[int]]:
    return [set(session.devices) for session in roster.sessions]


@settings(deadline=None)
@given(st.integers(0, 1000), st.sampled_from([Cut("interval", 0.6), Cut("change", None, 0.4)]))
def test_sessions_are_those_of_a_run_and_compared_as_sets(seed: int, cut: Cut) -> None:
    read = Trace(random_trace((seed,), CHURN, horizon=6.0), (), None, stamped=False)
    facts = trace_cut(read, cut).sessions
    rosters = sets(from_trace(read.events, cut))
    assert [each.devices for each in facts] == [len(members) for members in rosters]
    for place, (before, now) in enumerate(pairwise(rosters), start=1):
        each = facts[place]
        earlier = rosters[:place]
        assert (each.joined, each.left) == (len(now - before), len(before - now))
        assert each.back == len((now - before) & set().union(*earlier))
        assert each.common == pytest.approx(jaccard(before, now))
        assert each.nearest == pytest.approx(max(jaccard(old, now) for old in earlier))


@settings(deadline=None)
@given(st.integers(0, 1000))
def test_stays_are_counted_as_they_are(seed: int) -> None:
    read = Trace(random_trace((seed,), CHURN, horizon=6.0), (), None, stamped=False)
    stays, facts = stays_of(read), trace_facts(read)
    total = float((stays.ends - stays.starts).sum())
    assert facts.present * (facts.last - facts.first) == pytest.approx(total)
    assert int(stays.ended.sum()) == sum(not event.joins for event in read.events)


def test_a_single_instant_has_a_presence() -> None:
    read = Trace(trace("3+a 3+b"), (), None, stamped=False)
    facts = trace_facts(read)
    assert (facts.present, facts.least, facts.most) == (2.0, 2, 2)
    assert (facts.median_stay, facts.median_absence) == (None, None)


def test_the_trigger_on_the_page_cuts_as_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    section = PAGE.read_text(encoding="utf-8").split("## Where a session begins")[1]
    code, told = re.findall(r"```python\n(.*?)```\n\nprints `(.*?)`", section, flags=re.DOTALL)[0]
    exec(compile(code, "traces.md", "exec"), {})
    assert capsys.readouterr().out.strip() == told
