"""The folder of a federation: what is in it, and how its data are divided."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import tomllib
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


def test_data_and_records_are_the_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = make_federation(tmp_path / "f", 2)
    finally:
        os.umask(before)
    for name in ("nodes", "nodes/node0", "nodes/node1", "run"):
        assert stat.S_IMODE((made.path / name).stat().st_mode) == 0o700


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


def test_a_wrong_host_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(EbbflowError, match="'a b' is neither a host name nor an IP address"):
        make_federation(tmp_path / "f", 2, ["a b"])
    assert not (tmp_path / "f").exists()


def test_the_apps_defaults_are_shown_under_run(tmp_path: Path) -> None:
    made = make_federation(tmp_path / "f", 2, run={"rounds": 2})
    project = tomllib.loads((made.app / "pyproject.toml").read_text())
    defaults = project["tool"]["flwr"]["app"]["config"]
    text = (made.path / "federation.toml").read_text()
    head, section, run = text.partition("[run]\n")
    assert "# rounds" not in run
    del defaults["folder"]  # is not the user's to set
    shown = tomllib.loads(head + section + re.sub("(?m)^# ", "", run))["run"]
    assert shown == {**defaults, "rounds": 2}


def test_start_sh_resumes_only_what_has_a_checkpoint(tmp_path: Path) -> None:
    made = make_federation(tmp_path / "f", 2)
    said = tmp_path / "bin" / "ebbflow"
    said.parent.mkdir()
    said.write_text('#!/bin/sh\necho "$@"\n')
    said.chmod(0o755)

    def started() -> str:
        path = f"{said.parent}:{os.environ['PATH']}"
        command = [str(made.path / "start.sh"), "--no-nodes"]
        done = subprocess.run(
            command, env={"PATH": path}, capture_output=True, text=True, check=True
        )
        return done.stdout + done.stderr

    history = made.path / "run" / "history"
    history.mkdir()
    assert started() == "federate run . --no-nodes\n"
    (history / "checkpoint-3.json").touch()
    assert started() == "federate resume . --no-nodes\n"


def test_turns_are_numbers() -> None:
    assert turns_of("") == ()
    with pytest.raises(EbbflowError, match="names no nodes"):
        turns_of("a b")
