"""Everything that the page tells of one run or several, as a dictionary that JSON can hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict

from ebbflow.analysis.metrics import Target
from ebbflow.analysis.run_metrics import RunMetrics, metrics_of
from ebbflow.analysis.views.run_view import RunView, load_view
from ebbflow.analysis.views.spending import Spending, spending
from ebbflow.analysis.views.verdict import StartVerdict, nothing_yet, verdicts
from ebbflow.core.judging import Judge
from ebbflow.report.colours import TOGETHER, Look, looks
from ebbflow.report.page.cost_data import CostSection, cost_section
from ebbflow.report.page.curve_data import CurveFacts, curve_facts
from ebbflow.report.page.device_data import DeviceSection, device_section
from ebbflow.report.page.event_data import EventSection, event_section
from ebbflow.report.page.origin_data import MapFacts, OriginSection, map_facts, origin_section
from ebbflow.report.page.overview_data import Overview, overview
from ebbflow.report.page.plain import number, text
from ebbflow.report.page.presence_data import PresenceFacts, presence_facts
from ebbflow.report.page.score_data import ScoreSection, score_section
from ebbflow.report.page.setting_data import SettingSection, setting_section
from ebbflow.runs.finding import run_folders, told_apart
from ebbflow.runs.state import RunState, run_state

TARGETS = (Target(0.95),)
"""The accuracy to reach, unless the user names another: 95 % of the reference's peak."""
MOST_UNFINISHED = 1000
"""Rounds of an unfinished run, over all seeds, up to which its costs are computed: every round's
channel is drawn, which takes more than a millisecond, and a live page computes them often."""


class JudgeFacts(TypedDict):
    """The measure that methods are judged by."""

    title: str
    short: str
    unit: str
    points: str
    percent: bool
    higher: bool


class StateFacts(TypedDict):
    """How far a run is, with ``place`` in words."""

    state: str
    place: str
    seed: int | None
    session: int | None
    round: int | None
    done: int | None
    total: int | None


class VerdictFacts(TypedDict):
    """Which start won under an algorithm, and by how much; see `ebbflow.analysis.views.verdict`."""

    algorithm: str
    sentence: str
    window: int
    winner: str
    score: float | None
    lead: float | None
    low: float | None
    high: float | None


class HeadlineFacts(TypedDict):
    """The size of a run so far, and how long it took."""

    dataset: str
    partition: str
    sessions: int
    rounds: int
    devices: int
    present: float | None
    seconds: float


class PlanFacts(TypedDict):
    """What a run will have when it is finished; so far some may have done no round."""

    algorithms: list[str]
    methods: list[str]
    seeds: list[int]
    sessions: int


class LookFacts(TypedDict):
    """How a method is drawn."""

    light: str
    dark: str
    dash: str
    marker: str


class RunContent(TypedDict):
    """What the page tells of one run."""

    name: str
    state: StateFacts
    judge: JudgeFacts
    headline: HeadlineFacts
    nothing_yet: str
    verdicts: list[VerdictFacts]
    algorithms: list[str]
    methods: list[str]
    seeds: list[int]
    planned: PlanFacts
    pilot: int
    windows: list[int]
    curves: list[CurveFacts]
    scores: ScoreSection
    costs: CostSection
    presence: list[PresenceFacts]
    origins: OriginSection
    maps: list[MapFacts]
    devices: DeviceSection
    events: EventSection
    settings: SettingSection


class PageContent(TypedDict):
    """What the page tells: an overview if there are several runs, and each of them."""

    title: str
    version: str
    looks: dict[str, LookFacts]
    together: LookFacts
    overview: Overview | None
    runs: list[RunContent]


def content_of_folders(paths: Sequence[Path], targets: Sequence[Target] = TARGETS) -> PageContent:
    """Return the content for run folders, and for all runs below other folders."""
    folders = run_folders(paths)
    views = [load_view(folder) for folder in folders]
    return page_content(views, told_apart(folders), targets)


def page_content(
    views: Sequence[RunView],
    names: Sequence[str] | None = None,
    targets: Sequence[Target] = TARGETS,
    spent: Sequence[Spending] | None = None,
) -> PageContent:
    """Return the content for runs, which need not be finished; ``names`` tell them apart.

    ``spent`` is what each run has spent, if that was computed before.
    """
    from ebbflow import __version__  # noqa: PLC0415 - the package imports what it exports lazily

    called = [text(name) for name in (names or [view.name for view in views])]
    if spent is None:
        spent = [spent_so_far(view) for view in views]
    judged = [_judged(view, targets, own) for view, own in zip(views, spent, strict=True)]
    runs = [
        _run_content(view, name, found, targets)
        for view, name, found in zip(views, called, judged, strict=True)
    ]
    side_by_side = overview(
        views,
        called,
        [run["state"]["state"] for run in runs],
        [found.metrics for found in judged],
        [found.verdicts for found in judged],
    )
    return PageContent(
        title=called[0] if len(called) == 1 else f"{len(called)} runs",
        version=__version__,
        looks={
            method: _look_facts(look)
            for method, look in looks(
                list(dict.fromkeys(name for view in views for name in view.config.methods))
            ).items()
        },
        together=_look_facts(TOGETHER),
        overview=side_by_side if len(views) > 1 else None,
        runs=runs,
    )


