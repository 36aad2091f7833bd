"""Make an environment for each peer, with versions of its own: nothing is shared with ours.

    python benchmarks/peers/install.py [FOLDER] [NAME]...

The folder (by default build/peers, which git ignores) then holds an environment per peer and
``peers.json``, which says how each one is started. Environments that are there are left as they
are. pip obeys its usual settings, so another build of torch comes from where they point.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
QUIET = (  # nobody else is told, asked or listened to
    ("FLWR_TELEMETRY_ENABLED", "0"),
    ("FLWR_DISABLE_UPDATE_CHECK", "1"),
    ("RAY_USAGE_STATS_ENABLED", "0"),
    # Without other machines: else Ray takes 127.0.0.1 for a name of the outer address.
    ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0"),
)


class Peer(NamedTuple):
    """What a peer needs: what is installed first, what then, and how."""

    first: tuple[str, ...]
    packages: tuple[str, ...]
    options: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


# torch first and alone, so that no peer brings another build of it.
PEERS = {
    "flower": Peer(("torch", "numpy"), ("flwr[simulation]>=1.40,<1.42",), environment=QUIET),
    "pfl": Peer(("torch", "numpy"), ("pfl",)),
    "fedlab": Peer(("torch", "numpy"), ("fedlab",)),
    # It asks for Python 3.12, and has nothing in it that 3.11 does not understand.
    "blazefl": Peer(
        ("torch", "numpy", "tqdm"), ("blazefl",), ("--no-deps", "--ignore-requires-python")
    ),
    "fedjax": Peer(("jax", "jaxlib", "numpy"), ("fedjax",)),
}


def _run(*command: str | Path) -> None:
    subprocess.run([str(part) for part in command], check=True)


def install(name: str, folder: Path) -> None:
    """Make one environment, or leave it if it is complete."""
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
    """Return how each peer that is installed is started."""
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
