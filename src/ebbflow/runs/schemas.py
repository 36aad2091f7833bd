"""What the files of a run folder may hold, checked before anything is made of it."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from ebbflow.core.errors import EbbflowError
from ebbflow.core.names import PATTERN

Name = Annotated[str, StringConstraints(pattern=f"^{PATTERN}$")]
Text = Annotated[str, StringConstraints(max_length=10_000)]
Whole = Annotated[int, Field(ge=0, lt=2**63)]
Positive = Annotated[int, Field(ge=1, lt=2**63)]
Percent = Annotated[float, Field(ge=0, le=100)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Digest = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
Number = Annotated[str, StringConstraints(pattern="^[0-9]{1,18}$")]
"""A whole number as a key of JSON."""
Weights = dict[Number, float]
Counts = dict[Name, Whole]

_STRICT = ConfigDict(extra="forbid", strict=True)


@with_config(_STRICT)
class RoundLine(TypedDict):
    """A line of ``metrics.jsonl``; see `ebbflow.runs.records.Round`."""

    algorithm: Name
    method: Name
    seed: Whole
    session: Positive
    round: Positive
    accuracy: Finite
    loss: float
    lr: float
    devices: Whole
    participants: Whole
    measures: NotRequired[dict[Name, Finite]]


@with_config(_STRICT)
class StartEvent(TypedDict):
    """Where a method starts a session."""

    event: Literal["start"]
    algorithm: Name
    method: Name
    seed: Whole
    session: Positive
    devices: list[Whole]
    samples: NotRequired[list[Whole]]
    smallest_batch: NotRequired[Whole]
    labels: list[int]
    rounds: NotRequired[Positive]
    accuracy: Finite
    loss: float
    weights: Weights
    distances: Weights
    mixture: NotRequired[dict[Text, float]]
    asked: NotRequired[list[Whole]]
    probe_rounds: Whole
    path: NotRequired[Text]
    path_reason: NotRequired[Text]


@with_config(_STRICT)
class CostsEvent(TypedDict):
    """What a session has cost a method."""

    event: Literal["costs"]
    algorithm: Name
    method: Name
    seed: Whole
    session: Positive
    stages: dict[Name, Counts]
    stored: Counts


@with_config(_STRICT)
class LeftOutEvent(TypedDict):
    """Participants that a round went without, because updates were lost or refused."""

    event: Literal["left_out"]
    algorithm: Name
    method: Name
    seed: Whole
    session: Positive
    round: Positive
    devices: list[Whole]
    reasons: list[Text]
    abandoned: bool


@with_config(_STRICT)
class EndedEvent(TypedDict):
    """A method that could not go on; round 0 is the beginning of the session."""

    event: Literal["ended"]
    algorithm: Name
    method: Name
    seed: Whole
    session: Positive
    round: Whole
    text: Text


@with_config(_STRICT)
class FinishedEvent(TypedDict):
    """How long a session took."""

    event: Literal["finished"]
    seed: Whole
    session: Positive
    seconds: float


@with_config(_STRICT)
class WarningEvent(TypedDict):
    """A sentence for the user."""

    event: Literal["warning"]
    algorithm: NotRequired[Name]
    method: NotRequired[Name]
    seed: NotRequired[Whole]
    session: NotRequired[Positive]
    text: Text


@with_config(_STRICT)
class NoteEvent(TypedDict):
    """A sentence on what was done to the user's data."""

    event: Literal["note"]
    seed: Whole
    session: Positive
    text: Text


@with_config(_STRICT)
class NamesEvent(TypedDict):
    """What the devices are called, by number."""

    event: Literal["names"]
    seed: Whole
    names: list[Text]


@with_config(_STRICT)
class DeviceScoresFacts(TypedDict):
    """Accuracies of the devices present; see `ebbflow.simulation.scores.DeviceScores`."""

    mean: Finite
    worst: Finite
    spread: Finite
    devices: Positive


@with_config(_STRICT)
class ReachedEvent(TypedDict):
    """What the final model of a session achieves on all test samples, and device by device."""

    event: Literal["tested"]
    algorithm: Name
    method: Name
    seed: Whole
    session: Positive
    all: Finite
    devices: NotRequired[DeviceScoresFacts]
    each: NotRequired[dict[Number, Finite]]


Event = Annotated[
    StartEvent
    | CostsEvent
    | LeftOutEvent
    | EndedEvent
    | FinishedEvent
    | WarningEvent
    | NoteEvent
    | NamesEvent
    | ReachedEvent,
    Field(discriminator="event"),
]


@with_config(_STRICT)
class KeptFacts(TypedDict):
    """What a manifest says of a file in a history."""

    session: NotRequired[Positive]
    devices: NotRequired[Whole]
    drew_on: NotRequired[Weights]
    members: NotRequired[list[Whole]]
    sha256: Digest
    bytes: Whole


@with_config(_STRICT)
class TrackFacts(TypedDict):
    """What a checkpoint says of a method, besides its tensors."""

    algorithm: Name
    method: Name
    server: list[Text]
    clients: dict[Number, list[Text]]
    pilot: bool
    pilots: Whole
    teacher: bool
    teacher_labels: NotRequired[list[int]]
    kept: NotRequired[bool]
    entries: list[Positive]
    weights: Weights
    distances: Weights
    costs: NotRequired[dict[Name, Counts]]
    abandoned: NotRequired[Whole]


@with_config(_STRICT)
class LineState(TypedDict):
    """How long a line file was at a checkpoint, and the digest of so many bytes."""

    bytes: Whole
    sha256: Digest


@with_config(_STRICT)
class CheckpointFacts(TypedDict):
    """The content of a checkpoint's JSON file."""

    config: dict[str, Any]
    seed: Whole
    session: Positive
    round: Whole
    lines: dict[Literal["metrics.jsonl", "events.jsonl"], LineState]
    tensors: Annotated[str, StringConstraints(pattern=r"^checkpoint-[0-9-]{1,80}\.safetensors$")]
    sha256: Digest
    tracks: list[TrackFacts]


@cache
def _adapter(kind: Any) -> TypeAdapter[dict[str, Any]]:
    return TypeAdapter(kind)


def checked(kind: Any, content: Any, where: str, remedy: str) -> dict[str, Any]:
    """Return content of this kind, or raise an error that says what is wrong with it, and where."""
    try:
        return _adapter(kind).validate_python(content, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the content"
        reason = first["msg"][0].lower() + first["msg"][1:]
        raise EbbflowError(f"{where}: {place} is refused, {reason}: {remedy}") from None
