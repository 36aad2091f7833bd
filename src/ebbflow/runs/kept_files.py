"""The history files of a run, and whether they are intact."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import file_state
from ebbflow.core.names import is_name
from ebbflow.runs.records import HISTORY, MANIFEST, check_run, read_manifest

SEED = re.compile(r"seed-[0-9]{1,19}")


class KeptFile(NamedTuple):
    """One file of a history: which method and seed it belongs to, and its manifest entry."""

    algorithm: str
    method: str
    seed: int
    path: Path
    facts: dict[str, Any]

    @property
    def state(self) -> str:
        """``ok``, ``missing`` or ``damaged``, judged by the checksum in the manifest."""
        return file_state(self.path, self.facts["sha256"])


def kept_files(folder: Path) -> list[KeptFile]:
    """Return every file in the histories of a run."""
    check_run(folder)
    files = []
    for manifest in sorted((folder / HISTORY).glob(f"*/*/seed-*/{MANIFEST}")):
        algorithm, method, seed = manifest.parts[-4:-1]
        if not (is_name(algorithm) and is_name(method) and SEED.fullmatch(seed)):
            raise EbbflowError(
                f"{manifest.parent} is no folder of a history, which is called "
                "ALGORITHM/METHOD/seed-NUMBER: remove it"
            )
        number = int(seed.removeprefix("seed-"))
        for name, facts in read_manifest(manifest.parent).items():
            files.append(KeptFile(algorithm, method, number, manifest.parent / name, facts))
    return files
