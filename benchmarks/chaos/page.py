"""Fills the tables of docs/reliability.md and leaves its text unchanged."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.chaos.crashes import Crashes, crash
from benchmarks.chaos.damage import HARMS, Damage, damage
from benchmarks.chaos.full_disk import REFUSALS, refuse
from benchmarks.chaos.hostile import attack
from benchmarks.chaos.kinds import KINDS
from benchmarks.chaos.power import cut_power
from ebbflow.core.files import write_atomically
from ebbflow.report.markdown import filled, table

DEATHS = 45
"""Deaths of a kind of run, besides those at every call of the first kind."""
FLIPS, CUTS = 1000, 500
"""Of a stopped run, and as many of one that is over."""
POWER_CUTS = 600
REFUSED = 30


def crashes(scratch: Path, part: int) -> str:
    """Return the table of runs that died at file-system calls."""
    first, *others = KINDS
    found = [crash(first, scratch, None if part == 1 else DEATHS // part)]
    found += [crash(kind, scratch, max(1, DEATHS // part)) for kind in others]
    rows = [_crash_row(each) for each in found]
    together = [str(sum(values)) for values in zip(*(f[2:5] for f in found), strict=True)]
    rows.append(["all", "", *together, str(sum(len(f.wrong) for f in found))])
    head = ["run", "calls", "deaths", "in writes", "while resuming", "wrong results or litter"]
    return table(head, rows) + _listed(w for f in found for w in f.wrong)


def _crash_row(found: Crashes) -> list[str]:
    return [found.kind, *map(str, found[1:5]), str(len(found.wrong))]


def damages(scratch: Path, part: int) -> str:
    """Return the table of damaged files."""
    trials = {"flipped bit": FLIPS, "cut short": CUTS}
    kind = next(iter(KINDS))
    found = [each for harm in HARMS for each in damage(kind, scratch, trials[harm] // part, harm)]
    return _damage_table(found)


def disks(scratch: Path, part: int) -> str:
    """Return the table of power cuts and disks that refuse."""
    kind = next(iter(KINDS))
    found = [cut_power(kind, scratch, POWER_CUTS // part)]
    found += [refuse(kind, scratch, max(1, REFUSED // part), refusal) for refusal in REFUSALS]
    return _damage_table(found)


def hostile(scratch: Path, part: int) -> str:
    """Return the table of hostile folders."""
    return _damage_table([attack(scratch, part)])


def _damage_table(found: Sequence[Damage]) -> str:
    rows = [
        [f.name, str(f.trials), str(f.noticed), str(f.harmless), str(len(f.wrong))] for f in found
    ]
    head = ["what", "trials", "told in a sentence", "same results", "anything else"]
    return table(head, rows) + _listed(w for f in found for w in f.wrong)


def _listed(wrong: object) -> str:
    lines = [f"- {line}\n" for line in wrong]  # type: ignore[attr-defined]
    return "\n" + "".join(lines) if lines else ""


SECTIONS: dict[str, Callable[[Path, int], str]] = {
    "crashes": crashes,
    "damage": damages,
    "disk": disks,
    "hostile": hostile,
}


def write_section(
    name: str, page: Path, scratch: Path, part: int, say: Callable[[str], None]
) -> None:
    """Make the trials of a section and fill its table."""
    began = time.monotonic()
    block = SECTIONS[name](scratch / name, part)
    say(f"{name}, {time.monotonic() - began:.0f} s\n{block}")
    if part == 1:
        text = filled(page.read_text(encoding="utf-8"), name, block)
        write_atomically(page, text.encode())
