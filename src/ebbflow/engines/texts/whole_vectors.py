"""Lets the reference engine continue from the states that `SampleSpace` packs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ebbflow.core.evaluate import Score
from ebbflow.core.local import Cohort, Engine, Lane, Route, Trained
from ebbflow.core.types import BagOfWords, Examples, ModelState, State
from ebbflow.engines.texts.packed_states import mean_whole_state, with_whole_states


class WholeVectors:
    """An engine of whole vectors on a text model: lays packed states out before it trains."""

    def __init__(self, engine: Engine, bag_of_words: BagOfWords, examples: Examples) -> None:
        self.engine = engine
        self._bag_of_words = bag_of_words
        self._examples = examples

    def __call__(self, lanes: Sequence[Lane], cohort: Cohort) -> list[Trained]:
        """Return, for every lane, the sum of the uploads and the participants' new states."""
        return self.engine(self._whole(lanes, cohort), cohort)

    def evaluate(self, models: Sequence[ModelState], test: Examples) -> Callable[[], list[Score]]:
        """Evaluate the models."""
        return self.engine.evaluate(models, test)

    def mean_state(self, states: Sequence[State], samples: Sequence[int]) -> State:
        """Return the mean of device states as whole vectors, weighted by D_k."""
        return mean_whole_state(states, samples, self._bag_of_words, self._examples)

    def explain(self, lanes: Sequence[Lane], cohort: Cohort) -> None:
        """Raise the error that names the device and step at fault."""
        self.engine.explain(self._whole(lanes, cohort), cohort)

    def route(self, lane: Lane, cohort: Cohort) -> Route:
        """Return how the lane is trained."""
        return self.engine.route(lane, cohort)

    def close(self) -> None:
        """Release what the engine holds."""
        self.engine.close()

    def _whole(self, lanes: Sequence[Lane], cohort: Cohort) -> list[Lane]:
        return with_whole_states(lanes, cohort, self._bag_of_words, self._examples)
