"""What can be said, what is refused, and what is filled in."""

from __future__ import annotations

import json
import math
import tomllib
from typing import Any

import pytest
import tomli_w
from pydantic import ValidationError

from ebbflow.config.merge import Layers
from ebbflow.config.resolve import resolve
from ebbflow.config.resolved import Config
from ebbflow.config.schema import Settings
from ebbflow.core.errors import EbbflowError
from tests.config.published import RATES, ROUNDS
from tests.configs import with_settings

ALGORITHMS = ("fedavg", "fedprox", "fedacg", "moon", "scaffold")

# --- what is filled in ---------------------------------------------------------------------------


@pytest.mark.parametrize("dataset", RATES)
def test_rates_are_those_the_authors_published(dataset: str) -> None:
    config = resolve(Settings(dataset=dataset, algorithm=list(ALGORITHMS)))
    found = [config.lr.algorithms[name] for name in ALGORITHMS]
    averaging, moon, scaffold = RATES[dataset]
    assert [(r.initial, r.floor) for r in found] == [averaging] * 3 + [moon, scaffold]
    assert config.lr.power == 0.9


@pytest.mark.parametrize("dataset", ROUNDS)
def test_the_setting_is_the_papers(dataset: str) -> None:
    config = resolve(Settings(dataset=dataset))
    assert config.rounds == config.pilot.rounds == ROUNDS[dataset]
    assert config.partition.devices == 100
    assert config.partition.overlap == 0.0
    assert config.local.batch == config.probe.batch == 128
    assert config.local.steps == config.probe.steps == 5
    assert config.parameters["warm_start"]["scale"] == (800.0 if dataset == "agnews" else 10.0)
    assert (config.sessions, config.pilot.sessions, config.probe.rounds) == (7, 1, 1)
    assert config.seeds == [100, 200, 300]


@pytest.mark.parametrize(
    ("alias", "name"), [("ag_news", "agnews"), ("fashion-mnist", "fmnist"), ("mnist", "mnist")]
)
def test_an_alias_is_resolved(alias: str, name: str) -> None:
    assert resolve(Settings(dataset=alias)) == resolve(Settings(dataset=name))


def test_own_data_have_defaults_too() -> None:
    config = resolve(Settings(dataset="my/data.npz"))
    assert config.rounds is not None
    # Whether samples have owners is not known before the data are read.
    assert (config.partition.kind, config.evaluation) == ("auto", "auto")
    assert config.partition.device_count == 20
    # Nobody asked for sessions with different labels.
    assert config.partition.overlap is None
    assert config.local.batch is not None
    assert config.parameters["warm_start"]["scale"] is not None
    assert config.lr.algorithms["fedavg"].initial is not None


def test_what_was_said_stays() -> None:
    settings = ("rounds=9", "partition.devices=3", "local.batch=4", "parameters.warm_start.scale=0")
    config = with_settings(*settings, "pilot.rounds=2", "probe.steps=1", "probe.batch=8")
    assert (config.rounds, config.pilot.rounds) == (9, 2)
    assert config.partition.devices == 3
    assert (config.local.batch, config.probe.batch) == (4, 8)
    assert (config.local.steps, config.probe.steps) == (5, 1)
    assert config.parameters["warm_start"]["scale"] == 0


def test_an_algorithms_own_rate_goes_before_the_common_one() -> None:
    config = with_settings(
        "dataset=mnist",
        'algorithm=["fedavg", "scaffold"]',
        "lr.initial=0.5",
        "lr.algorithms.scaffold.initial=0.25",
        "lr.algorithms.fedavg.floor=0.125",
    )
    fedavg, scaffold = config.lr.algorithms["fedavg"], config.lr.algorithms["scaffold"]
    assert (fedavg.initial, fedavg.floor) == (0.5, 0.125)
    assert (scaffold.initial, scaffold.floor) == (0.25, 0.9)


