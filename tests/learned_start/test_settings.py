"""Cells of the families: names, seeds, and what strangers have in common with the past."""

from __future__ import annotations

import pytest

from ebbflow import experiment
from ebbflow.core.errors import EbbflowError
from ebbflow.simulation.building import build_world
from learned_start.rules import MAIN_RULES, MALICE_RULES, SENSITIVITY_RULES, SIMPLE
from learned_start.settings import (
    DESIGN_SEEDS,
    FAMILIES,
    STRANGERS,
    TEST_SEEDS,
    cells_of,
)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_cell_has_one_seed_one_algorithm_and_a_name_that_says_them(family: str) -> None:
    for seeds in (DESIGN_SEEDS, TEST_SEEDS):
        cells = cells_of(family, seeds)
        assert cells
        for cell in cells:
            config = cell.setting.config
            (algorithm,) = config.algorithm
            assert config.seeds == [cell.setting.seed] and cell.setting.seed in seeds
            assert cell.name.endswith(f"-{algorithm}-s{cell.setting.seed}")
            assert {rule.name for rule in cell.rules} >= {*SIMPLE, cell.driver}
            assert config.methods == ["warm_start"]


def test_seeds_change_nothing_but_the_seed() -> None:
    for family in FAMILIES:
        for one, other in zip(
            *(cells_of(family, s) for s in (DESIGN_SEEDS, TEST_SEEDS)), strict=True
        ):
            assert one.setting.family == other.setting.family
            assert one.setting.digest != other.setting.digest
            seedless = [{**cell.setting.values, "seeds": None} for cell in (one, other)]
            assert seedless[0] == seedless[1]
            assert one.rules == other.rules


def test_families_have_the_rules_that_they_are_about() -> None:
    special = {"sensitivity": SENSITIVITY_RULES, "malice": MALICE_RULES}
    for family in FAMILIES:
        for cell in cells_of(family, DESIGN_SEEDS):
            assert cell.rules == special.get(family, MAIN_RULES)


def test_an_unknown_family_is_named_with_the_known_ones() -> None:
    with pytest.raises(EbbflowError, match="there is no family 'softmx': did you mean"):
        cells_of("softmx", DESIGN_SEEDS)


@pytest.mark.parametrize("kind", ["o0.0", "two_shard"])
def test_strangers_were_never_there_before(kind: str) -> None:
    """On the packaged digits, split among devices as in the cell."""
    (cell,) = (c for c in cells_of("strangers", [100]) if f"-mnist-{kind}-" in c.name)
    assert cell.order == STRANGERS and cell.since == len(STRANGERS)
    config = cell.setting.with_settings({"dataset": "digits"}).config
    world = build_world(config, experiment.prepared(config, None), 100)
    *before, last = (world.sessions[number - 1] for number in STRANGERS)
    assert not {device for session in before for device in session.devices} & {*last.devices}
    if kind == "o0.0":
        assert not {label for session in before for label in session.labels} & {*last.labels}
