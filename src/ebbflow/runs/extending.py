"""Seeds that are added to a run, finished or not.

A run with more seeds is an unfinished one: what its last checkpoint left is there, and resuming
computes the rest. So adding seeds changes two files. The summary goes first, because it tells that
a run is finished. Then the configuration is replaced. A process that dies in between leaves the
former run without its summary, which resuming writes again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ebbflow.config.merge import read_written
from ebbflow.config.resolved import Config
from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import sync_folder
from ebbflow.core.names import listed
from ebbflow.runs import records
from ebbflow.runs.configuration import read_config
from ebbflow.runs.folder import RunFolder
from ebbflow.runs.verify import Finding, verify


def with_seeds(folder: Path, seeds: Iterable[int]) -> Config:
    """Return the configuration of a run with more seeds behind its own, after checking them."""
    config, new = read_config(folder), list(seeds)
    if not new:
        raise EbbflowError(f"no seeds to add to {folder}: name at least one that it has not")
    known = [str(seed) for seed in new if seed in config.seeds]
    if known:
        text = f"{folder} already has the seed{'s' if len(known) > 1 else ''} {listed(known)}"
        if (folder / records.SUMMARY).exists():
            raise EbbflowError(f"{text}: name others")
        raise EbbflowError(f"{text}: name others, or go on with `ebbflow resume {folder}`")
    written = {**config.model_dump(mode="json"), "seeds": [*config.seeds, *new]}
    return read_written(written, "the seeds to add")


def check_intact(folder: Path) -> None:
    """Raise an error if anything of a run is damaged: what is added would rest on it."""
    finished = (folder / records.SUMMARY).exists()
    for finding in verify(folder):
        if finding.state != "litter" and (finished or not _is_under_way(finding)):
            raise EbbflowError(
                f"{folder} is damaged ({finding.path}: {finding.text}), so no seeds are added to "
                f"it: mend it by `ebbflow repair {folder}`"
            )


def _is_under_way(finding: Finding) -> bool:
    """Whether a process that died may have left this: a history's first file, before the list."""
    return finding.state == "missing" and Path(finding.path).name == records.MANIFEST


def write_seeds(folder: RunFolder, config: Config) -> None:
    """Make a run, which the caller has locked, an unfinished one of a configuration."""
    (folder.path / records.SUMMARY).unlink(missing_ok=True)
    sync_folder(folder.path)
    records.write_config(folder.path, config.model_dump())
