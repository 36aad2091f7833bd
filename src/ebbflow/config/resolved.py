"""The configuration that is run: settings with all values filled in."""

from __future__ import annotations

from ebbflow.config import schema
from ebbflow.config.defaults import OWN_DATA
from ebbflow.config.schema import Count, StepCount

NATURAL = "natural"
"""The partition by owners: every sample says whose it is."""
AUTO = "auto"
"""The partition of a user's own data: natural if samples have owners, and Dirichlet if not."""


class ModelChoice(schema.ModelSettings):
    """Which model is trained."""

    kind: str


class PartitionChoice(schema.PartitionSettings):
    """Who holds which samples; ``overlap`` is None if labels are not divided into two groups."""

    @property
    def device_count(self) -> int:
        """The number of devices; a trace has none here, for it names its devices itself."""
        if self.devices is None and self.kind == AUTO:
            return OWN_DATA.devices
        return _required(self.devices, "partition.devices")

    @property
    def sample_count(self) -> int:
        """The number of samples that each device draws from a pool."""
        return _required(self.samples, "partition.samples")


class LocalTraining(schema.LocalSettings):
    """A device's local training."""

    batch: Count


class Rate(schema.RateSettings):
    """An algorithm's first rate, and its floor as a fraction of the first rate."""

    initial: float
    floor: float


class LearningRate(schema.LearningRateSettings):
    """The rates of every algorithm that is run."""

    algorithms: dict[str, Rate]  # type: ignore[assignment]  # a dict of the narrower kind


class Pilot(schema.PilotSettings):
    """The first P sessions and the pilot model built from them."""

    rounds: Count


class ProbeChoice(schema.ProbeSettings):
    """The V short rounds from the pilot whose displacement is the signature."""

    steps: StepCount
    batch: Count


class HistoryChoice(schema.HistorySettings):
    """Which past sessions are kept."""

    distance: str

    @property
    def size(self) -> int:
        """How many are kept, unless all are."""
        return _required(self.limit, "history.limit")


class Config(schema.Settings):
    """One experiment: every combination of methods, algorithms and seeds on one setting.

    It holds every value that the run depends on; where a value is still None, None means something.
    """

    rounds: Count
    model: ModelChoice
    partition: PartitionChoice
    local: LocalTraining
    lr: LearningRate
    pilot: Pilot
    probe: ProbeChoice
    history: HistoryChoice


def _required(value: int | None, key: str) -> int:
    if value is None:
        raise ValueError(f"{key} is asked for where it has no meaning")
    return value
