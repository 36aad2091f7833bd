"""Configurations that would hang or fill the memory: refused in a sentence, and quickly."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from ebbflow.config.merge import Layers, literal
from ebbflow.core.errors import EbbflowError
from ebbflow.data.own.custom import read_npz

ODD = {
    "rounds without end": (f"rounds = 1{'0' * 30}", "less than or equal to 1000000"),
    "pilot rounds without end": ("[pilot]\nrounds = 1000000000", r"pilot\.rounds"),
    "sessions without end": ("sessions = 2147483648", "less than or equal to 100000"),
    "too many devices": ("[partition]\ndevices = 10000001", r"partition\.devices"),
    "too many workers": ("[engine]\nworkers = 100000", r"engine\.workers"),
    "a window without end": (f"window = [5, {10**20}]", "window"),
    "brackets": (f"seeds = {'[' * 600}{']' * 600}", "nested too deeply"),
    "many digits": (f"rounds = {'9' * 4400}", "not valid TOML"),
    "many hexadecimal digits": (f"rounds = 0x{'f' * 9000}", "rounds = a value of this size"),
    "a NUL": ('dataset = "a\\u0000b"', "holds a character that cannot be shown"),
    "an escape sequence": ('algorithm = ["\\u001b[31m"]', "holds a character that cannot be shown"),
    "an escape sequence in a key": ('"\\u001b[31m" = 1', "holds a character that cannot be shown"),
    "a deep key": (f"{'.'.join('a' * 900)} = 1", "nested too deeply"),
    "a long text": (f'partition.kind = 3\nx = "{"y" * 100_000}"', "refused|unknown"),
    "a parameter of many digits": (
        f"parameters.fedprox.mu = 0x{'f' * 9000}",
        "a whole number must fit into 64 bits",
    ),
    "stays of no length": ("[schedule]\nkind = 'random'\nstay = 5e-324", r"schedule\.stay"),
    "stays of hardly any length": ("[schedule]\nkind = 'random'\nstay = 1e-300", r"schedule\.stay"),
    "sessions of infinite length": (
        "[schedule]\nkind = 'random'\ninterval = 1e308",
        r"joins and leaves, more than 1,000,000,000.*schedule\.interval",
    ),
    "devices without end": (
        "[schedule]\nkind = 'random'\narrivals = 1e308",
        r"schedule\.arrivals = 1e\+308 .*devices present, more than 1,000,000",
    ),
    "more devices than ever come": (
        "[schedule]\nkind = 'random'\nmin_devices = 1000000000000",
        r"schedule\.min_devices = 1000000000000 .* where 20 are on average",
    ),
    "more devices than any": ("[schedule]\nkind = 'random'\narrivals = 1e6", "4e\\+06 devices"),
    "an infinite number": ("[partition]\nalpha = 1e400", "finite"),
}


@pytest.mark.parametrize("case", ODD)
def test_what_cannot_be_is_refused_in_a_short_sentence(case: str, tmp_path: Path) -> None:
    text, says = ODD[case]
    path = tmp_path / "odd.toml"
    path.write_text(f"{text}\n", encoding="utf-8")
    began = time.monotonic()
    with pytest.raises(EbbflowError, match=says) as caught:
        layers = Layers()
        layers.add_file(path)
        layers.config()
    assert len(str(caught.value)) < 700
    assert time.monotonic() - began < 5


def test_unknown_keys_take_time_in_proportion(tmp_path: Path) -> None:
    path = tmp_path / "many.toml"
    path.write_text("".join(f"k{i} = 1\n" for i in range(50_000)), encoding="utf-8")
    began = time.monotonic()
    layers = Layers()
    layers.add_file(path)
    with pytest.raises(EbbflowError, match="unknown key k0"):
        layers.config()
    assert time.monotonic() - began < 10


def test_replaced_values_are_forgotten_above_and_below() -> None:
    layers = Layers()
    layers.add({"parameters": {"moon": {"mu": 1.0, "tau": 0.5}}}, "one")
    layers.add({"parameters": {"moon": {"mu": 2.0}}}, "two")
    assert layers.places == {"parameters.moon.mu": "two", "parameters.moon.tau": "one"}
    layers.add({"parameters": {"moon": {}}}, "three")
    assert layers.places == {"parameters.moon": "three"}
    layers.add({"parameters": {"moon": {"mu": 3.0}}}, "four")
    assert layers.places == {"parameters.moon.mu": "four"}


def test_a_file_without_end_is_refused() -> None:
    with pytest.raises(EbbflowError, match="is larger than any configuration"):
        Layers().add_file(Path("/dev/zero"))


@pytest.mark.parametrize("text", ["[" * 2000, "9" * 5000, "\x00", "1e999"])
def test_any_setting_of_a_command_is_a_value_or_a_text(text: str) -> None:
    literal(text)


def test_a_header_that_promises_too_much_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vast.npz"
    four, labels = np.zeros((4, 2)), np.zeros(4, np.int64)
    np.savez(path, x_train=four, y_train=labels, x_test=four, y_test=labels)
    vast = b"(1000000000000, 2), }"
    path.write_bytes(path.read_bytes().replace(b"(4, 2), }".ljust(len(vast)), vast))
    with pytest.raises(EbbflowError, match=r"not a readable \.npz file at x_train"):
        read_npz(path)