# --- one run -------------------------------------------------------------------------------------


class _Judged(NamedTuple):
    metrics: RunMetrics
    spent: Spending
    verdicts: Sequence[StartVerdict]


def _judged(view: RunView, targets: Sequence[Target], spent: Spending) -> _Judged:
    metrics = metrics_of(view.config, view.rounds, view.events, targets)
    return _Judged(metrics, spent, verdicts(metrics, spent.usages))


def spent_so_far(view: RunView) -> Spending:
    """Return what a run has spent, unless it is long and not finished."""
    rounds = len({(r.algorithm, r.seed, r.session, r.round) for r in view.rounds})
    if view.finished or rounds <= MOST_UNFINISHED:
        return spending(view)
    return Spending(
        (),
        f"the run has {rounds:,} rounds so far, and this is computed when it is finished; "
        "`ebbflow cost` tells it before",
    )


def _run_content(view: RunView, name: str, found: _Judged, targets: Sequence[Target]) -> RunContent:
    presence = presence_facts(view)
    return RunContent(
        name=name,
        state=state_facts(_state(view)),
        judge=_judge_facts(view.judge),
        headline=_headline(view, presence),
        nothing_yet=nothing_yet(found.metrics),
        verdicts=[_verdict_facts(verdict) for verdict in found.verdicts],
        algorithms=list(view.algorithms),
        methods=list(view.methods),
        seeds=list(view.seeds),
        planned=PlanFacts(
            algorithms=list(view.config.algorithm),
            methods=list(view.config.methods),
            seeds=list(view.config.seeds),
            sessions=view.config.sessions,
        ),
        pilot=view.config.pilot.sessions,
        windows=sorted(view.config.window),
        curves=curve_facts(view),
        scores=score_section(view, found.metrics),
        costs=cost_section(view, found.spent, targets),
        presence=presence,
        origins=origin_section(view),
        maps=map_facts(view),
        devices=device_section(view),
        events=event_section(view),
        settings=setting_section(view),
    )


def state_facts(state: RunState) -> StateFacts:
    """Return how far a run is."""
    return StateFacts(
        state=state.state,
        place=state.place,
        seed=state.seed,
        session=state.session,
        round=state.round,
        done=state.done,
        total=state.total,
    )


def _state(view: RunView) -> RunState:
    return RunState("finished") if view.folder is None else run_state(view.folder)


def _judge_facts(judge: Judge) -> JudgeFacts:
    return JudgeFacts(
        title=judge.title,
        short=judge.title.removesuffix(" (%)"),
        unit=" %" if judge.percent else "",
        points=" points" if judge.percent else "",
        percent=judge.percent,
        higher=judge.higher,
    )


def _verdict_facts(verdict: StartVerdict) -> VerdictFacts:
    lead = verdict.lead
    return VerdictFacts(
        algorithm=verdict.algorithm,
        sentence=verdict.sentence,
        window=verdict.window,
        winner=verdict.winner,
        score=number(verdict.score),
        lead=None if lead is None else number(lead.mean),
        low=None if lead is None else number(lead.low),
        high=None if lead is None else number(lead.high),
    )


def _headline(view: RunView, presence: Sequence[PresenceFacts]) -> HeadlineFacts:
    present = [row["devices"] for facts in presence for row in facts["sessions"]]
    longest: dict[int, int] = {}
    for r in view.rounds:
        longest[r.session] = max(longest.get(r.session, 0), r.round)
    return HeadlineFacts(
        dataset=text(view.environment.get("dataset", {}).get("name", view.config.dataset)),
        partition=view.config.partition.kind,
        sessions=len(longest),
        rounds=sum(longest.values()),
        devices=max((facts["devices"] for facts in presence), default=0),
        present=number(sum(present) / len(present), 4) if present else None,
        seconds=round(sum(e["seconds"] for e in view.events if e["event"] == "finished"), 1),
    )


def _look_facts(look: Look) -> LookFacts:
    return LookFacts(light=look.light, dark=look.dark, dash=look.dash, marker=look.marker)
