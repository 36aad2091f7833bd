"""Leaves: a round that is cut behind any leaf and trained in parts anywhere is the whole round."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbflow.core.algorithm import Algorithm, Upload
from ebbflow.core.local import Cohort, Lane, Trained
from ebbflow.engines.leaves import LEAF, DenseTotal, LeafStretch, leaf_sums
from ebbflow.engines.vectorised import Vectorised
from tests.engines.paths import PATHS, EnginePath
from tests.engines.rounds import KINDS, RECIPE, ROWS, same_bits, vectorised
from tests.engines.text_rounds import SHARDS, TEXTS

VARIANTS = ["fedavg", "scaffold", "moon", "stateful"]
IN_LEAVES = ["mapped mlp", "one by one", "fused", "sample space", "row sparse"]


def decaying() -> Algorithm:
    """Return an algorithm whose devices move rows that their texts do not touch."""
    return Algorithm("decay", direction=lambda g, theta, *_: 0.01 * torch.sign(g) + 0.1 * theta)


def many(path: EnginePath, devices: int) -> Cohort:
    """Return a cohort with steps of all sizes."""
    texts = not path.data.x.is_floating_point()
    rows = TEXTS if texts else ROWS
    draw = np.random.default_rng(devices)
    sizes = [tuple(max(2, n) for n in KINDS[k % len(KINDS)]) for k in range(devices)]
    batches = [tuple(draw.integers(1, rows, size=size) for size in device) for device in sizes]
    shards = [np.unique(np.concatenate(device)) for device in batches]
    samples = tuple(map(len, shards))
    return Cohort(3, 2, tuple(range(10, 10 + devices)), batches, samples, (7, "test"), shards)


def in_parts(
    engine: Vectorised, lanes: Sequence[Lane], who: Cohort, cuts: Sequence[int]
) -> list[Trained]:
    """Train the parts of a cohort one by one, and add up what has been sent from elsewhere."""
    ends = [0, *sorted({engine.leaf * cut for cut in cuts}), len(who.devices)]
    sent: list[LeafStretch] = []
    for first, last in pairwise(ends):
        if first < last:
            part = who.only(range(first, last))
            sent += [engine.portable(stretch) for stretch in engine.leaves(lanes, part)]
    return engine.folded(lanes, pickle.loads(pickle.dumps(sent)))


@pytest.mark.parametrize("name", IN_LEAVES)
@settings(deadline=None, max_examples=3)
@given(devices=st.integers(1, 45), cuts=st.lists(st.integers(0, 10), max_size=4))
def test_a_cohort_may_be_cut_behind_any_leaf(name: str, devices: int, cuts: list[int]) -> None:
    path = PATHS[name]
    who = many(path, devices)
    lanes = [path.lane(variant, lr=0.1 + 0.01 * i) for i, variant in enumerate(VARIANTS)]
    lanes.append(path.lane("fedavg")._replace(algorithm=decaying()))
    engine = path.engine()
    assert isinstance(engine, Vectorised)
    cuts = [cut for cut in cuts if cut * engine.leaf < devices]
    whole = engine(lanes, who)
    for one, other in zip(in_parts(engine, lanes, who, cuts), whole, strict=True):
        assert same_bits(one, other)
    engine.close()


@pytest.mark.parametrize("name", ["sample space", "row sparse"])
def test_states_of_another_engine_are_added_up_in_leaves_as_well(name: str) -> None:
    """Devices that come from the reference engine remember whole vectors."""
    path = PATHS[name]
    who = many(path, 40)
    whole = {
        device: {"c": torch.sin(device * torch.arange(float(path.model.layout.total))).double()}
        for device in who.devices[::2]
    }
    engine = path.engine()
    assert isinstance(engine, Vectorised)
    lane = path.lane("scaffold", whole)
    (one,), (other,) = in_parts(engine, [lane], who, [1]), engine([lane], who)
    engine.close()
    assert same_bits(one, other)
    reference = path.reference()([lane], who)[0][0]
    torch.testing.assert_close(one[0].delta, reference.delta, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(one[0].extras, reference.extras, rtol=1e-9, atol=1e-9)


def test_only_rows_that_are_touched_are_sent() -> None:
    path = PATHS["sample space"]
    rows = SHARDS[10][:3]
    who = Cohort(1, 1, (10,), [(rows,)], (3,), (7, "test"), [rows])
    engine = path.engine()
    assert isinstance(engine, Vectorised)
    (stretch,) = map(engine.portable, engine.leaves([path.lane("fedavg")], who))
    engine.close()
    words = stretch.sums[0][0].tables[""].words
    assert set(words.tolist()) == set(path.data.x[rows].flatten().tolist()) - {0}


def upload_of(value: float) -> Upload:
    one = torch.tensor([value])
    return Upload(one, one[:0], one[0], torch.ones(()), {"extra": one})


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=14))
def test_leaves_add_up_one_by_one_and_then_in_order(values: list[float]) -> None:
    """In single precision, where another order would give other bits."""
    sent = [upload_of(value) for value in values]
    before = [upload.delta.clone() for upload in sent]
    total = DenseTotal()
    for stretch in leaf_sums([[(each, {})] for each in sent], range(len(sent))):
        assert stretch.lanes == (0,)
        total.add(stretch.sums[0])
    numbers = np.array(values, dtype=np.float32)
    expected = None
    for at in range(0, len(numbers), LEAF):
        leaf = numbers[at]
        for value in numbers[at + 1 : at + LEAF]:
            leaf = np.float32(leaf + value)
        expected = leaf if expected is None else np.float32(expected + leaf)
    assert expected is not None
    assert float(total.upload().delta) == float(expected)
    assert float(total.upload().extras["extra"]) == float(expected)
    assert float(total.upload().devices) == len(values)
    assert all(torch.equal(each.delta, old) for each, old in zip(sent, before, strict=True))


def test_a_leaf_is_the_same_by_the_kernel_as_by_torch() -> None:
    """Up to the rounding of the steps, and with leaves of the same devices."""
    fused, plain = PATHS["fused"], PATHS["mapped"]
    who, lane = many(fused, 11), fused.lane("fedavg")
    (ours,), (theirs,) = (vectorised(path.model, [lane], who) for path in (fused, plain))
    torch.testing.assert_close(ours[0].delta, theirs[0].delta, rtol=1e-5, atol=1e-4)
    cut = replace(plain, build=lambda model, data: Vectorised(model, data, RECIPE, 3, 1))
    engine = cut.engine()
    assert isinstance(engine, Vectorised)
    assert [len(part.states[0]) for part in engine.leaves([lane], who)] == [4, 4, 3]
    engine.close()
