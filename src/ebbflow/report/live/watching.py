"""What a page shows of runs while they go on, and what has changed since a browser last asked.

Nothing is done unless a browser asks. New rounds are read from the ends of files and sent as they
are. The page's other parts are computed from all rounds, which takes longer: that is done beside
the answers, when a session or a run is over, and never so often that it takes more than 2 % of a
core.
"""

from __future__ import annotations

import html
import json
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ebbflow.core.errors import EbbflowError
from ebbflow.report.live.added import Added
from ebbflow.report.live.pace import Pace
from ebbflow.report.live.server import Html
from ebbflow.report.live.waiting import waiting_page
from ebbflow.report.live.watched_run import RunLines, WatchedRun
from ebbflow.report.page.plain import text
from ebbflow.runs.finding import run_folders, told_apart

if TYPE_CHECKING:
    from ebbflow.report.page.content import PageContent

EVERY = 2.0
"""Seconds after which a page asks again."""
HASTE = 5.0
"""How much more often a content may be computed for somebody who loads the page."""
PATIENCE = 0.5
"""Seconds that an answer waits for a content that is being computed."""
GONE = "the run folder is gone"
MOST_TROUBLE = 600
"""Characters of a sentence on what is wrong with a run."""
_CURSOR = re.compile(r"(\d{1,9})-(\d{1,9})-(\d{1,9})")
_POLICY = re.compile(r'http-equiv="Content-Security-Policy"\s+content="([^"]+)"')


