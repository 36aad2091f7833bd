"""Makes the folder of a federation: app, settings, certificates, keys, and data to begin with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path

import numpy as np
import tomli_w
import torch
from cryptography.hazmat.primitives import serialization

from ebbflow.core.errors import EbbflowError
from ebbflow.core.evaluate import picked
from ebbflow.core.files import make_folder, write_atomically
from ebbflow.core.rng import generator
from ebbflow.core.tensor_files import as_safetensors
from ebbflow.core.types import Dataset, Examples
from ebbflow.data.datasets import load
from ebbflow.flower.crowd import key_of
from ebbflow.flower.launch.federation_settings import SETTINGS, Setting
from ebbflow.flower.launch.folder import PRIVATE, FederationFolder, node_name
from ebbflow.flower.launch.identities import (
    alternative_names,
    make_authority,
    make_node_key,
    make_server_certificate,
)

ENDING = ".txt"
"""What the templates' names end with, so that nobody takes them for modules of ours."""
PACKAGE, SCRIPT = "federation_app", "start.sh"
KEYS, DATA, TEST = "keys.json", "data.safetensors", "test.safetensors"
SERVER_FOLDER = "folder"
"""The only setting of the app that is not the user's: a run's is set by `Driver.go`."""
MOST_NODES = 1000


def make_federation(
    folder: Path,
    nodes: int = 5,
    hosts: Iterable[str] = (),
    run: Mapping[str, Setting] | None = None,
) -> FederationFolder:
    """Write the folder of a federation that runs as it is, on digits divided among its nodes.

    Args:
        folder: The folder, which must be empty or not there.
        nodes: How many nodes get a key and data.
        hosts: Names and addresses by which nodes on other machines reach the server.
        run: What the app is told, beside its defaults.
    """
    if not 2 <= nodes <= MOST_NODES:
        raise EbbflowError(f"a federation of {nodes} nodes: choose from 2 to {MOST_NODES:,}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise EbbflowError(f"{folder} is not an empty folder: choose another")
    hosts = list(hosts)
    alternative_names(hosts)  # a wrong one must not leave half a federation behind
    made = FederationFolder(folder.absolute())
    make_folder(made.path)
    _write_app(made, nodes, dict(run or {}))
    certificates = made.authority.parent
    make_authority(certificates)
    make_server_certificate(certificates, hosts)
    digests = []
    for number in range(nodes):
        files = make_node_key(made.key(number))
        digests.append(key_digest(files.public))
    make_folder(made.run, PRIVATE)
    write_atomically(made.run / KEYS, json.dumps(digests, indent=1).encode())
    _write_data(made, divided_digits(nodes))
    return made


def key_digest(public: Path) -> str:
    """Return what a device with this public key is known by."""
    key = serialization.load_ssh_public_key(public.read_bytes())
    kind = serialization.PublicFormat.SubjectPublicKeyInfo
    return key_of(key.public_bytes(serialization.Encoding.PEM, kind), 0)


def divided_digits(nodes: int, seed: int = 0) -> Dataset:
    """Return the packaged digits with owners.

    The first half of the nodes holds the digits below five, the second half the others, and a node
    in the middle holds all.
    """
    digits = load("digits")
    first, second = range((nodes + 1) // 2), range(nodes // 2, nodes)

    def owned(examples: Examples, purpose: str) -> Examples:
        labels = examples.y.numpy()
        owner = np.empty(len(labels), dtype=np.int64)
        for label in range(10):
            holders = first if label < 5 else second
            rows = np.flatnonzero(labels == label)
            order = generator(seed, "federation", purpose, label).permutation(len(rows))
            owner[rows[order]] = np.resize(np.array(holders), len(rows))
        return Examples(examples.x, examples.y, examples.pixels, torch.from_numpy(owner))

    return Dataset(
        name="digits",
        train=owned(digits.train, "train"),
        test=owned(digits.test, "test"),
        classes=digits.classes,
        devices=tuple(node_name(number) for number in range(nodes)),
        labels=digits.labels,
    )


def _write_app(made: FederationFolder, nodes: int, run: dict[str, Setting]) -> None:
    package = made.app / PACKAGE
    make_folder(package)
    files = resources.files("ebbflow.flower.launch") / "app_files"
    told = _told((files / f"pyproject.toml{ENDING}").read_text(encoding="utf-8"), run)
    for entry in files.iterdir():
        name, text = entry.name.removesuffix(ENDING), entry.read_text(encoding="utf-8")
        if name in (SETTINGS, "README.md"):
            text = text.replace("{nodes}", str(nodes)).replace("{run}", told)
            write_atomically(made.path / name, text.encode())
        elif name == SCRIPT:
            write_atomically(made.path / name, text.encode())
            (made.path / name).chmod(0o755)
        elif name == "pyproject.toml":
            write_atomically(made.app / name, text.encode())
        elif name.endswith(".py"):
            write_atomically(package / name, text.encode())
    write_atomically(package / "__init__.py", b'"""A federation that is trained in sessions."""\n')


def _told(project: str, run: dict[str, Setting]) -> str:
    """Return what ``[run]`` begins with: what is set, and the app's other defaults as comments."""
    defaults = project.partition("[tool.flwr.app.config]\n")[2].splitlines()
    free = [line for line in defaults if line.partition(" ")[0] not in {*run, SERVER_FOLDER}]
    return tomli_w.dumps(run) + "\n".join(f"# {line}" for line in free)


def _write_data(made: FederationFolder, dataset: Dataset) -> None:
    owner = dataset.train.device
    assert owner is not None
    for number in range(len(dataset.devices)):
        own = picked(dataset.train, owner == number)
        make_folder(made.node_data(number), PRIVATE)
        path = made.node_data(number) / DATA
        write_atomically(path, as_safetensors({"x": own.x, "y": own.y}))
    test = dataset.test
    assert test.device is not None
    tensors = {"x": test.x, "y": test.y, "device": test.device}
    write_atomically(made.run / TEST, as_safetensors(tensors))
