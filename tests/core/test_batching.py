"""Mini-batches: the same draws for the same names whoever asks, and padding without effect."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ebbflow.algorithms import ALGORITHMS
from ebbflow.core import batching as feed_module
from ebbflow.core.algorithm import Algorithm
from ebbflow.core.batching import Feed, first
from ebbflow.core.errors import EbbflowError
from ebbflow.core.inputs import augmented, draw_crops, prepared
from ebbflow.core.local import Cohort, Recipe, Trained
from ebbflow.core.rng import generator
from ebbflow.core.types import Examples, Model, Pixels
from ebbflow.engines import Sequential, Vectorised
from ebbflow.models import from_module, softmax
from tests.engines.rounds import assert_agree, lane, same_bits

SHAPE, CLASSES, UNITS = (3, 6, 6), 4, 5
PIXELS = Pixels((0.5, 0.4, 0.3), (0.2, 0.3, 0.4), crop=2, flip=True)
LIKE = torch.zeros(1)


def photographs(pixels: Pixels | None = PIXELS) -> Examples:
    draw = torch.Generator().manual_seed(6)
    x = torch.randint(256, (90, *SHAPE), generator=draw, dtype=torch.uint8)
    return Examples(x, torch.randint(CLASSES, (90,), generator=draw), pixels)


class Dropping(nn.Module):
    """A perceptron whose hidden units are dropped by draws that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(108, UNITS)
        self.head = nn.Linear(UNITS, CLASSES)

    def forward(self, x: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        features = self.hidden(x.flatten(1)).tanh()
        kept = features if noise is None else features * (noise >= 0.5) * 2
        return self.head(kept), features


def dropping() -> Model:
    return from_module(Dropping, "dropping", noise=(UNITS,))


def cohort(session: int = 3, t: int = 2, names: tuple[int | str, ...] = (7, "local")) -> Cohort:
    draw = np.random.default_rng(1)
    steps = [(20, 7), (5, 5), (1,), (20, 20), (16, 2), (3,), (20, 7), (4, 4)]
    batches = tuple(tuple(draw.integers(0, 90, size=n) for n in sizes) for sizes in steps)
    samples = tuple(sum(sizes) for sizes in steps)
    return Cohort(session, t, tuple(range(40, 48)), batches, samples, names)


def test_a_batch_is_gathered_cropped_and_normalised() -> None:
    who, data = cohort(), photographs()
    actual = first(Feed(data, dropping()).batch(who, [3], 1, 20, LIKE))
    rows = torch.from_numpy(who.batches[3][1])
    draw = generator(7, "local", "inputs", 3, 2, 43, 1)
    crops = torch.from_numpy(draw_crops(draw, 20, PIXELS))
    assert torch.equal(actual.x, prepared(augmented(data.x[rows], crops, PIXELS), PIXELS))
    assert torch.equal(actual.y, data.y[rows])
    assert actual.noise is not None
    noise = draw.random((20, UNITS), dtype=np.float32)
    assert torch.equal(actual.noise, torch.from_numpy(noise))


def test_noise_has_a_row_for_every_sample_and_lies_between_zero_and_one() -> None:
    actual = Feed(photographs(), dropping()).batch(cohort(), [0, 3, 6], 0, 32, LIKE)
    assert actual.noise is not None
    assert actual.noise.shape == (3, 32, UNITS)
    assert actual.noise.dtype == torch.float32
    real = actual.noise[:, :20]
    assert 0 <= float(real.min()) < 0.1 < 0.9 < float(real.max()) < 1
    assert not actual.noise[:, 20:].any()
    assert len(set(real.flatten().tolist())) > 0.99 * real.numel()


def test_a_model_without_random_layers_gets_no_noise() -> None:
    assert (
        Feed(photographs(), softmax(SHAPE, CLASSES)).batch(cohort(), [0], 0, 20, LIKE).noise is None
    )


@pytest.mark.parametrize(("crop", "flip"), [(2, False), (0, True), (0, False)])
def test_images_are_cropped_and_mirrored_only_if_asked_for(crop: int, flip: bool) -> None:
    who, data = cohort(), photographs(PIXELS._replace(crop=crop, flip=flip))
    actual = first(Feed(data, softmax(SHAPE, CLASSES)).batch(who, [0], 0, 20, LIKE))
    plain = prepared(data.x[torch.from_numpy(who.batches[0][0])], PIXELS)
    assert torch.equal(actual.x, plain) == (crop == 0 and not flip)


def test_the_company_of_other_devices_and_padding_change_no_draw() -> None:
    feed, who = Feed(photographs(), dropping()), cohort()
    together = feed.batch(who, [1, 0, 7, 5], 0, 32, LIKE)
    for i, place in enumerate([1, 0, 7, 5]):
        count = len(who.batches[place][0])
        alone = first(feed.batch(who, [place], 0, count, LIKE))
        assert torch.equal(together.x[i, :count], alone.x)
        assert torch.equal(together.y[i, :count], alone.y)
        assert torch.equal(together.weights[i, :count], alone.weights)
        assert together.noise is not None
        assert alone.noise is not None
        assert torch.equal(together.noise[i, :count], alone.noise)
        assert not together.weights[i, count:].any()


@pytest.mark.parametrize(
    "other",
    [
        cohort(session=4),
        cohort(t=3),
        cohort(names=(8, "local")),
        cohort(names=(7, "probe")),
        cohort()._replace(devices=tuple(range(50, 58))),
    ],
    ids=["session", "round", "seed", "purpose", "device"],
)
def test_another_name_gives_other_draws(other: Cohort) -> None:
    feed = Feed(photographs(), dropping())
    here, there = (feed.batch(who, [3], 0, 20, LIKE) for who in (cohort(), other))
    assert here.noise is not None
    assert there.noise is not None
    assert not torch.equal(here.noise, there.noise)
    assert not torch.equal(here.x, there.x)


def test_another_step_gives_other_draws() -> None:
    feed, who = Feed(photographs(), dropping()), cohort()
    same = who._replace(batches=tuple((steps[0],) * 2 for steps in who.batches))
    one, two = (feed.batch(same, [3], step, 20, LIKE) for step in (0, 1))
    assert torch.equal(one.y, two.y)
    assert not torch.equal(one.x, two.x)


# --- what engines make of it ---------------------------------------------------------------------


def fast(model: Model, algorithm: Algorithm, block: int | None, workers: int) -> Trained:
    engine = Vectorised(model, photographs(), Recipe(0.9), block, workers)
    try:
        return engine([lane(model, algorithm)], cohort())[0]
    finally:
        engine.close()


@pytest.mark.parametrize("name", ["fedavg", "moon", "scaffold"])
def test_neither_block_nor_workers_show_in_crops_and_noise(name: str) -> None:
    model, algorithm = dropping(), ALGORITHMS[name]()
    whole = fast(model, algorithm, None, 1)
    for block, workers in ((1, 2), (2, 1), (3, 2), (8, 3)):
        assert same_bits(fast(model, algorithm, block, workers), whole)
    at = lane(model, algorithm)
    assert_agree(whole, Sequential(model, photographs(), Recipe(0.9))([at], cohort())[0], at)


def test_noise_has_an_effect_and_anchors_are_without() -> None:
    model = dropping()
    quiet = replace(model, noise=None)
    assert not same_bits(
        fast(model, ALGORITHMS["fedavg"](), None, 1), fast(quiet, ALGORITHMS["fedavg"](), None, 1)
    )


def test_padded_rows_have_no_influence() -> None:
    """Whatever stands in the row that fills up: only its weight of zero counts."""
    model, data, who = dropping(), photographs(), cohort()
    feed = Feed(data, model)
    short = first(feed.batch(who, [5], 0, 3, LIKE))
    long = first(feed.batch(who, [5], 0, 16, LIKE))
    assert long.weights.tolist() == [float(np.float32(1 / 3))] * 3 + [0.0] * 13
    engine = Sequential(model, data, Recipe(0.9))
    at = lane(model, ALGORITHMS["fedavg"]())
    alone = who._replace(
        devices=who.devices[5:6], batches=who.batches[5:6], samples=who.samples[5:6]
    )
    exact = engine([at], alone)[0]
    padded = Vectorised(model, data, Recipe(0.9), workers=1)
    assert_agree(padded([at], alone)[0], exact, at, within=1e-6)
    padded.close()
    assert torch.equal(long.x[:3], short.x)


# --- random layers of the user's own -------------------------------------------------------------


def with_dropout(convolves: bool = False) -> Model:
    first_layers: list[nn.Module] = [nn.Conv2d(3, 3, 1)] if convolves else []
    return from_module(
        lambda: nn.Sequential(
            *first_layers,
            nn.Flatten(),
            nn.Linear(108, 8),
            nn.ReLU(),
            nn.AlphaDropout(0.5),
            nn.Linear(8, CLASSES),
        ),
        "own-dropout",
    )


@pytest.mark.parametrize("convolves", [False, True])
def test_the_fast_engine_refuses_random_layers_in_a_sentence(convolves: bool) -> None:
    with pytest.raises(EbbflowError) as caught:
        Vectorised(with_dropout(convolves), photographs(), Recipe(0.9))
    text = str(caught.value)
    assert text.startswith("the model own-dropout has random layers of its own")
    assert 'engine.kind = "sequential"' in text
    assert "\n" not in text


def slow(seed: int, who: Cohort) -> Trained:
    torch.manual_seed(seed)
    model = with_dropout()
    return Sequential(model, photographs(), Recipe(0.9))(
        [lane(model, ALGORITHMS["fedavg"]())], who
    )[0]


def test_random_layers_draw_by_name_on_the_reference_engine() -> None:
    who = cohort()
    once = slow(1, who)
    assert same_bits(slow(2, who), once)
    assert not same_bits(slow(1, who._replace(round=9)), once)
    assert not same_bits(slow(1, who._replace(names=(8, "local"))), once)
    # Each device draws for itself: its neighbours do not show.
    whole = slow(1, who)[0].delta
    parts = [
        slow(
            3,
            who._replace(
                devices=who.devices[k : k + 1],
                batches=who.batches[k : k + 1],
                samples=who.samples[k : k + 1],
            ),
        )[0].delta
        for k in range(8)
    ]
    torch.testing.assert_close(torch.stack(parts).sum(0), whole)


def test_random_layers_leave_torchs_generator_where_it_was() -> None:
    model = with_dropout()
    engine = Sequential(model, photographs(), Recipe(0.9))
    at = lane(model, ALGORITHMS["moon"]())
    torch.manual_seed(11)
    before = torch.get_rng_state()
    engine([at], cohort())
    assert torch.equal(torch.get_rng_state(), before)


def test_random_layers_do_drop_in_training() -> None:
    model = with_dropout()
    still = replace(
        model.mapped(), forward=lambda t, b, x, noise, train: model.forward(t, b, x, noise, False)
    )
    at = lane(model, ALGORITHMS["fedavg"]())
    dropped, kept = (
        Sequential(m, photographs(), Recipe(0.9))([at], cohort())[0] for m in (model, still)
    )
    assert not torch.equal(dropped[0].delta, kept[0].delta)


class Stealthy(nn.Module):
    """Draws without a layer of `nn.Dropout`, as attention and recurrent layers do."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(108, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        actual: Tensor = self.head(nn.functional.dropout(x.flatten(1), 0.5, self.training))
        return actual


class Attentive(nn.Module):
    """Has dropout as a number of its attention, not as a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, dropout=0.5, batch_first=True)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(1, 2)
        actual: Tensor = self.head(self.attention(rows, rows, rows, need_weights=False)[0].mean(1))
        return actual


@pytest.mark.parametrize("build", [Stealthy, Attentive])
def test_draws_of_any_kind_are_by_name_on_the_reference_engine(build: type[nn.Module]) -> None:
    model = from_module(build, "stealthy")
    engine = Sequential(model, photographs(), Recipe(0.9))
    at = lane(model, ALGORITHMS["fedavg"]())
    ends = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        ends.append(engine([at], cohort())[0])
        assert torch.equal(torch.get_rng_state(), before)
    assert same_bits(*ends)


def test_noise_stays_below_one_in_single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest double below one is one in float32, and the type says [0, 1)."""

    class Highest:
        def integers(self, most: int, size: int) -> object:
            return np.zeros(size, dtype=np.int64)

        def random(self, shape: tuple[int, ...], dtype: type = np.float64) -> object:
            return np.full(shape, np.nextafter(dtype(1), dtype(0)), dtype=dtype)

    monkeypatch.setattr(feed_module, "generator", lambda *names: Highest())
    actual = Feed(photographs(), dropping()).batch(cohort(), [0], 0, 20, LIKE)
    assert actual.noise is not None
    assert float(actual.noise.max()) < 1
