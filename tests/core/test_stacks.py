"""Stacks of past vectors: the rows that were asked for, read once, within their room."""

from __future__ import annotations

import gc

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ebbflow.core import stacks
from ebbflow.core.stacks import PastModels, Stack, StackRoom
from ebbflow.core.types import ModelState, PastSession
from ebbflow.core.vector import mix

SIZE = 5


def session(number: int, size: int = SIZE, buffers: int = 2) -> PastSession:
    draw = torch.Generator().manual_seed(number)
    theta, rest = torch.randn(size, generator=draw), torch.rand(buffers, generator=draw)
    return PastSession(number, ModelState(theta, rest), torch.randn(size, generator=draw))


class Reader:
    """Reads signatures, and counts how often."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def __call__(self, past: PastSession) -> Tensor:
        self.read.append(past.number)
        return past.required_signature


def rows_of(stack: Stack, past: list[PastSession], places: list[int] | None = None) -> Tensor:
    return torch.cat([block.float() for block in stack.blocks(past, places)])


def signatures(past: list[PastSession]) -> Tensor:
    return torch.stack([one.required_signature for one in past])


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "_ROWS", 4)


def test_a_growing_past_is_read_once() -> None:
    reader = Reader()
    stack, past = Stack(reader), [session(z) for z in range(1, 30)]
    for count in (1, 3, 4, 5, 20, 29):
        assert torch.equal(rows_of(stack, past[:count]), signatures(past[:count]))
    assert reader.read == list(range(1, 30))


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 39), unique=True, min_size=1, max_size=30),
    st.lists(st.integers(0, 39), unique=True, min_size=1, max_size=30),
    st.integers(0, 12),
    st.data(),
)
def test_rows_are_right_whatever_was_dropped_and_however_little_room_there_is(
    first: list[int], second: list[int], vectors: int, data: st.DataObject
) -> None:
    every = [session(z) for z in range(40)]
    # Rows of four have to fit into a quarter of the room before any is held.
    stack = Stack(lambda past: past.required_signature, StackRoom(4 * SIZE * vectors * 8))
    for chosen in (first, second, first[:5]):
        past = [every[z] for z in sorted(chosen)]
        assert torch.equal(rows_of(stack, past), signatures(past))
        places = data.draw(st.lists(st.integers(0, len(past) - 1), unique=True))
        found = [block.float() for block in stack.blocks(past, sorted(places))]
        assert [len(block) for block in found[:-1]] == [4] * (len(found) - 1)
        wanted = signatures([past[place] for place in sorted(places)]) if places else torch.empty(0)
        assert torch.equal(torch.cat(found) if found else torch.empty(0), wanted)


def test_rows_that_are_held_are_read_where_they_lie() -> None:
    reader, past = Reader(), [session(z) for z in range(9)]
    stack = Stack(reader)
    blocks = [list(stack.blocks(past)) for _ in range(2)]
    assert [len(block) for block in blocks[0]] == [4, 4, 1]
    for first, second in zip(*blocks, strict=True):
        assert first.data_ptr() == second.data_ptr()
    assert torch.equal(torch.cat(blocks[0]), signatures(past).double())
    assert torch.equal(torch.cat(list(stack.blocks(past, [1, 3, 8]))), rows_of_each(past, 1, 3, 8))
    assert reader.read == list(range(9))


def rows_of_each(past: list[PastSession], *places: int) -> Tensor:
    return signatures([past[place] for place in places]).double()


def test_what_finds_no_room_is_read_again_and_what_is_given_back_is_used() -> None:
    room, past = StackRoom(4 * 4 * SIZE * 8), [session(z) for z in range(1, 25)]
    reader, other = Reader(), Reader()
    stack, later = Stack(reader, room), Stack(other, room)
    rows_of(stack, past)
    assert room.left == 0
    for _ in range(2):
        reader.read.clear()
        rows_of(stack, past)
        assert set(reader.read) == set(range(17, 25))  # four blocks of four are held
    rows_of(later, past[:4])
    other.read.clear()
    rows_of(later, past[:4])
    assert other.read
    del stack
    gc.collect()
    assert room.left == room.limit
    rows_of(later, past[:4])
    other.read.clear()
    rows_of(later, past[:4])
    assert not other.read


def test_vectors_of_which_only_a_few_would_fit_are_not_held() -> None:
    room = StackRoom(3 * 8 * 1000)
    stack = Stack(lambda past: past.required_signature, room)
    past = [session(z, 1000) for z in range(5)]
    assert torch.equal(rows_of(stack, past), signatures(past))
    assert room.left == room.limit


@pytest.mark.parametrize("buffers", [0, 2])
@pytest.mark.parametrize("room", [0, 2**20])
def test_many_models_are_mixed_as_few_are(buffers: int, room: int) -> None:
    past = [session(z, buffers=buffers) for z in range(50)]
    models = PastModels(StackRoom(room))
    for places in (list(range(50)), list(range(0, 50, 2)), list(range(10, 45)), list(range(32))):
        weights = torch.rand(len(places), dtype=torch.float64).softmax(0).tolist()
        plain = mix([past[place].model for place in places], weights)
        found = models.mixture(past, places, weights)
        assert found.theta.dtype == torch.float32
        for ours, theirs in zip(found, plain, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-7)  # float32 rounding
            if len(places) <= stacks.LONG:
                assert torch.equal(ours, theirs)


def test_models_without_a_weight_are_not_read_though_they_are_no_numbers() -> None:
    past = [session(z) for z in range(50)]
    past[3] = PastSession(3, ModelState(torch.full((SIZE,), torch.nan), torch.zeros(2)))
    places = [place for place in range(50) if place != 3]
    found = PastModels().mixture(past, places, [1 / 49] * 49)
    assert bool(torch.isfinite(found.theta).all())


def test_a_mixture_does_not_depend_on_what_is_held() -> None:
    """Or a run that was resumed could come to other bits than one that was not."""
    past = [session(z) for z in range(60)]
    weights = torch.rand(60, dtype=torch.float64).softmax(0).tolist()
    grown = PastModels()
    for count in range(33, 60):
        grown.mixture(past, list(range(count)), [1 / count] * count)
    fresh, poor = PastModels(), PastModels(StackRoom(0))
    mixtures = [each.mixture(past, list(range(60)), weights) for each in (grown, fresh, poor)]
    assert torch.equal(mixtures[0].theta, mixtures[1].theta)
    assert torch.equal(mixtures[0].theta, mixtures[2].theta)
