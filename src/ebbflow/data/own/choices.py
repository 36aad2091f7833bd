"""What a user may say about data of their own: the keys of ``[data]``, without the limits."""

from __future__ import annotations

import json
from typing import Literal, NamedTuple

from ebbflow.core.errors import EbbflowError
from ebbflow.core.judging import TaskName

Inputs = Literal["auto", "numbers", "tokens", "words", "characters"]
"""What inputs are: numbers, token numbers, or texts that are cut into words or characters."""


class Choices(NamedTuple):
    """How a user's own data are read; the fields are called like the keys of ``[data]``.

    Attributes:
        label: The column with the labels.
        device: The column that says whose each sample is.
        test: A second file with the test samples.
        test_split: The share of the samples that become test samples.
        ignore: Columns that are left out.
        inputs: What the inputs are, if that is not to be guessed.
        size: The height and width that pictures get.
        vocabulary: The most tokens that texts are made of, padding and unknown ones included.
        owners_needed: Whether the run divides samples by their owners.
        task: What is to be predicted.
    """

    label: str | None = None
    device: str | None = None
    test: str | None = None
    test_split: float | None = None
    ignore: tuple[str, ...] = ()
    inputs: Inputs = "auto"
    size: tuple[int, int] | None = None
    vocabulary: int = 30_000
    owners_needed: bool = False
    task: TaskName = "classes"

    def refuse_unused(self, used: set[str], what: str) -> None:
        """Raise an error if something was chosen that has no meaning for this kind of data."""
        for name, value in self._asdict().items():
            usual = self._field_defaults[name]
            if name not in used | {"owners_needed", "task"} and value != usual:
                raise EbbflowError(
                    f"data.{name} = {json.dumps(value)} has no use with {what}: leave it out"
                )

    def test_share(self, place: str) -> float:
        """Return the share of test samples, which nothing else but this setting tells."""
        if self.test_split is None:
            raise EbbflowError(
                f"{place} does not say which samples are for testing: set data.test_split "
                "(--test-split) to a share such as 0.2"
            )
        return self.test_split
