"""How a configuration is put together, and what an error says about where to look."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ebbflow.config.merge import Layers, keys
from ebbflow.config.paper_rows import rows
from ebbflow.config.presets import preset, preset_names, preset_text
from ebbflow.config.schema import SHORTCUTS, FaultSettings, Settings
from ebbflow.core.errors import EbbflowError


def error_of(layers: Layers) -> str:
    with pytest.raises(EbbflowError) as caught:
        layers.config()
    message = str(caught.value)
    assert "\n" not in message
    return message


def written(folder: Path, text: str) -> Path:
    path = folder / "setting.toml"
    path.write_text(text, encoding="utf-8")
    return path


def leaves(name: str) -> set[str]:
    layers = Layers()
    layers.add_preset(name)
    return set(layers.places)


# --- order ---------------------------------------------------------------------------------------


def test_the_later_layer_wins(tmp_path: Path) -> None:
    path = written(tmp_path, 'rounds = 1\nsessions = 9\n[pilot]\ncarry_over = true\ncombine="ema"')
    layers = Layers()
    layers.add_file(path)
    assert layers.config().rounds == 1
    layers.add_preset("authors-code")
    assert not layers.config().pilot.carry_over
    layers.add_key("rounds", 2, "--rounds")
    assert layers.config().rounds == 2
    layers.add_setting("rounds=3")
    layers.add_setting("pilot.carry_over=true")
    config = layers.config()
    assert (config.rounds, config.sessions) == (3, 9)
    assert config.pilot.carry_over
    assert config.pilot.combine == "ema"  # what no later layer says stays


@pytest.mark.parametrize("first", ["authors-code", "paper-text"])
def test_of_two_presets_the_later_wins(first: str) -> None:
    second = {"authors-code": "paper-text", "paper-text": "authors-code"}[first]
    both, alone = Layers(), Layers()
    both.add_preset(first)
    both.add_preset(second)
    alone.add_preset(second)
    assert both.config() == alone.config()


def test_a_files_own_keys_lie_above_the_presets_it_names(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        'preset = ["demo", "authors-code", "paper-text"]\nsessions = 4\n[probe]\nlr = 0.5',
    )
    layers = Layers()
    layers.add_file(path)
    config = layers.config()
    assert config.sessions == 4
    assert config.probe.lr == 0.5
    assert config.parameters["warm_start"]["distance"] == "raw"


def test_a_file_may_name_a_single_preset(tmp_path: Path) -> None:
    layers = Layers()
    layers.add_file(written(tmp_path, 'preset = "paper-text"'))
    assert layers.config().local.rule == "each_step"


def test_a_layer_does_not_share_its_lists() -> None:
    seeds = [1, 2]
    layers = Layers()
    layers.add({"seeds": seeds}, "argument seeds")
    seeds.append(3)
    assert layers.config().seeds == [1, 2]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("dataset=mnist", "mnist"),
        ('dataset="mnist"', "mnist"),
        (" dataset = mnist ", "mnist"),
        ("dataset=a=b.npz", "a=b.npz"),
    ],
)
def test_a_setting_needs_no_quotes(text: str, value: str) -> None:
    layers = Layers()
    layers.add_setting(text)
    assert layers.config().dataset == value


def test_one_value_may_stand_for_a_list() -> None:
    layers = Layers()
    for setting in ("seeds=7", "methods=average", "window=3", "algorithm=fedavg"):
        layers.add_setting(setting)
    config = layers.config()
    assert (config.seeds, config.methods) == ([7], ["average"])
    assert (config.window, config.algorithm) == ([3], ["fedavg"])


# --- presets -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["authors-code", "paper-text"])
def test_the_readings_of_the_paper_differ_in_five_keys_and_never_in_rates(name: str) -> None:
    assert leaves(name) == {
        "local.rule",
        "parameters.continuous.first",
        "parameters.warm_start.distance",
        "pilot.carry_over",
        "probe.lr",
    }


def test_the_two_readings_differ_in_every_key() -> None:
    authors, text = preset("authors-code"), preset("paper-text")
    for section, values in authors.items():
        for key, value in values.items():
            assert text[section][key] != value


@pytest.mark.parametrize("name", [name for name in preset_names() if name not in rows()])
def test_every_preset_is_a_valid_configuration(name: str) -> None:
    layers = Layers()
    layers.add_preset(name)
    layers.config()
    assert {key for key in leaves(name) if not key.startswith("parameters.")} <= set(keys())
    assert not any(key.startswith("lr.") for key in leaves(name))
    assert preset_text(name).startswith("# ")


def test_an_unknown_preset_is_answered_with_the_nearest() -> None:
    with pytest.raises(EbbflowError, match=r"no preset 'author-code': did you mean authors-code\?"):
        Layers().add_preset("author-code")


# --- keys ----------------------------------------------------------------------------------------


def test_every_shortcut_stands_for_a_key() -> None:
    assert set(SHORTCUTS.values()) <= set(keys())


def test_keys_name_every_leaf_of_the_configuration() -> None:
    def walk(values: dict[str, object], prefix: str = "") -> set[str]:
        found = set()
        for name, value in values.items():
            whole = f"{prefix}{name}"
            if isinstance(value, dict) and whole not in ("lr.algorithms", "parameters"):
                found |= walk(value, f"{whole}.")
            else:
                found.add(whole)
        return found

    # Tables of faults that are left out are null, and have keys all the same.
    every: dict[str, object] = {name: {} for name in FaultSettings.model_fields}
    settings = Settings.model_validate({"faults": every})
    assert set(keys()) == walk(settings.model_dump())


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ("roundz=3", "rounds"),
        ("partition.overlp=0.1", "partition.overlap"),
        ("overlap=0.1", "partition.overlap"),
        ("pilot.session=1", "pilot.sessions"),
        ("hitsory.keep='all'", "history.keep"),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest(setting: str, hint: str) -> None:
    layers = Layers()
    layers.add_setting(setting)
    message = error_of(layers)
    assert message.startswith("unknown key ")
    assert f"(--set {setting})" in message
    assert message.endswith(f"did you mean {hint}?")


def test_a_key_like_no_other_is_answered_with_the_list() -> None:
    layers = Layers()
    layers.add_setting("zzzzqqqq=1")
    assert error_of(layers).endswith("see docs/configuration.md for all keys")


# --- places --------------------------------------------------------------------------------------


def test_an_error_names_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "[partition]\nalpha = -1\n")
    layers = Layers()
    layers.add_preset("demo")
    layers.add_file(path)
    assert error_of(layers).startswith(f"partition.alpha = -1 ({path}) is refused: ")


def test_an_error_names_the_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ebbflow.config.merge.preset", lambda name, place: {"partition": {"alpha": -1}}
    )
    layers = Layers()
    layers.add_preset("broken")
    assert error_of(layers).startswith("partition.alpha = -1 (preset broken) is refused: ")


def test_an_error_names_the_setting_and_the_shortcut() -> None:
    layers = Layers()
    layers.add_setting("partition.alpha=0")
    assert error_of(layers).startswith("partition.alpha = 0 (--set partition.alpha=0) is refused")
    layers.add_key("partition.alpha", -2, "--alpha")
    assert error_of(layers).startswith("partition.alpha = -2 (--alpha) is refused")


def test_a_value_where_a_table_belongs_is_blamed_on_who_wrote_it() -> None:
    layers = Layers()
    layers.add_preset("demo")
    layers.add_setting("partition=dirichlet")
    assert error_of(layers).startswith('partition = "dirichlet" (--set partition=dirichlet)')


def test_a_table_where_a_value_belongs_is_blamed_on_who_wrote_it() -> None:
    layers = Layers()
    layers.add_setting("rounds=5")
    layers.add_setting("rounds.first=3")
    assert "(--set rounds.first=3)" in error_of(layers)


def test_a_value_that_json_does_not_know_is_shown() -> None:
    layers = Layers()
    layers.add_setting("rounds=2020-01-01")
    assert error_of(layers).startswith("rounds = ")


@pytest.mark.parametrize("text", ["rounds", "=3", "a..b=3", ".rounds=3", ""])
def test_a_setting_without_key_or_value_is_refused(text: str) -> None:
    with pytest.raises(EbbflowError, match="is not of the form key=value"):
        Layers().add_setting(text)


def test_a_file_that_is_missing_or_no_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(EbbflowError, match=r"no configuration file .*none\.toml: check the path"):
        Layers().add_file(tmp_path / "none.toml")
    with pytest.raises(EbbflowError, match=r"setting\.toml is not valid TOML"):
        Layers().add_file(written(tmp_path, "rounds = "))
    with pytest.raises(EbbflowError, match=r"cannot be read"):
        Layers().add_file(tmp_path)


# --- keys that have got other names --------------------------------------------------------------


def test_a_key_of_the_first_edition_still_works_and_is_told() -> None:
    layers = Layers()
    layers.add_setting("warm_start.scale=20")
    layers.add({"continuous": {"kl": 0.5, "first": "uniform"}}, "old.toml")
    layers.add_key("methods", ["warm_start", "continuous"], "--methods")
    config = layers.config()
    assert config.parameters["warm_start"] == {"scale": 20}
    assert config.parameters["continuous"] == {"kl": 0.5, "first": "uniform"}
    assert layers.notes == [
        "warm_start.scale (--set warm_start.scale=20) is called parameters.warm_start.scale now",
        "continuous.kl (old.toml) is called parameters.continuous.kl now",
        "continuous.first (old.toml) is called parameters.continuous.first now",
    ]


def test_the_later_of_an_old_and_a_new_name_wins() -> None:
    layers = Layers()
    layers.add_setting("parameters.warm_start.scale=1")
    layers.add_setting("warm_start.scale=2")
    assert layers.config().parameters["warm_start"]["scale"] == 2
    layers.add_setting("parameters.warm_start.scale=3")
    assert layers.config().parameters["warm_start"]["scale"] == 3


def test_a_count_beyond_all_reason_is_refused_in_one_sentence() -> None:
    layers = Layers()
    layers.add_key("participation.share", 16**5000, "test")
    assert "at most 1,000,000,000,000" in error_of(layers)


def test_thousands_of_wrong_values_take_no_longer_than_their_number() -> None:
    layers = Layers()
    layers.add_key("faults.nan.devices", ["x"] * 20_000, "test")
    layers.add_key("parameters", {f"k{n}": {"a": 1} for n in range(2000)}, "test")
    began = time.process_time()
    assert error_of(layers).startswith("faults.nan.devices")
    assert time.process_time() - began < 5
