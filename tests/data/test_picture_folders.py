"""Folders of pictures: the layouts, what is told, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ebbflow.core.errors import EbbflowError
from ebbflow.core.inputs import prepared
from ebbflow.data.datasets import load
from ebbflow.data.own.choices import Choices
from tests.data.own import assert_one_sentence, assert_owned, picture


def folder(root: Path, *names: str, **form: object) -> Path:
    """Write a picture of its own under every name."""
    for seed, name in enumerate(names):
        picture(root / name, seed=seed, **form)  # type: ignore[arg-type]
    return root


BY_CLASS = [
    f"{split}/{label}/{n}.png"
    for split in ("train", "test")
    for label in ("cat", "dog")
    for n in range(3)
]


def test_train_and_test_by_class(tmp_path: Path) -> None:
    root = folder(tmp_path / "pics", *BY_CLASS)
    data = load(str(root))
    assert (data.name, data.classes, data.labels, data.devices) == ("pics", 2, ("cat", "dog"), ())
    assert data.train.x.dtype == torch.uint8
    assert tuple(data.train.x.shape) == (6, 3, 6, 5)
    assert data.train.y.tolist() == [0, 1, 0, 1, 0, 1]  # the classes take turns
    with Image.open(root / "train/cat/0.png") as first:
        assert np.array_equal(data.train.x[0].numpy().transpose(1, 2, 0), np.asarray(first))
    ready = prepared(data.train.x, data.train.pixels)
    assert ready.mean((0, 2, 3)).abs().max() < 1e-5
    assert (ready.std((0, 2, 3), correction=0) - 1).abs().max() < 1e-4
    assert data.test.pixels == data.train.pixels
    assert any("normalised" in note for note in data.notes)


def test_devices_with_classes_of_their_own(tmp_path: Path) -> None:
    names = [f"phone {d}/{c}/{n}.jpg" for d in (2, 10) for c in (3, 7) for n in range(4)]
    root = folder(tmp_path / "pics", *names, mode="L")
    (root / "phone 2" / "3" / "notes.txt").write_text("not a picture")
    (root / ".DS_Store").write_text("hidden")
    data = load(str(root), choices=Choices(test_split=0.25))
    assert_owned(data)
    assert (data.devices, data.labels) == (("phone 2", "phone 10"), ("3", "7"))
    assert tuple(data.train.x.shape[1:]) == (1, 6, 5)
    assert (len(data.train), len(data.test)) == (12, 4)
    assert any("no pictures are left out" in note and "notes.txt" in note for note in data.notes)
    with pytest.raises(EbbflowError, match=r"data\.test_split"):
        load(str(root))


def test_devices_in_train_and_test(tmp_path: Path) -> None:
    names = [f"train/a/{c}/0.png" for c in (0, 1)] + [f"train/b/{c}/0.png" for c in (0, 1)]
    root = folder(tmp_path / "pics", *names, "test/b/1/0.png", "test/c/0/0.png")
    data = load(str(root))
    assert_owned(data)
    assert (data.devices, data.labels) == (("a", "b", "c"), ())
    assert data.test.device is not None
    assert sorted(data.test.device.tolist()) == [1, 2]


def test_classes_alone(tmp_path: Path) -> None:
    names = [f"{c}/{n}.png" for c in ("x", "y") for n in range(4)]
    data = load(str(folder(tmp_path / "pics", *names)), choices=Choices(test_split=0.5))
    assert (len(data.train), len(data.test), data.train.device) == (4, 4, None)


def test_a_size_resizes_and_tells(tmp_path: Path) -> None:
    root = folder(tmp_path / "pics", *BY_CLASS)
    picture(root / "train/cat/9.png", size=(12, 10))
    data = load(str(root), choices=Choices(size=(6, 5)))
    assert tuple(data.train.x.shape[1:]) == (3, 6, 5)
    assert any("1 of 13 pictures" in note and "6x5" in note for note in data.notes)
    assert tuple(load(str(root), choices=Choices(size=(8, 9))).test.x.shape[1:]) == (3, 8, 9)


def test_a_palette_and_single_bits_lose_nothing(tmp_path: Path) -> None:
    root = folder(tmp_path / "pics", *BY_CLASS)
    with Image.open(root / "train/cat/0.png") as image:
        colours = image.convert("RGB")
        image.quantize(256).save(root / "train/cat/0.png")
    data = load(str(root))
    assert any("1 of 12 pictures" in note and "palette" in note for note in data.notes)
    near = data.train.x[0].numpy().transpose(1, 2, 0).astype(int) - np.asarray(colours)
    assert np.abs(near).max() < 64


Spoil = Callable[[Path], object]


def saved(name: str, mode: str, size: tuple[int, int] = (5, 6)) -> Spoil:
    return lambda root: Image.new(mode, size).save(root / name)


REFUSED: dict[str, tuple[Spoil, Choices, list[str]]] = {
    "another size": (
        lambda root: picture(root / "train/cat/9.png", size=(7, 5)),
        Choices(),
        ["9.png has 7x5", "0.png, have 6x5", "data.size = [6, 5]"],
    ),
    "another size in the test set": (
        lambda root: picture(root / "test/dog/9.png", size=(7, 5)),
        Choices(),
        ["test/dog/9.png", "7x5", "data.size"],
    ),
    "grey among coloured": (
        lambda root: picture(root / "train/dog/9.png", mode="L"),
        Choices(),
        ["9.png is grey", "0.png, are coloured", "grey or all coloured"],
    ),
    "transparent": (
        saved("train/cat/0.png", "RGBA"),
        Choices(),
        ["0.png has transparent parts", "RGB"],
    ),
    "sixteen bits": (saved("train/cat/0.png", "I;16"), Choices(), ["0.png", "8 bits"]),
    "no picture": (
        lambda root: (root / "train/cat/1.png").write_text("text"),
        Choices(),
        ["1.png cannot be read", "write it again"],
    ),
    "cut short": (
        lambda root: (root / "train/cat/1.png").write_bytes(
            (root / "train/cat/1.png").read_bytes()[:60]
        ),
        Choices(),
        ["1.png cannot be read"],
    ),
    "an empty class": (
        lambda root: (root / "train/eel").mkdir(),
        Choices(),
        ["eel holds no pictures", "remove the folder"],
    ),
    "a class that is only tested": (
        lambda root: picture(root / "test/eel/0.png"),
        Choices(),
        ["'eel'", "no device can learn"],
    ),
    "pictures beside folders": (
        lambda root: picture(root / "train/cat/inner/0.png"),
        Choices(),
        ["holds both pictures", "0.png", "inner"],
    ),
    "devices in one split only": (
        lambda root: picture(root / "train/phone/cat/0.png"),
        Choices(),
        ["folder for its class", "as deep"],
    ),
    "a share where there is a test set": (
        lambda root: root,
        Choices(test_split=0.5),
        ["data.test_split = 0.5", "leave it out"],
    ),
    "a label for pictures": (
        lambda root: root,
        Choices(label="x"),
        ['data.label = "x"', "no use with the folder"],
    ),
}


@pytest.mark.parametrize(("spoil", "choices", "says"), REFUSED.values(), ids=list(REFUSED))
def test_folders_that_are_refused(
    tmp_path: Path, spoil: Spoil, choices: Choices, says: list[str]
) -> None:
    root = folder(tmp_path / "pics", *BY_CLASS)
    spoil(root)
    with pytest.raises(EbbflowError) as error:
        load(str(root), choices=choices)
    assert_one_sentence(str(error.value))
    for words in says:
        assert words in str(error.value), str(error.value)


def test_train_without_test_and_a_folder_of_nothing(tmp_path: Path) -> None:
    root = folder(tmp_path / "pics", "train/cat/0.png")
    with pytest.raises(EbbflowError, match="has train and not test: let it have both"):
        load(str(root))
    (tmp_path / "empty").mkdir()
    with pytest.raises(EbbflowError, match="empty holds no folders with pictures"):
        load(str(tmp_path / "empty"))


def test_a_picture_that_unpacks_without_end_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = folder(tmp_path / "pics", *BY_CLASS)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    with pytest.raises(EbbflowError, match=r"0\.png has more pixels than any picture"):
        load(str(root))
