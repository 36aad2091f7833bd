"""The folder of a federation: what is in it, and how its data are divided."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "ebbflow[flower]"')

import numpy as np
from safetensors.torch import load_file

from ebbflow.core.errors import EbbflowError
from ebbflow.flower.crowd import key_of
from ebbflow.flower.gate.keys import key_bytes
from ebbflow.flower.launch.driving import turns_of
from ebbflow.flower.launch.federation_settings import read_settings
from ebbflow.flower.launch.making import divided_digits, make_federation


def test_a_folder_has_all_that_a_federation_needs(tmp_path: Path) -> None:
    made = make_federation(tmp_path / "f", 3, ["fl.example.org"], {"rounds": 2, "start": "average"})
    settings = read_settings(made.path)
    assert settings.nodes.count == 3
    assert settings.run == {"rounds": 2, "start": "average"}
    assert os.access(made.path / "start.sh", os.X_OK)
    for path in [made.certificate_key, *(made.key(n) for n in range(3))]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    digests = json.loads((made.path / "run" / "keys.json").read_text())
    assert digests == [key_of(key_bytes(path), 0) for path in made.public_keys().values()]
    own = [load_file(made.node_data(number) / "data.safetensors") for number in range(3)]
    assert sum(len(tensors["y"]) for tensors in own) == 1437
    assert not list(tmp_path.rglob("*.txt"))


@pytest.mark.parametrize("nodes", [2, 3, 5, 8])
def test_digits_are_divided_by_label_and_none_is_lost(nodes: int) -> None:
    digits = divided_digits(nodes)
    owner, labels = np.asarray(digits.train.device), digits.train.y.numpy()
    assert set(owner.tolist()) == set(range(nodes))
    assert all(labels[owner == number].max() < 5 for number in range(nodes // 2))
    assert all(labels[owner == number].min() >= 5 for number in range((nodes + 1) // 2, nodes))
    sizes = np.bincount(owner)
    assert sizes.sum() == 1437
    again = divided_digits(nodes)
    assert (np.asarray(again.train.device) == owner).all()


def test_a_used_folder_or_too_few_nodes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "here").write_text("")
    with pytest.raises(EbbflowError, match="is not an empty folder: choose another"):
        make_federation(tmp_path)
    with pytest.raises(EbbflowError, match="a federation of 1 nodes: choose from 2"):
        make_federation(tmp_path / "f", 1)


def test_turns_are_numbers() -> None:
    assert turns_of("") == ()
    with pytest.raises(EbbflowError, match="names no nodes"):
        turns_of("a b")
