"""The paper's main setting on real MNIST: needs the data, and a minute or two."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import ebbflow

DATA = os.environ.get("EBBFLOW_DATA")
MISSING = not (DATA and (Path(DATA) / "mnist").is_dir())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(MISSING, reason="EBBFLOW_DATA names no folder with mnist/")
def test_the_warm_start_is_first_and_the_previous_model_last() -> None:
    found = ebbflow.compare(
        "mnist", preset="authors-code", algorithm="fedavg", overlap=0.0, alpha=0.3, seeds=[100]
    )
    for transition in (2, 4):
        accuracy = {
            row["method"]: row["accuracy"] for row in found.rows if row["transition"] == transition
        }
        assert accuracy["warm_start"] > accuracy["average"] > accuracy["previous"]
        assert accuracy["warm_start"] >= 91