class Watching:
    """The runs at some paths, of which new ones may appear and others vanish.

    A *content* is everything that the page shows of the runs, and has a number. A cursor is the
    number of a content, and how much of what was added to it somebody has seen. ``_stale`` says
    that the runs have gone on since the content, and ``_due`` that more than curves has changed.
    """

    def __init__(
        self, paths: Sequence[Path], tell: Callable[[str], None] = lambda sentence: None
    ) -> None:
        self._paths = paths
        self._tell = tell
        self._lock = threading.Lock()
        self._looking, self._computing = Pace(0.5, 10.0, first=0.5), Pace(5.0, first=20.0)
        self._runs: dict[Path, WatchedRun] = {}
        self._missing: list[str] = []
        self._number = 0
        self._content: PageContent | None = None
        self._content_text = "null"
        self._shown: list[WatchedRun] = []
        self._added = Added(void=True)
        self._added_to_next = Added(void=True)
        self._stale = self._due = True
        self._job: Future[None] | None = None
        self._failure = ""
        self._said = False

    def page(self) -> Html:
        """Return the page as of now, or one that waits for a run."""
        with self._lock:
            self._look()
            job = self._begin(HASTE) if self._stale else self._job
        if job is not None:
            job.result()
        with self._lock:
            if self._content is None or self._failure:
                yet = f"There is no run yet at {', '.join(self._missing)}."
                return waiting_page(self._failure or yet)
            from ebbflow.report.page.rendering import render_page  # noqa: PLC0415 - slow to import

            # The page asks for what was added to its content next.
            page = render_page(self._content, {"every": EVERY, "cursor": f"{self._number}-0-0"})
        return Html(page, _policy_of(page))

    def changes(self, after: str) -> bytes:
        """Return in JSON what has changed since a cursor; since the beginning if it is none."""
        with self._lock:
            self._look()
            job = self._begin() if self._due else self._job
        if job is not None and wait([job], PATIENCE).done:
            job.result()
        with self._lock:
            return self._changes(after).encode()

    # --- looking ---------------------------------------------------------------------------------

    def _look(self) -> None:
        """Read what is new, unless that has just been done."""
        if not self._looking.ready():
            return
        with self._looking.timed():
            self._find()
            for folder, run in list(self._runs.items()):
                try:
                    found = run.look()
                except (EbbflowError, OSError):
                    del self._runs[folder]
                    continue
                self._stale |= found.changed
                self._due |= found.weighty
                self._added.add(run, found.new)
                self._added_to_next.add(run, found.new)
            if self._job is None and list(self._runs.values()) != self._shown:
                self._stale = self._due = True
        self._say_if_finished()

    def _find(self) -> None:
        """Find runs that are new, and forget those that are gone."""
        folders: dict[Path, Path] = {}
        self._missing = []
        for path in self._paths:
            try:
                folders.update((folder.resolve(), folder) for folder in run_folders([path]))
            except (EbbflowError, OSError):
                self._missing.append(str(path))
        known = self._runs
        self._runs = {
            key: known[key] if key in known else WatchedRun(folder)
            for key, folder in folders.items()
        }

    def _say_if_finished(self) -> None:
        states = [run.state.state for run in self._runs.values()]
        if self._said or not states or set(states) != {"finished"}:
            return
        self._said = True
        what = "the run is" if len(states) == 1 else f"all {len(states)} runs are"
        self._tell(f"{what} finished; the page stays until you stop this")

    # --- computing -------------------------------------------------------------------------------

    def _begin(self, haste: float = 1.0) -> Future[None] | None:
        """Begin to compute a content if its turn has come, or if there is no run to disturb.

        Returns what to wait for, if a content is being computed.
        """
        if self._job is not None or not self._runs:
            return self._job
        going = any(run.going for run in self._runs.values())
        if (going or self._failure) and not self._computing.ready(haste):
            return None
        self._job = Future[None]()
        self._added_to_next = Added()
        self._stale = self._due = False
        runs = [(run, run.lines()) for run in self._runs.values()]
        threading.Thread(target=self._work, args=(runs, self._job, going), daemon=True).start()
        return self._job

    def _work(
        self, runs: Sequence[tuple[WatchedRun, RunLines]], job: Future[None], going: bool
    ) -> None:
        """Compute a content; if that fails, the last one stays, with a sentence."""
        # Imported before it is timed, because that takes longer than to compute a small content.
        from ebbflow.report.page.content import TARGETS, page_content  # noqa: PLC0415 - slow

        content, content_text, failure = None, "", ""
        bug: Exception | None = None
        try:
            views = [run.view(lines) for run, lines in runs]
            spent = [
                run.spent(view, lines, going=going)
                for view, (run, lines) in zip(views, runs, strict=True)
            ]
            with self._computing.timed():
                names = told_apart([run.folder for run, _ in runs])
                content = page_content(views, names, TARGETS, spent)
                content_text = json.dumps(content, allow_nan=False, separators=(",", ":"))
        except (EbbflowError, OSError) as error:
            failure = str(error)
        except Exception as error:  # whoever waits for the content gets it
            failure, bug = "The page cannot be made; the terminal says why.", error
        with self._lock:
            self._job, self._failure = None, failure
            if failure:
                self._stale = self._due = True
            else:
                self._number += 1
                self._content, self._content_text = content, content_text
                self._shown = [run for run, _ in runs]
                self._added = self._added_to_next
            self._added_to_next = Added(void=True)
        if bug is None:
            job.set_result(None)
        else:
            job.set_exception(bug)

    # --- answering -------------------------------------------------------------------------------

    def _changes(self, after: str) -> str:
        found = _CURSOR.fullmatch(after)
        seen, rounds, starts = map(int, found.groups()) if found else (-1, 0, 0)
        current, added = seen == self._number, self._added
        places = {run: place for place, run in enumerate(self._shown)}
        answer = {
            "cursor": f"{self._number}-{len(added.rounds)}-{len(added.starts)}",
            "state": [self._state(run) for run in self._shown],
            "rounds": added.rows(added.rounds[rounds if current else 0 :], places),
            "starts": added.rows(added.starts[starts if current else 0 :], places),
        }
        content = "null" if current else self._content_text
        return f'{json.dumps(answer, allow_nan=False)[:-1]}, "content": {content}}}'

    def _state(self, run: WatchedRun) -> dict[str, Any]:
        from ebbflow.report.page.content import state_facts  # noqa: PLC0415 - slow to import

        gone = "" if run in self._runs.values() else GONE
        trouble = text(gone or run.trouble or self._failure, MOST_TROUBLE)
        state = run.state._replace(state="stopped") if gone else run.state
        return {**state_facts(state), "trouble": trouble}


def _policy_of(page: str) -> str:
    """Return the policy that a page states itself, and that no other page may frame it."""
    found = _POLICY.search(page)
    if found is None:
        raise ValueError("the page states no policy")
    return f"{html.unescape(found[1])}; frame-ancestors 'none'"
