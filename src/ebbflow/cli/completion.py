"""What a shell offers when the tab key is pressed; nothing here imports more than it must.

Where these functions offer nothing, the shell offers files.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ebbflow.core.names import printable

MOST_FOLDERS = 200


def dataset_names(incomplete: str) -> list[str]:
    """Return the data sets that begin so."""
    from ebbflow.data.sources import SOURCES

    return _fitting(SOURCES, incomplete)


def algorithm_names(incomplete: str) -> list[str]:
    """Return the algorithms that the last name of a list begins like."""
    from ebbflow.algorithms import ALGORITHMS

    return _last_of_list(ALGORITHMS, incomplete)


def method_names(incomplete: str) -> list[str]:
    """Return the ways to start a session that the last name of a list begins like."""
    from ebbflow.starts import AUTO, STARTS

    return _last_of_list((AUTO, *STARTS), incomplete)


def tracker_names(incomplete: str) -> list[str]:
    """Return the trackers that the last name of a list begins like."""
    from ebbflow.trackers import TRACKERS

    return _last_of_list(TRACKERS, incomplete)


def preset_names(incomplete: str) -> list[str]:
    """Return the presets that the last name of a list begins like.

    Those of the paper's rows are many, and are offered once they are asked for.
    """
    from importlib import resources

    folder = resources.files("ebbflow") / "config" / "preset_files"
    files = sorted(p.name.removesuffix(".toml") for p in folder.iterdir() if ".toml" in p.name)
    found = _last_of_list(files, incomplete)
    if found or not incomplete:
        return found
    from ebbflow.config import presets

    return _last_of_list(presets.preset_names(), incomplete)


def one_preset(incomplete: str) -> list[str]:
    """Return the presets that begin so."""
    return [] if "," in incomplete else preset_names(incomplete)


def run_folders(incomplete: str) -> list[str]:
    """Return the run folders that begin so: here, in ``runs``, and in the folder being written."""
    begun = incomplete.rpartition("/")[0]
    places = [begun or "/"] if "/" in incomplete else ["", "runs"]
    found = [run for place in places for run in _runs_in(place)]
    return _fitting(found, incomplete)


def _runs_in(place: str) -> list[str]:
    """Return the run folders of a folder, as a user would write them."""
    try:
        entries = sorted(Path(place or ".").expanduser().iterdir())[:MOST_FOLDERS]
        runs = [entry.name for entry in entries if (entry / "config.toml").is_file()]
    except OSError:
        return []
    before = f"{place.rstrip('/')}/" if place else ""
    return [f"{before}{name}" for name in runs if printable(name) == name]


def _fitting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _last_of_list(names: Iterable[str], incomplete: str) -> list[str]:
    """Return what the last name of a list with commas may become, each with the whole list.

    >>> _last_of_list(["learned", "previous"], "learned,p")
    ['learned,previous']
    """
    before, comma, last = incomplete.rpartition(",")
    taken = before.split(",")
    return [f"{before}{comma}{n}" for n in _fitting(names, last) if n not in taken]
