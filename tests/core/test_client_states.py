"""Device states: in memory, or mapped, but always the same numbers."""

from __future__ import annotations

import gc

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbflow.core.client_states import SLOTS, StateFile
from ebbflow.core.types import State


def state(seed: int, size: int = 3000) -> State:
    draw = torch.Generator().manual_seed(seed)
    return {
        "c": torch.randn(size, generator=draw),
        "steps": torch.tensor(seed),
        "none": torch.zeros(0),
        "half": torch.randn(3, 5, generator=draw).double(),
    }


def equal(one: State, other: State) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(one[name], other[name]) and one[name].dtype == other[name].dtype for name in one
    )


def test_few_states_stay_where_they_are() -> None:
    file = StateFile(limit=10**6)
    new = {1: state(1)}
    assert file.keep({}, new)[1]["c"] is new[1]["c"]
    assert file.bytes == 0


def test_many_states_are_mapped_and_equal_to_the_bit() -> None:
    file = StateFile(limit=20_000)
    kept = file.keep({}, {d: state(d) for d in range(5)})
    assert file.bytes > 0
    assert all(equal(kept[d], state(d)) for d in range(5))


def test_what_is_mapped_stays_as_it_was_when_it_is_replaced() -> None:
    file = StateFile(limit=0)
    before = file.keep({}, {d: state(d) for d in range(4)})
    after = file.keep(before, {d: state(d + 100) for d in range(4)})
    assert all(equal(before[d], state(d)) for d in range(4))
    assert all(equal(after[d], state(d + 100)) for d in range(4))


def test_devices_that_stay_away_keep_theirs() -> None:
    file = StateFile(limit=0)
    kept = file.keep({}, {1: state(1), 2: state(2)})
    assert equal(file.keep(kept, {2: state(3)})[1], state(1))


def test_places_are_used_again_and_the_file_stops_growing() -> None:
    file = StateFile(limit=0)
    kept: dict[int, State] = {}
    sizes = []
    for turn in range(6):
        kept = file.keep(kept, {d: {"c": torch.full((2000,), float(turn))} for d in range(SLOTS)})
        gc.collect()
        sizes.append(file.bytes)
    assert sizes[-1] == sizes[2]
    assert all(bool((own["c"] == 5).all()) for own in kept.values())


def test_a_view_keeps_its_place_from_being_used_again() -> None:
    file = StateFile(limit=0)
    part = file.keep({}, {1: {"c": torch.ones(5000)}})[1]["c"][100:200]
    gc.collect()
    for turn in range(2 * SLOTS):
        file.keep({}, {1: {"c": torch.full((5000,), float(turn))}})
    assert torch.equal(part, torch.ones(100))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6000)), max_size=30))
@settings(deadline=None, max_examples=30)
def test_it_is_a_mapping_like_any_other(writes: list[tuple[int, int]]) -> None:
    file, kept, wanted = StateFile(limit=4000), dict[int, State](), dict[int, State]()
    for turn, (device, size) in enumerate(writes):
        new = {device: state(turn, size)}
        kept, wanted = file.keep(kept, new), {**wanted, **new}
    assert kept.keys() == wanted.keys()
    assert all(equal(kept[device], wanted[device]) for device in wanted)
