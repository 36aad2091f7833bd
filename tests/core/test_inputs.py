"""Crops, mirrors and normalising against a loop over images."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from ebbflow.core.inputs import augmented, draw_crops, prepared
from ebbflow.core.types import Pixels


def images(count: int, channels: int = 3, height: int = 5, width: int = 7) -> Tensor:
    draw = torch.Generator().manual_seed(2)
    return torch.randint(256, (count, channels, height, width), generator=draw, dtype=torch.uint8)


def naive(image: Tensor, down: int, right: int, mirrored: int, crop: int) -> Tensor:
    channels, height, width = image.shape
    found = torch.zeros_like(image)
    for c in range(channels):
        for row in range(height):
            for column in range(width):
                y = row + down - crop
                across = width - 1 - column if mirrored else column
                x = across + right - crop
                if 0 <= y < height and 0 <= x < width:
                    found[c, row, column] = image[c, y, x]
    return found


@pytest.mark.parametrize("crop", [0, 1, 4])
@pytest.mark.parametrize("channels", [1, 3])
def test_augmented_is_what_a_loop_over_images_gives(crop: int, channels: int) -> None:
    pixels = Pixels((0.0,) * channels, (1.0,) * channels, crop, flip=True)
    x = images(20, channels)
    crops = torch.from_numpy(draw_crops(np.random.default_rng(3), 20, pixels))
    found = augmented(x, crops, pixels)
    assert found.dtype == torch.uint8
    for image, (down, right, mirrored), ours in zip(x, crops.tolist(), found, strict=True):
        assert torch.equal(ours, naive(image, down, right, mirrored, crop))


def test_no_shift_and_no_mirror_give_the_image_back() -> None:
    pixels = Pixels((0.0,), (1.0,), crop=2, flip=True)
    x = images(4, 1)
    assert torch.equal(augmented(x, torch.tensor([[2, 2, 0]] * 4), pixels), x)


@pytest.mark.parametrize("flip", [False, True])
def test_every_window_and_mirror_is_drawn_equally_often(flip: bool) -> None:
    pixels = Pixels((0.0,), (1.0,), crop=1, flip=flip)
    drawn = draw_crops(np.random.default_rng(0), 18000, pixels)
    assert drawn.shape == (18000, 3)
    kinds, counts = np.unique(drawn, axis=0, return_counts=True)
    expected = 18 if flip else 9
    assert len(kinds) == expected
    assert set(kinds[:, :2].ravel().tolist()) == {0, 1, 2}
    assert np.abs(counts * expected / 18000 - 1).max() < 0.15


def test_a_longer_draw_begins_like_a_shorter_one() -> None:
    pixels = Pixels((0.0,), (1.0,), crop=4, flip=True)
    short, long = (draw_crops(np.random.default_rng(5), rows, pixels) for rows in (3, 9))
    assert long[:3].tolist() == short.tolist()


def test_pixels_are_normalised_per_channel() -> None:
    pixels = Pixels((0.1, 0.2, 0.3), (0.5, 0.6, 0.7))
    x = images(3)
    found = prepared(x, pixels)
    for c in range(3):
        expected = (x[:, c].float() / 255 - pixels.mean[c]) / pixels.std[c]
        torch.testing.assert_close(found[:, c], expected)
    assert found.dtype == torch.float32


def test_all_else_is_ready_as_it_is() -> None:
    for x in (torch.randn(3, 2), torch.arange(4)):
        assert prepared(x, None) is x
