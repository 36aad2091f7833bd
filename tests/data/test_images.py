"""Coloured images: small files in the canonical formats, and the subsets of the real ones."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.io import savemat

from ebbflow.core.errors import EbbflowError
from ebbflow.core.inputs import prepared
from ebbflow.core.types import Dataset, Pixels
from ebbflow.data import download
from ebbflow.data.datasets import load
from tests.data.server import get, seclude

Array = NDArray[np.uint8]

TRAIN, TEST = 20, 5


@pytest.fixture(autouse=True)
def secluded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "real" not in request.fixturenames:
        seclude(monkeypatch, request.getfixturevalue("tmp_path") / "cache")


def pictures(count: int, seed: int, side: int = 32) -> Array:
    """Draw images as people look at them, ``[N, H, W, C]``."""
    drawn = np.random.default_rng(seed).integers(0, 256, (count, side, side, 3))
    return drawn.astype(np.uint8)


def assert_images(dataset: Dataset, x_train: Array, x_test: Array) -> None:
    """Check that images come out as they went in, as bytes, and are described."""
    for split, x in ((dataset.train, x_train), (dataset.test, x_test)):
        assert split.x.dtype == torch.uint8
        assert split.y.dtype == torch.int64
        assert split.x.is_contiguous()
        np.testing.assert_array_equal(split.x.numpy(), x.transpose(0, 3, 1, 2))


# --- SVHN


def mat(x: Array, y: Array, **more: Any) -> bytes:
    stream = io.BytesIO()
    savemat(stream, {"X": x.transpose(1, 2, 3, 0), "y": y[:, None], **more}, do_compression=True)
    return stream.getvalue()


def small_svhn() -> dict[str, bytes]:
    # The digit 0 has the label 10, as in the real files.
    y = np.arange(1, 11, dtype=np.uint8)
    return {
        "train_32x32.mat": mat(pictures(TRAIN, 1), np.tile(y, 2)),
        "test_32x32.mat": mat(pictures(TEST, 2), y[-TEST:]),
    }


def test_svhn(monkeypatch: pytest.MonkeyPatch) -> None:
    assert small_svhn()["train_32x32.mat"].startswith(b"MATLAB 5.0 MAT-file")
    home = get(monkeypatch, "svhn", small_svhn(), counts=(TRAIN, TEST))
    assert home.name == "svhn"
    svhn = load("svhn")
    assert_images(svhn, pictures(TRAIN, 1), pictures(TEST, 2))
    assert svhn.train.y.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0] * 2
    assert svhn.test.y.tolist() == [6, 7, 8, 9, 0]
    plain = Pixels((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970))
    assert svhn.train.pixels == svhn.test.pixels == plain


# --- CIFAR


def tar(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def records(x: Array, *labels: Array) -> bytes:
    """Write label bytes, then the red, green and blue plane of every image."""
    planes = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
    return np.concatenate([*(y[:, None] for y in labels), planes], axis=1).tobytes()


def small_cifar10() -> dict[str, bytes]:
    x, y = pictures(TRAIN, 1), np.arange(TRAIN, dtype=np.uint8) % 10
    folder = "cifar-10-batches-bin"
    members = {f"{folder}/batches.meta.txt": b"airplane\n", f"{folder}/readme.html": b"<html>"}
    # Real archives are not sorted either.
    for batch in (4, 1, 5, 2, 3):
        rows = slice(4 * batch - 4, 4 * batch)
        members[f"{folder}/data_batch_{batch}.bin"] = records(x[rows], y[rows])
    members[f"{folder}/test_batch.bin"] = records(pictures(TEST, 2), y[:TEST])
    return {"cifar-10-binary.tar.gz": tar(members)}


def small_cifar100(greatest: int = 99) -> dict[str, bytes]:
    coarse, fine = np.full(TRAIN, 19, np.uint8), np.arange(TRAIN, dtype=np.uint8) + 80
    fine[-1] = greatest
    members = {
        "cifar-100-binary/train.bin": records(pictures(TRAIN, 1), coarse, fine),
        "cifar-100-binary/test.bin": records(pictures(TEST, 2), coarse[:TEST], fine[:TEST]),
    }
    return {"cifar-100-binary.tar.gz": tar(members)}


def test_cifar10(monkeypatch: pytest.MonkeyPatch) -> None:
    assert get(monkeypatch, "cifar10", small_cifar10(), counts=(TRAIN, TEST)).name == "cifar-10"
    cifar = load("cifar10")
    assert_images(cifar, pictures(TRAIN, 1), pictures(TEST, 2))
    assert cifar.train.y.tolist() == list(range(10)) * 2
    assert cifar.test.y.tolist() == [0, 1, 2, 3, 4]
    mean, std = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
    assert cifar.train.pixels == Pixels(mean, std, crop=4, flip=True)
    assert cifar.test.pixels == Pixels(mean, std)
    expected = (pictures(TEST, 2)[3, 7, 11] / 255 - mean) / std
    found = prepared(cifar.test.x, cifar.test.pixels)[3, :, 7, 11]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_cifar100_has_fine_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    assert get(monkeypatch, "cifar100", small_cifar100(), counts=(TRAIN, TEST)).name == "cifar-100"
    cifar = load("cifar100", limit_train=3)
    assert_images(cifar, pictures(TRAIN, 1)[:3], pictures(TEST, 2))
    assert (cifar.train.y.tolist(), cifar.classes) == ([80, 81, 82], 100)
    mean, std = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2761)
    assert cifar.train.pixels == Pixels(mean, std, crop=4, flip=True)
    assert cifar.test.pixels == Pixels(mean, std)


# --- Tiny ImageNet

WNIDS = ("n03000000", "n01000000", "n02000000")
"""Not sorted: labels are 2, 0, 1."""


def jpeg(colour: int, mode: str = "RGB", side: int = 64) -> bytes:
    stream = io.BytesIO()
    fill = colour if mode == "L" else (colour, 255 - colour, 10)
    Image.new(mode, (side, side), fill).save(stream, "JPEG", quality=95)
    return stream.getvalue()


def tiny_members() -> dict[str, bytes]:
    root = "tiny-imagenet-200"
    members = {f"{root}/wnids.txt": "\n".join(WNIDS).encode(), f"{root}/words.txt": b"n0\tfish\n"}
    for at, wnid in enumerate(WNIDS):
        # 2 goes before 10, and one image is grey.
        for i in (10, 0, 2):
            grey = "L" if (at, i) == (1, 0) else "RGB"
            members[f"{root}/train/{wnid}/images/{wnid}_{i}.JPEG"] = jpeg(80 * at + i, grey)
        members[f"{root}/train/{wnid}/{wnid}_boxes.txt"] = b"0\t0\t63\t63\n"
    lines = []
    for i, at in enumerate((0, 0, 1, 2, 1, 2)):
        lines.append(f"val_{i}.JPEG\t{WNIDS[at]}\t0\t0\t63\t63\n")
        members[f"{root}/val/images/val_{i}.JPEG"] = jpeg(40 * i)
    members[f"{root}/val/val_annotations.txt"] = "".join(lines).encode()
    members[f"{root}/test/images/test_0.JPEG"] = b"has no label, is not read"
    return members


def zipped(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def small_tiny() -> dict[str, bytes]:
    return {"tiny-imagenet-200.zip": zipped(tiny_members())}


def test_tinyimagenet(monkeypatch: pytest.MonkeyPatch) -> None:
    home = get(monkeypatch, "tinyimagenet", small_tiny(), counts=(9, 6), classes=3)
    assert home.name == "tiny-imagenet"
    tiny = load("tinyimagenet")
    assert tiny.train.x.shape == (9, 3, 64, 64)
    assert tiny.train.x.dtype == torch.uint8
    # The classes take turns, and within a class the images come by number.
    assert tiny.train.y.tolist() == [0, 1, 2] * 3
    assert tiny.test.y.tolist() == [0, 1, 2] * 2
    red = tiny.train.x[:, 0].float().mean((1, 2)).round().int().tolist()
    expected = [80 * at + i for i in (0, 2, 10) for at in (1, 2, 0)]
    assert np.abs(np.subtract(red, expected)).max() <= 2
    red = tiny.test.x[:, 0].float().mean((1, 2)).round().int().tolist()
    assert np.abs(np.subtract(red, [80, 120, 0, 160, 200, 40])).max() <= 2
    # Grey becomes three equal channels; colours keep theirs.
    assert torch.equal(tiny.train.x[0, 0], tiny.train.x[0, 1])
    assert abs(int(tiny.train.x[1, 1, 5, 5]) - (255 - 160)) <= 2
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    assert tiny.train.pixels == Pixels(mean, std, crop=4, flip=True)
    assert tiny.test.pixels == Pixels(mean, std)


# --- files that are damaged


def half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def page(_content: bytes) -> bytes:
    return b"<html>Not here</html>"


def nothing(_content: bytes) -> bytes:
    return b""


def last_bit(content: bytes) -> bytes:
    # Of gzip's checksum.
    return content[:-8] + bytes([content[-8] ^ 1]) + content[-7:]


def tiny_with(**changes: bytes) -> Callable[[bytes], bytes]:
    """Replace members by the last part of their path, without its ending."""

    def damage(_content: bytes) -> bytes:
        members = tiny_members()
        for ending, content in changes.items():
            name = next(name for name in members if Path(name).stem == ending)
            members[name] = content
        return zipped(members)

    return damage


def tiny_without(name: str) -> Callable[[bytes], bytes]:
    def damage(_content: bytes) -> bytes:
        return zipped({k: v for k, v in tiny_members().items() if not k.endswith(name)})

    return damage


def flipped_in_zip(content: bytes) -> bytes:
    at = content.index(b"n03000000_0.JPEG") + 200
    return content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :]


def svhn_with(x: Array, y: Array) -> Callable[[bytes], bytes]:
    return lambda _content: mat(x, y)


ONES = np.ones(TRAIN, np.uint8)

DAMAGES = [
    ("svhn", half, "is damaged"),
    ("svhn", page, "is damaged"),
    ("svhn", nothing, "is damaged"),
    ("svhn", lambda c: c[:128] + bytes(200), "is damaged"),
    ("svhn", lambda c: c[:124] + b"\x00\x02IM" + c[128:], "is damaged"),
    ("svhn", svhn_with(pictures(TRAIN, 1), ONES[:-1]), "for 19 labels"),
    ("svhn", svhn_with(pictures(TRAIN, 1)[:, :8], ONES), r"shape \(8, 32, 3, 20\)"),
    ("svhn", svhn_with(pictures(TRAIN, 1), ONES * 11), "labels go from 11 to 11, not 1 to 10"),
    ("svhn", svhn_with(pictures(TRAIN, 1), ONES * 0), "labels go from 0 to 0"),
    ("svhn", svhn_with(pictures(2, 1), ONES[:2]), "2 images for training, not 20"),
    ("cifar10", half, "is damaged"),
    ("cifar10", page, "is damaged"),
    ("cifar10", nothing, "is damaged"),
    ("cifar10", last_bit, "is damaged .*CRC"),
    ("cifar10", lambda _: small_cifar100()["cifar-100-binary.tar.gz"], "data_batch_1.bin.* not in"),
    ("cifar10", lambda _: tar({"a/test_batch.bin": b"short"}), "has 5 bytes, not 15365"),
    ("cifar10", lambda _: gzip.compress(b"no tar" * 200), "is damaged"),
    (
        "cifar100",
        lambda _: small_cifar100(100)["cifar-100-binary.tar.gz"],
        "labels from 80 to 100 where 0 to 99 are expected",
    ),
    ("tinyimagenet", half, "is damaged"),
    ("tinyimagenet", page, "is damaged"),
    ("tinyimagenet", nothing, "is damaged"),
    ("tinyimagenet", flipped_in_zip, "is damaged"),
    ("tinyimagenet", tiny_with(n02000000_2=b"GIF89a"), r"at .*n02000000_2\.JPEG \(it is no whole"),
    ("tinyimagenet", tiny_with(val_3=half(jpeg(9))), r"at .*val_3\.JPEG \(it is no whole JPEG"),
    ("tinyimagenet", tiny_with(val_3=jpeg(9, side=32)), r"val_3\.JPEG \(it has 32x32 pixels"),
    ("tinyimagenet", tiny_with(wnids=b"n01000000 n02000000"), "names 2 classes, not 3"),
    ("tinyimagenet", tiny_with(wnids=b"a b c"), "of the class 'n0.000000', which wnids.txt"),
    ("tinyimagenet", tiny_with(wnids=b"\xff\xfe"), "is damaged"),
    ("tinyimagenet", tiny_with(val_annotations=b"val_0.JPEG"), "of the class 'val_0.JPEG'"),
    ("tinyimagenet", tiny_with(val_annotations=b""), "0 images for testing, not 6"),
    ("tinyimagenet", tiny_without("wnids.txt"), "no item named .*wnids.txt"),
    ("tinyimagenet", tiny_without("val_0.JPEG"), "no item named .*val_0.JPEG"),
    ("tinyimagenet", tiny_without("n01000000_2.JPEG"), "8 images for training, not 9"),
]


@pytest.mark.parametrize(("name", "damage", "message"), DAMAGES)
def test_damaged_files(
    monkeypatch: pytest.MonkeyPatch, name: str, damage: Callable[[bytes], bytes], message: str
) -> None:
    small = {
        "svhn": small_svhn,
        "cifar10": small_cifar10,
        "cifar100": small_cifar100,
        "tinyimagenet": small_tiny,
    }[name]()
    tiny = name == "tinyimagenet"
    counts = (9, 6) if tiny else (TRAIN, TEST)
    home = get(monkeypatch, name, small, counts=counts, classes=3 if tiny else None)
    path = home / next(iter(small))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(EbbflowError, match=message) as error:
        load(name)
    assert str(error.value).startswith(str(path))
    assert f"`ebbflow data verify {name}`" in str(error.value)
    assert f"`ebbflow data get {name}`" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["svhn", "cifar10", "cifar100", "tinyimagenet"])
def test_missing_files_name_the_remedy(name: str, tmp_path: Path) -> None:
    folder = download.SOURCES[name].folder
    with pytest.raises(EbbflowError, match=f"`ebbflow data get {name}`, or set EBBFLOW") as error:
        load(name)
    assert str(tmp_path / "cache" / "data" / folder) in str(error.value)
    assert f"a folder that has {folder}/ in it" in str(error.value)


# --- subsets


def save_subset(folder: Path, **changes: Any) -> Path:
    arrays = {
        "x_train": pictures(4, 3),
        "y_train": np.array([3, 1, 2, 0], np.uint8),
        "x_test": pictures(2, 4),
        "y_test": np.array([9, 0], np.uint8),
    }
    path = folder / "cifar10_subset.npz"
    np.savez(path, **(arrays | changes))
    return path


def test_a_subset_serves_until_the_whole_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "cache" / "data"
    root.mkdir(parents=True)
    save_subset(root)
    part = load("cifar10")
    assert_images(part, pictures(4, 3), pictures(2, 4))
    assert (part.name, part.classes, part.test.y.tolist()) == ("cifar10", 10, [9, 0])
    assert part.train.pixels == Pixels(
        (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010), crop=4, flip=True
    )
    assert part.test.pixels == part.train.pixels._replace(crop=0, flip=False)
    assert [check.status for check in download.verify("cifar10")] == ["wrong checksum"]
    get(monkeypatch, "cifar10", small_cifar10(), counts=(TRAIN, TEST))
    assert len(load("cifar10").train) == TRAIN


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_train": pictures(4, 3).astype(np.float32)}, r"x_train is float32"),
        ({"x_train": pictures(3, 3)}, r"shape \(3, 32, 32, 3\), y_train is uint8 of shape \(4,\)"),
        ({"x_test": pictures(2, 3, side=8)}, r"x_test is uint8 of shape \(2, 8, 8, 3\)"),
        ({"y_test": np.array([0.5, 1])}, r"y_test is float64"),
        ({"y_test": np.array([0, 10])}, "labels from 0 to 10 where 0 to 9"),
        ({"y_test": np.array([-1, 1])}, "labels from -1 to 1 where 0 to 9"),
        ({"x_test": pictures(0, 1), "y_test": np.zeros(0, int)}, "0 images for testing, not more"),
    ],
)
def test_a_subset_with_bad_arrays(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = save_subset(tmp_path, **changes)
    with pytest.raises(EbbflowError, match=message) as error:
        load("cifar10", folder=tmp_path)
    assert str(error.value).startswith(str(path))
    assert "`ebbflow data get cifar10`" in str(error.value)


def test_a_subset_that_cannot_be_read(tmp_path: Path) -> None:
    path = save_subset(tmp_path)
    path.write_bytes(half(path.read_bytes()))
    with pytest.raises(EbbflowError, match=r"not a readable \.npz file.*`ebbflow data get cifar10"):
        load("cifar10", folder=tmp_path)


# --- the real subsets


@pytest.fixture
def real(request: pytest.FixtureRequest) -> str:
    """Give the name of a data set of which the subset is here."""
    name = str(request.param)
    root = os.environ.get("EBBFLOW_DATA")
    file = download.SOURCES[name].subset[0].filename
    if not root or not (Path(root) / file).is_file():
        pytest.skip(f"EBBFLOW_DATA names no folder with {file}")
    if (Path(root) / download.SOURCES[name].folder).is_dir():
        pytest.skip(f"EBBFLOW_DATA has the whole {name}")
    return name


SVHN_TRAIN = [684, 1926, 1422, 1138, 1067, 955, 772, 728, 673, 635]
SVHN_TEST = [207, 581, 467, 345, 289, 271, 224, 227, 201, 188]


@pytest.mark.parametrize(
    ("real", "side", "train", "test"),
    [
        ("svhn", 32, SVHN_TRAIN, SVHN_TEST),
        ("cifar10", 32, [500] * 10, [100] * 10),
        ("cifar100", 32, [50] * 100, [10] * 100),
        ("tinyimagenet", 64, [25] * 200, [5] * 200),
    ],
    indirect=["real"],
)
def test_real_subsets(real: str, side: int, train: list[int], test: list[int]) -> None:
    assert [check.status for check in download.verify(real)] == ["ok"]
    dataset = load(real)
    assert (dataset.name, dataset.classes) == (real, len(train))
    assert dataset.train.x.shape == (sum(train), 3, side, side)
    assert dataset.test.x.shape == (sum(test), 3, side, side)
    assert dataset.train.y.bincount().tolist() == train
    assert dataset.test.y.bincount().tolist() == test
    assert dataset.train.x.dtype == torch.uint8
    # Channels are in their places: each is near the mean that it is normalised by.
    assert prepared(dataset.train.x, dataset.train.pixels).mean((0, 2, 3)).abs().max() < 0.06
    limited = load(real, limit_train=200, limit_test=10)
    assert torch.equal(limited.train.x, dataset.train.x[:200])
    assert limited.test.pixels == dataset.test.pixels
    if real == "tinyimagenet":
        assert limited.train.y.tolist() == list(range(200))
