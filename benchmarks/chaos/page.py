"""Fills the tables of docs/reliability.md and leaves its text unchanged."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.chaos.attacks import attacked
from benchmarks.chaos.crashes import Crashes, crash
from benchmarks.chaos.damage import HARMS, Damage, damage
from benchmarks.chaos.durability import durability
from benchmarks.chaos.faulty import RATES, dropped, same_round, trials
from benchmarks.chaos.full_disk import REFUSALS, refuse
from benchmarks.chaos.hostile import attack
from benchmarks.chaos.inputs import Tried, try_all
from benchmarks.chaos.kinds import KINDS
from benchmarks.chaos.peers import FLIPS as PEER_FLIPS
from benchmarks.chaos.peers import ROWS, compare
from benchmarks.chaos.poisoned import METHODS as POISONED_METHODS
from benchmarks.chaos.poisoned import poisoned
from benchmarks.chaos.power import cut_power
from benchmarks.chaos.soak import SESSIONS, Soaked, growth, paces, soak, spread, steady
from ebbflow.aggregation import AGGREGATIONS
from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import write_atomically
from ebbflow.report.markdown import filled, table

DEATHS = 45
"""Deaths of a kind of run, besides those at every call of the first kind."""
FLIPS, CUTS = 1000, 500
"""Of a stopped run, and as many of one that is over."""
POWER_CUTS = 600
REFUSED = 30
QUICK = {"dataset": "digits", "data.limit_train": 1000, "rounds": 1, "sessions": 6}
"""Settings for a quick look at accuracies."""


class Extent(NamedTuple):
    """How much is tried: every so-manieth trial, how long a long run is killed, and which peers."""

    part: int = 1
    minutes: float = 30.0
    peers: Path | None = None


def crashes(scratch: Path, extent: Extent) -> str:
    """Return the table of runs that died at file-system calls."""
    first, *others = KINDS
    found = [crash(first, scratch, None if extent.part == 1 else DEATHS // extent.part)]
    found += [crash(kind, scratch, max(1, DEATHS // extent.part)) for kind in others]
    rows = [_crash_row(each) for each in found]
    together = [str(sum(values)) for values in zip(*(f[2:5] for f in found), strict=True)]
    rows.append(["all", "", *together, str(sum(len(f.wrong) for f in found))])
    head = ["run", "calls", "deaths", "in writes", "while resuming", "wrong results or litter"]
    return table(head, rows) + _listed(w for f in found for w in f.wrong)


def _crash_row(found: Crashes) -> list[str]:
    return [found.kind, *map(str, found[1:5]), str(len(found.wrong))]


def damages(scratch: Path, extent: Extent) -> str:
    """Return the table of damaged files."""
    trials = {"flipped bit": FLIPS, "cut short": CUTS}
    kind = next(iter(KINDS))
    found = [
        each for harm in HARMS for each in damage(kind, scratch, trials[harm] // extent.part, harm)
    ]
    return _damage_table(found)


def disks(scratch: Path, extent: Extent) -> str:
    """Return the table of power cuts and disks that refuse."""
    kind = next(iter(KINDS))
    found = [cut_power(kind, scratch, POWER_CUTS // extent.part)]
    found += [
        refuse(kind, scratch, max(1, REFUSED // extent.part), refusal) for refusal in REFUSALS
    ]
    return _damage_table(found)


def hostile(scratch: Path, extent: Extent) -> str:
    """Return the table of hostile folders."""
    return _damage_table([attack(scratch, extent.part)])


def soaks(scratch: Path, extent: Extent) -> str:
    """Return the table of a long run that is killed."""
    found = soak(scratch, max(20, SESSIONS // extent.part), extent.minutes / extent.part)
    head = ["run", "minutes", "kills", *_USED, "wrong results or litter"]
    row = [found.name, f"{found.minutes:.0f}", str(found.kills), *_used(found)]
    return table(head, [[*row, str(len(found.wrong))]]) + _listed(found.wrong)


def steadies(scratch: Path, extent: Extent) -> str:
    """Return the table of long runs that nobody disturbs."""
    found = steady(scratch, max(20, SESSIONS // extent.part))
    return steady_table(found)


def steady_table(found: Sequence[Soaked]) -> str:
    """Return the table of runs, of which the time is judged by its trend and by its hundreds."""
    rows = []
    for each in found:
        times = paces(each.notes)
        judged = f"{growth(times):+.0%}", f"{spread(times):.0%}"
        rows.append([each.name, *_used(each), *judged, str(len(each.wrong))])
    head = ["run", *_USED, "time, last to first 300", "time, between hundreds", "wrong"]
    return table(head, rows) + _listed(w for f in found for w in f.wrong)


_USED = ("sessions", "memory", "open files", "threads")


def _used(found: Soaked) -> list[str]:
    notes = found.notes
    return [
        f"{len(notes):,}",
        f"{spread([note.memory for note in notes]):.1%}",
        _range([note.handles for note in notes]),
        _range([note.threads for note in notes]),
    ]


def _range(values: Sequence[int]) -> str:
    least, most = min(values), max(values)
    return str(least) if least == most else f"{least} to {most}"


def durabilities(scratch: Path, extent: Extent) -> str:
    """Return the table of what durability costs."""
    rows = [
        [share.name, f"{share.rounds:g}", *(f"{value:.1%}" for value in share[3:])]
        for share in durability(scratch, extent.part)
    ]
    head = ["run", "rounds", "of its time", "waiting for the disk", "of its processor time"]
    return table(head, rows)


def peers(scratch: Path, extent: Extent) -> str:
    """Return the table of ebbflow beside its peers."""
    if extent.peers is None:
        raise EbbflowError(
            "the peers need environments of their own: make them with `make peers`, and name the "
            "folder by --peers build/peers"
        )
    found = compare(scratch, extent.peers, max(1, PEER_FLIPS // extent.part))
    rows = [[row, *(told[at] for told in found.values())] for at, row in enumerate(ROWS)]
    return table(["what", *found], rows)


def faults(scratch: Path, extent: Extent) -> str:
    """Return the tables of devices at fault, and of rounds at any rate of dropout."""
    tried = trials()[:: extent.part]
    same = {trial: same_round(*trial) for trial in tried}
    rows = []
    for fault in dict.fromkeys(trial[0] for trial in tried):
        own = [fine for trial, fine in same.items() if trial[0] == fault]
        rows.append([fault, str(len(own)), str(own.count(True)), str(own.count(False))])
    first = table(["fault of two of six devices", "trials", "same bits", "anything else"], rows)
    found = [dropped(rate, 100) for rate in RATES[:: extent.part]]
    head = ["dropout", "rounds of the run", "of 100 abandoned", "weights off one by at most"]
    numbers = [[f"{d.rate:.0%}", str(d.rounds), str(d.abandoned), f"{d.off:.0e}"] for d in found]
    return f"{first}\n{table(head, numbers)}"


def poison(scratch: Path, extent: Extent) -> str:
    """Return the table of starts with a poisoned past."""
    found = poisoned() if extent.part == 1 else poisoned(**QUICK, seeds=[100])
    rows = [
        [each.poison, f"{each.share:.0%}", *(f"{a:.1f}" for a in each.accuracies)] for each in found
    ]
    return table(["past sessions", "poisoned", *POISONED_METHODS], rows)


def attacks(scratch: Path, extent: Extent) -> str:
    """Return the table of accuracies under attack; the best of each row is in bold."""
    found = attacked([100, 200]) if extent.part == 1 else attacked([100], **QUICK)
    rows = []
    for each in found:
        best = max(each.accuracies)
        cells = [f"**{a:.1f}**" if a == best else f"{a:.1f}" for a in each.accuracies]
        rows.append([each.attack, f"{each.share:.0%}", *cells])
    return table(["attack", "malicious", *AGGREGATIONS], rows)


def inputs(scratch: Path, extent: Extent) -> str:
    """Return the table of configurations and files that were handed over."""
    found = try_all(scratch, extent.part)
    rows = [[f.kind, *map(str, f[1:4]), *_spent(f), str(len(f.wrong))] for f in found]
    head = ["what", "trials", "told in a sentence", "accepted", "slowest", "memory"]
    return table([*head, "anything else"], rows) + _listed(w for f in found for w in f.wrong)


def _spent(found: Tried) -> tuple[str, str]:
    return f"{found.slowest:.1f} s", f"{found.memory / 1e6:.0f} MB"


def _damage_table(found: Sequence[Damage]) -> str:
    rows = [
        [f.name, str(f.trials), str(f.noticed), str(f.harmless), str(len(f.wrong))] for f in found
    ]
    head = ["what", "trials", "told in a sentence", "same results", "anything else"]
    return table(head, rows) + _listed(w for f in found for w in f.wrong)


def _listed(wrong: object) -> str:
    lines = [f"- {line}\n" for line in wrong]  # type: ignore[attr-defined]
    return "\n" + "".join(lines) if lines else ""


SECTIONS: dict[str, Callable[[Path, Extent], str]] = {
    "crashes": crashes,
    "damage": damages,
    "disk": disks,
    "hostile": hostile,
    "inputs": inputs,
    "faults": faults,
    "attacks": attacks,
    "poison": poison,
    "soak": soaks,
    "steady": steadies,
    "durability": durabilities,
    "peers": peers,
}


def write_section(
    name: str, page: Path, scratch: Path, extent: Extent, say: Callable[[str], None]
) -> None:
    """Make the trials of a section and fill its table."""
    began = time.monotonic()
    block = SECTIONS[name](scratch / name, extent)
    say(f"{name}, {time.monotonic() - began:.0f} s\n{block}")
    if extent.part == 1:
        text = filled(page.read_text(encoding="utf-8"), name, block)
        write_atomically(page, text.encode())
