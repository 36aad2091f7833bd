"""Kept results come out again when their cells are computed today."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from chang2025.folders import RESULTS
from chang2025.results import CurveKey, read_result
from chang2025.running import capability
from chang2025.studies import all_cells
from ebbflow import experiment
from ebbflow.runs.summary import curves

CHOICE = 4
"""The first session with more than one past model to choose from; until then all starts agree."""
ROUNDING = 0.1
"""Points by which an accuracy may differ on another instruction set, for softmax regression.

Its loss is convex, so that rounding errors do not grow: after the thousand steps of four sessions
parameters differ by about 1e-5 of their size, and an image changes sides only if its two largest
outputs are that close. That happens to a few images in ten thousand; 0.1 points are ten of them.
"""


@pytest.mark.parametrize(
    ("name", "algorithms"),
    [
        # 10 devices a session; one algorithm of its five takes about 6 s. What runs beside it does
        # not change a result.
        pytest.param("mnist-two_shard-s100", ["scaffold"], id="mnist"),
        pytest.param("fmnist-two_shard-s100", None, id="fmnist", marks=pytest.mark.slow),
        pytest.param(
            *("mnist-o0.0-a0.3-fedavg-bound-s100", None),
            id="100 devices",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_kept_cell_comes_out_again(name: str, algorithms: Sequence[str] | None) -> None:
    """Up to its first session with a choice, for what comes later changes nothing before."""
    folder = "fashion-mnist" if name.startswith("fmnist") else "mnist"
    if not Path(os.environ.get("EBBFLOW_DATA", ""), folder).is_dir():
        pytest.skip(f"EBBFLOW_DATA names no folder with {folder}/")
    cell = all_cells(["full"], [100])[name]
    chosen = list(algorithms or cell.config.algorithm)
    kept = read_result(RESULTS, name)
    records = experiment.run(cell.with_settings({"sessions": CHOICE, "algorithm": chosen}).config)
    computed = {
        CurveKey(key.algorithm, key.method, key.session): curve
        for key, curve in curves(records.rounds).items()
    }
    assert len(computed) == len(chosen) * len(cell.config.methods) * CHOICE
    same_instructions = capability() == kept.capability
    for key, curve in computed.items():
        if same_instructions:
            assert [f"{value:.3f}" for value in curve] == [f"{v:.3f}" for v in kept.curves[key]]
        else:
            assert curve == pytest.approx(kept.curves[key], abs=ROUNDING), key
    # There is a choice, and the starts differ by it.
    for algorithm in chosen:
        at_choice = [computed[CurveKey(algorithm, m, CHOICE)] for m in cell.config.methods]
        assert all(a != b for a, b in pairwise(at_choice))
        (event,) = (
            event
            for event in records.events
            if event["event"] == "start"
            and (event["algorithm"], event["method"], event["session"])
            == (algorithm, "warm_start", CHOICE)
        )
        weights = kept.start(CurveKey(algorithm, "warm_start", CHOICE))["weights"]
        assert len(weights) > 1
        # Kept with four digits; what rounding does to a distance is far below that.
        assert event["weights"] == pytest.approx(weights, rel=1e-3, abs=1e-6)
