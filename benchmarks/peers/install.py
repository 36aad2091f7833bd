"""Create a separate environment for each peer.

    python benchmarks/peers/install.py [FOLDER] [NAME]...

The folder (by default build/peers, which git ignores) then holds one environment per peer and
``peers.json``, which says how each peer is started. Existing environments are left as they are. pip
uses its usual settings, for example to install another build of torch.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
QUIET = (  # no telemetry, no update checks, no outside connections
    ("FLWR_TELEMETRY_ENABLED", "0"),
    ("FLWR_DISABLE_UPDATE_CHECK", "1"),
    ("RAY_USAGE_STATS_ENABLED", "0"),
    # On a single machine: otherwise Ray replaces 127.0.0.1 by the outer address.
    ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0"),
)


class PeerPackages(NamedTuple):
    """What is installed for a peer, in which order and with which pip options."""

    first: tuple[str, ...]
    packages: tuple[str, ...]
    options: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


# torch is installed first and alone, so that no peer brings another build of it.
PEERS = {
    "flower": PeerPackages(
        ("torch", "numpy"), ("flwr[simulation]>=1.40,<1.42",), environment=QUIET
    ),
    "pfl": PeerPackages(("torch", "numpy"), ("pfl",)),
    "fedlab": PeerPackages(("torch", "numpy"), ("fedlab",)),
    # It declares Python 3.12 but runs on 3.11.
    "blazefl": PeerPackages(
        ("torch", "numpy", "tqdm"), ("blazefl",), ("--no-deps", "--ignore-requires-python")
    ),
    "fedjax": PeerPackages(("jax", "jaxlib", "numpy"), ("fedjax",)),
}


def _run(*command: str | Path) -> None:
    subprocess.run([str(part) for part in command], check=True)


def install(name: str, folder: Path) -> None:
    """Create one environment unless it is complete."""
    environment, peer = folder / name, PEERS[name]
    done = environment / ".installed"
    if done.exists():
        return
    python = environment / "bin" / "python"
    if not python.exists():
        _run(sys.executable, "-m", "venv", environment)
    pip = (python, "-m", "pip", "install", "-q", "-c", HERE / "constraints" / f"{name}.txt")
    _run(*pip, *peer.first)
    _run(*pip, *peer.options, *peer.packages)
    done.touch()


def describe(folder: Path) -> dict[str, Any]:
    """Return how each installed peer is started."""
    return {
        name: {
            "python": str(folder / name / "bin" / "python"),
            "module": f"benchmarks.peers.{name}",
            "root": str(ROOT),
            "environment": dict(peer.environment),
        }
        for name, peer in PEERS.items()
        if (folder / name / ".installed").exists()
    }


def main() -> None:
    given = sys.argv[1:]
    folder = Path(given[0] if given else "build/peers").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in given[1:] or PEERS:
        if name not in PEERS:
            raise SystemExit(f"there is no peer {name!r}: known are {', '.join(PEERS)}")
        print(f"{name} ...", flush=True)
        try:
            install(name, folder)
        except subprocess.CalledProcessError:
            failed.append(name)
    text = json.dumps(describe(folder), indent=1) + "\n"
    (folder / "peers.json").write_text(text, encoding="utf-8")
    print(f"{folder / 'peers.json'}")
    if failed:
        raise SystemExit(f"not installed: {', '.join(failed)} (pip's messages are above)")


if __name__ == "__main__":
    main()
