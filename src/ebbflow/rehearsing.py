"""What the simulator computes for a federation that has really run: the same table, twice.

Sessions are taken from the federation's own records, with the members that it really had. Devices
train one after another, as the nodes did, so that the two agree to the last bit.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from ebbflow.api import compare
from ebbflow.core.types import Dataset
from ebbflow.runs.records import read_lines
from ebbflow.simulation.callbacks import Callback, RoundFinished, SessionFinished, SessionStarted

if TYPE_CHECKING:
    from ebbflow.flower.strategy import Local


class RoundScore(NamedTuple):
    """The accuracy in percent after a round; round 0 is the model that a session began with."""

    session: int
    round: int
    accuracy: float
    members: tuple[int, ...]


class Rehearsal(NamedTuple):
    """The scores of all rounds, and the final model."""

    scores: list[RoundScore]
    theta: Tensor

    @property
    def digest(self) -> str:
        """The SHA-256 digest of the final model."""
        return model_digest(self.theta)


def model_digest(theta: Tensor) -> str:
    """Return the SHA-256 digest of a model's bytes."""
    return hashlib.sha256(theta.detach().cpu().contiguous().numpy().tobytes()).hexdigest()


def federation_scores(history: Path) -> list[RoundScore]:
    """Return what a federation has recorded in its history folder."""
    members: dict[int, tuple[int, ...]] = {}
    for event in read_lines(history / "events.jsonl"):
        if event["event"] == "session":
            members[1 + len(members)] = tuple(event["members"])
    scores = []
    for line in read_lines(history / "rounds.jsonl"):
        if line["server"]:
            session, accuracy = line["session"], line["server"]["accuracy"]
            scores.append(RoundScore(session, line["round"], accuracy, members[session]))
    return scores


def training_settings(local: Local) -> dict[str, Any]:
    """Return how a federation's devices train, as settings of a simulation."""
    return {
        "lr.initial": local.lr,
        "lr.floor": local.floor,
        "lr.power": local.power,
        "local.steps": local.steps,
        "local.batch": local.batch,
        "local.rule": local.rule,
        "local.momentum": local.momentum,
    }


def rehearse(
    dataset: Dataset,
    members: Sequence[Sequence[int]],
    *,
    algorithm: str,
    start: str,
    rounds: int,
    seed: int,
    settings: dict[str, Any],
) -> Rehearsal:
    """Simulate sessions with these members, device by device."""
    scores: list[RoundScore] = []
    finals: list[Tensor] = []

    class Follower(Callback):
        def session_started(self, event: SessionStarted) -> None:
            (said,) = (line for line in event.recorded if line["event"] == "start")
            self._note(event.session, 0, said["accuracy"])

        def round_finished(self, event: RoundFinished) -> None:
            (result,) = event.results
            self._note(event.session, event.round, result.accuracy)

        def session_finished(self, event: SessionFinished) -> None:
            (track,) = event.tracks
            finals.append(track.model.theta)

        def _note(self, session: Any, t: int, accuracy: float) -> None:
            scores.append(RoundScore(session.index, t, accuracy, tuple(session.devices)))

    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.csv"
        trace.write_text(_trace(dataset, members), encoding="utf-8")
        compare(
            dataset,
            algorithm=algorithm,
            methods=[start],
            sessions=len(members),
            rounds=rounds,
            seeds=[seed],
            callbacks=[Follower()],
            settings={
                "engine.kind": "sequential",
                "schedule.kind": "trace",
                "schedule.file": str(trace),
                "schedule.interval": 1,
                "partition.kind": "natural",
                "evaluation": "devices",
                "pilot.rounds": rounds,
                **settings,
            },
        )
    return Rehearsal(scores, finals[-1])


def _trace(dataset: Dataset, members: Sequence[Sequence[int]]) -> str:
    """Return who joins and leaves when; session s lasts from time s - 1 to s."""
    lines, here = ["time,device,event"], set[int]()
    for time, wanted in enumerate(map(set, members)):
        lines += [f"{time},{dataset.devices[d]},leave" for d in sorted(here - wanted)]
        lines += [f"{time},{dataset.devices[d]},join" for d in sorted(wanted - here)]
        here = wanted
    # A trace ends with its last event: somebody has to leave at the very end.
    lines.append(f"{len(members)},{dataset.devices[min(here)]},leave")
    return "\n".join([*lines, ""])
