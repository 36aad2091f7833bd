"""How much memory there is: of the machine, and of the groups of processes that limit it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbflow.simulation import ceilings

MB = 10**6
FIRST = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
SECOND = ("memory.max", "memory.current", "inactive_file")


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where control groups are, on a machine with 900 MB of which 800 are left."""
    machine = {"MemTotal:": 900 * MB, "MemAvailable:": 800 * MB}
    monkeypatch.setattr(ceilings, "_of_machine", machine.get)
    monkeypatch.setattr(ceilings, "_OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(ceilings, "_GROUPS", tmp_path / "groups")
    return tmp_path / "groups"


def belongs_to(groups: Path, *lines: str) -> None:
    (groups.parent / "own").write_text("".join(f"{line}\n" for line in lines))


def group(
    folder: Path, names: tuple[str, str, str], limit: int | str, used: int, cache: int = 0
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon {used - cache}\n{names[2]} {cache}\n")


def memory() -> tuple[int | None, int | None]:
    """Return what is available and what there is in all, in megabytes."""
    found = ceilings.available_memory(), ceilings.total_memory()
    return tuple(None if size is None else size // MB for size in found)  # type: ignore[return-value]


def test_without_groups_the_machine_counts(groups: Path) -> None:
    assert memory() == (800, 900)
    belongs_to(groups, "0::/nowhere")
    assert memory() == (800, 900)


def test_files_that_were_read_are_not_taken_for_memory_that_is_used(groups: Path) -> None:
    """Or after the first cell, whose data are still in the cache, no other would fit."""
    belongs_to(groups, "0::/")
    group(groups, SECOND, 400 * MB, 390 * MB, cache=300 * MB)
    assert memory() == (310, 400)


def test_the_smallest_room_of_all_groups_counts(groups: Path) -> None:
    belongs_to(groups, "0::/slurm/job/step")
    group(groups / "slurm" / "job" / "step", SECOND, "max", 100 * MB)
    group(groups / "slurm" / "job", SECOND, 300 * MB, 120 * MB, cache=20 * MB)
    group(groups / "slurm", SECOND, 600 * MB, 590 * MB, cache=100 * MB)
    assert memory() == (110, 300)


def test_a_group_that_uses_more_than_it_may_has_no_room(groups: Path) -> None:
    belongs_to(groups, "0::/job")
    group(groups / "job", SECOND, 300 * MB, 310 * MB)
    assert memory() == (0, 300)


@pytest.mark.parametrize("kinds", ["memory", "cpu,memory"])
def test_groups_of_the_first_version(kinds: str, groups: Path) -> None:
    belongs_to(groups, "9:cpuset:/", f"4:{kinds}:/job/step", "0::/")
    no_limit = 2**63 - 4096
    root = groups / "memory"
    group(root, FIRST, no_limit, 700 * MB)
    group(root / "job", FIRST, 500 * MB, 200 * MB, cache=50 * MB)
    group(root / "job" / "step", FIRST, no_limit, 200 * MB)
    assert memory() == (350, 500)


def test_within_a_container_the_root_is_its_own_group(groups: Path) -> None:
    """The path is that of the machine around it, which is not to be seen from within."""
    belongs_to(groups, "4:memory:/docker/abc")
    group(groups / "memory", FIRST, 200 * MB, 100 * MB)
    assert memory() == (100, 200)
    belongs_to(groups, "0::/../../kubepods/pod")
    group(groups, SECOND, 300 * MB, 200 * MB)
    assert memory() == (100, 300)


def test_a_group_that_does_not_tell_what_is_cached_has_a_limit_all_the_same(groups: Path) -> None:
    belongs_to(groups, "0::/")
    group(groups, SECOND, 400 * MB, 300 * MB, cache=100 * MB)
    (groups / "memory.stat").unlink()
    assert memory() == (100, 400)