def test_the_label_groups_overlap_only_with_groups() -> None:
    assert with_settings("schedule.kind=random").partition.overlap is None
    assert with_settings("schedule.kind=random", "partition.overlap=0.2").partition.overlap == 0.2
    trace = with_settings("schedule.kind=trace", "schedule.file=a.csv")
    assert (trace.partition.overlap, trace.partition.devices) == (None, None)


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rounds", 0),
        ("rounds", 2.0),
        ("rounds", "ten"),
        ("rounds", True),
        ("sessions", -1),
        ("seeds", []),
        ("seeds", -1),
        ("seeds", 2**63),
        ("seeds", [1, 2.5]),
        ("methods", []),
        ("methods", 3),
        ("window", 0),
        ("window", []),
        ("dataset", 3),
        ("device", 5),
        ("data.limit_train", 0),
        ("model.kind", 1),
        ("partition.overlap", 1.1),
        ("partition.overlap", -0.1),
        ("partition.overlap", math.nan),
        ("partition.alpha", 0),
        ("partition.alpha", math.inf),
        ("partition.devices", 0),
        ("schedule.kind", "tides"),
        ("schedule.cut", "never"),
        ("schedule.interval", 0.0),
        ("schedule.change", -0.5),
        ("schedule.newcomers", -0.5),
        ("schedule.newcomers", 1.5),
        ("schedule.return_probability", 1.5),
        ("participation.share", 0),
        ("participation.share", 0.0),
        ("participation.share", 1.5),
        ("participation.share", math.nan),
        ("participation.share", True),
        ("participation.share", "half"),
        ("participation.weighting", "fair"),
        ("local.steps", 0),
        ("local.steps", [1]),
        ("local.steps", [1, 2, 3]),
        ("local.steps", [0, 2]),
        ("local.momentum", 1.0),
        ("local.rule", "both"),
        ("local.radius", 0),
        ("lr.initial", 0),
        ("lr.initial", math.inf),
        ("lr.floor", 1.5),
        ("lr.power", 0),
        ("lr.algorithms", 3),
        ("lr.algorithms.fedavg.initial", -1),
        ("pilot.sessions", 0),
        ("pilot.combine", "median"),
        ("pilot.decay", 1.0),
        ("pilot.carry_over", "yes"),
        ("probe.rounds", 0),
        ("probe.share", 0),
        ("probe.lr", "third"),
        ("probe.lr", 0.0),
        ("history.keep", "some"),
        ("history.limit", 0),
        ("engine.kind", "steam"),
        ("engine.workers", 0),
        ("checkpoint.seconds", 0),
    ],
)
def test_a_value_of_the_wrong_type_or_out_of_range_is_refused(key: str, value: Any) -> None:
    layers = Layers()
    layers.add_key(key, value, "argument settings")
    with pytest.raises(EbbflowError) as caught:
        layers.config()
    message = str(caught.value)
    assert message.startswith(key)
    assert "(argument settings) is refused: " in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["schedule.kind=trace"], r'schedule\.kind = "trace" needs schedule\.file'),
        (["schedule.file=a.csv"], r'schedule\.file = "a\.csv" is only read with'),
        (
            ["schedule.kind=trace", "schedule.file=a.csv", "partition.devices=5"],
            r"partition\.devices = 5 has no use",
        ),
        (["sessions=2", "pilot.sessions=3"], r"pilot\.sessions = 3 is more than sessions = 2"),
        (["history.keep=last"], r'history\.keep = "last" needs history\.limit'),
        (["history.keep=diverse"], r'history\.keep = "diverse" needs history\.limit'),
        (["seeds=[1, 2, 1]"], r"seeds = \[1, 2, 1\] names 1 more than once"),
        (["window=[5, 5]"], r"window = \[5, 5\] names 5 more than once"),
        (['methods=["average", "average"]'], r"methods = .* names average more than once"),
        (['algorithm=["fedavg", "fedavg"]'], r"algorithm = .* names fedavg more than once"),
        (["local.steps=[3, 1]"], r"local\.steps = \[3, 1\] must be a range"),
        (["probe.steps=[3, 1]"], r"probe\.steps = \[3, 1\] must be a range"),
    ],
)
def test_keys_that_contradict_each_other_are_refused(settings: list[str], message: str) -> None:
    with pytest.raises(EbbflowError, match=message) as caught:
        with_settings(*settings)
    assert "\n" not in str(caught.value)


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().rounds = 3  # type: ignore[misc]  # what mypy forbids, pydantic must, too


# --- there and back ------------------------------------------------------------------------------

SETTINGS = [
    (),
    ("dataset=mnist", 'algorithm=["fedavg", "scaffold"]', "lr.algorithms.scaffold.initial=0.5"),
    ("parameters.warm_start.scale=inf",),
    ("parameters.warm_start.scale=0",),
    ("participation.share=1", "probe.share=1.0"),
    ("participation.share=1.0", "probe.share=2"),
    ("local.steps=[1, 4]", "local.radius=2.5", "probe.lr=0.125"),
    ("schedule.kind=trace", "schedule.file=a.csv"),
    ("schedule.kind=random", "schedule.arrivals=3.5", "partition.overlap=0.2"),
    ("history.keep=diverse", "history.limit=3", "window=[5, 10]", "lr.file=rates.json"),
    ("pilot.sessions=3", "pilot.combine=ema", "pilot.decay=0.25", "pilot.carry_over=false"),
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_configuration_survives_json(settings: tuple[str, ...]) -> None:
    config = with_settings(*settings)
    text = json.dumps(config.model_dump(mode="json"), allow_nan=False)
    again = Config.model_validate(json.loads(text))
    assert again == config
    assert type(again.participation.share) is type(config.participation.share)


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_configuration_survives_toml_and_resolving_again(settings: tuple[str, ...]) -> None:
    config = with_settings(*settings)
    assert resolve(config) == config
    values = tomllib.loads(tomli_w.dumps(config.model_dump(exclude_none=True)))
    again = resolve(Config.model_validate(values))
    assert again == config
    assert type(again.participation.share) is type(config.participation.share)
