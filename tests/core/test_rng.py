"""A draw is a function of its names, and of nothing else."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from ebbflow.core.rng import Generators, Name, generator, torch_generator

name = st.integers() | st.text(alphabet="abc1", max_size=4)
names = st.lists(name, max_size=5).map(tuple)


def draw(*keys: Name) -> list[float]:
    return list(map(float, generator(*keys).random(4)))


def torch_draw(*keys: Name) -> list[float]:
    return torch.rand(4, generator=torch_generator(*keys)).tolist()


@given(names)
def test_the_same_names_give_the_same_draw(keys: tuple[Name, ...]) -> None:
    assert draw(*keys) == draw(*keys)
    assert torch_draw(*keys) == torch_draw(*keys)


@given(names)
def test_a_draw_is_philox_with_the_names_digest_as_its_key(keys: tuple[Name, ...]) -> None:
    """As numpy documents it: runs of earlier versions are repeated bit by bit."""
    digest = hashlib.blake2b(json.dumps(keys).encode(), digest_size=16).digest()
    usual = np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))
    one = generator(*keys)
    assert one.permutation(50).tolist() == usual.permutation(50).tolist()
    assert one.random(7).tolist() == usual.random(7).tolist()


@given(names, names)
def test_other_names_give_another_draw(one: tuple[Name, ...], other: tuple[Name, ...]) -> None:
    assume(one != other)
    assert draw(*one) != draw(*other)
    assert torch_draw(*one) != torch_draw(*other)


@given(names, st.data())
def test_changing_any_single_name_changes_the_draw(
    keys: tuple[Name, ...], data: st.DataObject
) -> None:
    assume(keys)
    at = data.draw(st.integers(0, len(keys) - 1))
    changed = data.draw(name)
    assume(changed != keys[at])
    assert draw(*keys) != draw(*keys[:at], changed, *keys[at + 1 :])


@given(st.integers())
def test_a_number_is_not_its_text(number: int) -> None:
    assert draw(number) != draw(str(number))
    assert torch_draw(number) != torch_draw(str(number))


def test_two_names_are_not_one_name_that_spells_them() -> None:
    assert draw("a", "b") != draw("a/str:b")


def test_asking_in_another_order_changes_nothing() -> None:
    forwards = [draw(7, "batches", device) for device in range(5)]
    backwards = [draw(7, "batches", device) for device in reversed(range(5))]
    assert forwards == backwards[::-1]


def test_neighbouring_names_are_uncorrelated() -> None:
    draws = np.stack([generator(100, "noise", k).standard_normal(2000) for k in range(20)])
    correlation = np.asarray(np.corrcoef(draws))[~np.eye(20, dtype=bool)]
    assert np.abs(correlation).max() < 5 / np.sqrt(2000)


def test_first_draws_over_many_names_are_uniform() -> None:
    first = np.sort([generator(k).random() for k in range(2000)])
    gap = np.abs(first - (np.arange(2000) + 0.5) / 2000).max()
    assert gap < 2 / np.sqrt(2000)  # Kolmogorov-Smirnov: exceeded once in three thousand keys


def test_the_global_generators_are_left_alone() -> None:
    before = torch.random.get_rng_state()
    torch_draw(1, "anything")
    assert torch.equal(before, torch.random.get_rng_state())


@given(names, st.integers(0, 10**7), st.integers(0, 13), st.integers(0, 10**7))
def test_one_generator_becomes_any_of_its_members_at_any_place(
    keys: tuple[Name, ...], member: int, before: int, other: int
) -> None:
    expected = generator(*keys, member)
    members = Generators(*keys)
    members.become(member)
    assert members.drawn() == 0
    for _ in range(before):
        assert members.draw.standard_exponential() == expected.standard_exponential()
    drawn = members.drawn()
    assert drawn >= before
    members.become(other)
    members.draw.random()
    members.become(member, drawn)
    assert members.drawn() == drawn
    assert [members.draw.random() for _ in range(9)] == [expected.random() for _ in range(9)]
