"""The loaders: what they give for good data and what they say about bad data."""

from __future__ import annotations

import gzip
import hashlib
import os
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset, TensorDataset

from ebbflow.core.errors import EbbflowError
from ebbflow.core.types import Dataset
from ebbflow.data import datasets, download
from ebbflow.data.datasets import from_npz, from_torch, load

Arrays = dict[str, NDArray[Any]]

real_data = pytest.mark.skipif(
    not os.environ.get("EBBFLOW_DATA"),
    reason="EBBFLOW_DATA names no folder with mnist/ and fashion-mnist/",
)


def sha256(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()


def assert_ready(dataset: Dataset) -> None:
    """Check what every data set promises, wherever it comes from."""
    for split in (dataset.train, dataset.test):
        assert split.x.dtype == torch.float32
        assert split.x.is_contiguous()
        assert split.x.isfinite().all()
        assert split.y.dtype == torch.int64
        assert len(split.x) == len(split.y) == len(split) > 0
        assert 0 <= int(split.y.min()) <= int(split.y.max()) < dataset.classes
    assert dataset.train.x.shape[1:] == dataset.test.x.shape[1:]


# --- digits


def test_digits() -> None:
    digits = load("digits")
    assert_ready(digits)
    assert (digits.name, digits.classes) == ("digits", 10)
    assert digits.train.x.shape == (1437, 1, 8, 8)
    assert digits.test.x.shape == (360, 1, 8, 8)
    assert float(digits.train.x.min()) == 0.0
    assert float(digits.train.x.max()) == 1.0
    assert digits.train.y.bincount().tolist() == [135, 147, 143, 147, 140, 140, 157, 143, 134, 151]
    assert digits.test.y.bincount().tolist() == [43, 35, 34, 36, 41, 42, 24, 36, 40, 29]


def test_digits_never_change() -> None:
    digits = load("digits")
    assert [sha256(tensor)[:16] for tensor in (digits.train.x, digits.train.y)] == [
        "17bf2389fafbeab6",
        "af486b260b560b89",
    ]
    assert [sha256(tensor)[:16] for tensor in (digits.test.x, digits.test.y)] == [
        "8b7ee78f789af560",
        "d0cf24e66b97d26f",
    ]


def test_digits_file_is_the_original_in_its_order() -> None:
    path = Path(datasets.__file__).parent / "files" / "digits.npz"
    with np.load(path, allow_pickle=False) as archive:
        x, y = archive["x"], archive["y"]
    assert (x.shape, x.dtype, y.dtype) == ((1797, 8, 8), np.uint8, np.uint8)
    assert int(x.max()) == 16
    assert y[:10].tolist() == list(range(10))
    assert x[0, 0].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]
    assert np.bincount(y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_digits_splits_do_not_overlap() -> None:
    digits = load("digits")
    both = torch.cat([digits.train.x, digits.test.x]).flatten(1)
    with np.load(Path(datasets.__file__).parent / "files" / "digits.npz") as archive:
        original = archive["x"].reshape(-1, 64) / np.float32(16)
    rows = sorted(map(bytes, both.numpy()))
    assert rows == sorted(map(bytes, original.astype(np.float32)))


# --- names and limits


def test_limits_keep_the_first_samples() -> None:
    whole = load("digits")
    part = load("digits", limit_train=17, limit_test=5)
    assert torch.equal(part.train.x, whole.train.x[:17])
    assert torch.equal(part.test.y, whole.test.y[:5])
    assert part.classes == 10
    assert part.train.x.untyped_storage().nbytes() == 17 * 64 * 4
    assert len(load("digits", limit_train=1437).train) == 1437


@pytest.mark.parametrize("limit", [0, -3, 1438])
def test_limits_out_of_range(limit: int) -> None:
    with pytest.raises(EbbflowError, match=rf"limit_train = {limit} .*1437 samples of 'digits'"):
        load("digits", limit_train=limit)
    with pytest.raises(EbbflowError, match=r"limit_test = 361 .*choose 1 to 360"):
        load("digits", limit_test=361)


@pytest.mark.parametrize(
    ("name", "near"), [("mnits", "mnist"), ("MNIST", "mnist"), ("fashion_mnist", "fashion-mnist")]
)
def test_unknown_name_suggests_the_nearest(name: str, near: str) -> None:
    with pytest.raises(
        EbbflowError, match=f"no data set '{name}' .*did you mean '{near}'"
    ) as error:
        load(name)
    assert "digits, mnist, fmnist, svhn, " in str(error.value)


def test_unknown_name_without_a_near_one() -> None:
    with pytest.raises(EbbflowError, match=r"no data set 'zzz'; choose digits"):
        load("zzz")


# --- MNIST and Fashion-MNIST


@real_data
def test_mnist() -> None:
    mnist = load("mnist")
    assert_ready(mnist)
    assert (mnist.name, mnist.classes) == ("mnist", 10)
    assert mnist.train.x.shape == (60_000, 1, 28, 28)
    assert mnist.test.x.shape == (10_000, 1, 28, 28)
    assert abs(float(mnist.train.x.mean())) < 1e-3
    assert abs(float(mnist.train.x.std()) - 1) < 1e-3
    assert mnist.train.y.bincount().tolist() == [
        *(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
    ]
    assert mnist.test.y.bincount().tolist() == [
        *(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009)
    ]
    assert mnist.train.y[:5].tolist() == [5, 0, 4, 1, 9]


@real_data
def test_fashion_mnist_by_both_names() -> None:
    fashion = load("fashion-mnist", limit_test=100)
    assert_ready(fashion)
    assert fashion.name == "fmnist"
    assert abs(float(fashion.train.x.mean())) < 1e-3
    assert abs(float(fashion.train.x.std()) - 1) < 1e-3
    assert fashion.train.y.bincount().tolist() == [6000] * 10
    assert torch.equal(load("fmnist", limit_test=100).test.x, fashion.test.x)


@real_data
@pytest.mark.parametrize("name", ["mnist", "fmnist"])
def test_real_files_have_the_known_checksums(name: str) -> None:
    assert [check.status for check in download.verify(name)] == ["ok"] * 4


def idx(array: NDArray[np.uint8]) -> bytes:
    header = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, dtype=">u4").tobytes()
    return header + array.tobytes()


@pytest.fixture
def tiny_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a data folder with an MNIST of 6 + 4 images, and leave no other to look in."""
    known = download.SOURCES["mnist"]
    tiny = download.Source(
        **{**{f: getattr(known, f) for f in known.__dataclass_fields__}, "train": 6, "test": 4}
    )
    monkeypatch.setitem(download.SOURCES, "mnist", tiny)
    monkeypatch.delenv("EBBFLOW_DATA", raising=False)
    empty = tmp_path / "cache"
    monkeypatch.setattr("platformdirs.user_cache_path", lambda _name: empty)
    home = tmp_path / "data" / "mnist"
    home.mkdir(parents=True)
    images = np.arange(10 * 784).reshape(10, 28, 28).astype(np.uint8)
    labels = np.arange(10, dtype=np.uint8)
    contents = (images[:6], labels[:6], images[6:], labels[6:])
    for file, content in zip(tiny.files, contents, strict=True):
        (home / file.filename).write_bytes(gzip.compress(idx(content)))
    return home.parent


def test_idx_values_are_normalised(tiny_mnist: Path) -> None:
    mnist = load("mnist", folder=tiny_mnist)
    assert_ready(mnist)
    pixels = np.arange(6 * 784).reshape(6, 1, 28, 28).astype(np.uint8)
    expected = (pixels / 255 - 0.1307) / 0.3081
    np.testing.assert_allclose(mnist.train.x.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert mnist.test.y.tolist() == [6, 7, 8, 9]


def test_folder_environment_and_cache_are_searched_in_order(
    tiny_mnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert download.find("mnist") is None
    cache = tmp_path / "cache" / "data"
    cache.mkdir(parents=True)
    (cache / "mnist").symlink_to(tiny_mnist / "mnist")
    assert download.find("mnist") == cache / "mnist"
    monkeypatch.setenv("EBBFLOW_DATA", str(tiny_mnist))
    assert download.find("mnist") == tiny_mnist / "mnist"
    other = tmp_path / "other"
    other.mkdir()
    assert download.find("mnist", other) == tiny_mnist / "mnist"
    (other / "mnist").symlink_to(tiny_mnist / "mnist")
    assert download.find("mnist", other) == other / "mnist"
    assert len(load("mnist", folder=other).train) == 6


def test_uncompressed_files_are_read(tiny_mnist: Path) -> None:
    before = load("mnist", folder=tiny_mnist)
    for path in list((tiny_mnist / "mnist").iterdir()):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    after = load("mnist", folder=tiny_mnist)
    assert torch.equal(before.train.x, after.train.x)
    assert torch.equal(before.test.y, after.test.y)


def test_missing_files_name_the_remedy(tiny_mnist: Path) -> None:
    (tiny_mnist / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(EbbflowError, match="`ebbflow data get mnist`") as error:
        load("mnist", folder=tiny_mnist)
    assert "EBBFLOW_DATA" in str(error.value)
    assert str(tiny_mnist / "mnist") in str(error.value)


def test_environment_that_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EBBFLOW_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(EbbflowError, match=r"EBBFLOW_DATA is set to .*nowhere.* not a folder"):
        load("mnist")
    with pytest.raises(EbbflowError, match="is not a folder; create it"):
        load("mnist", folder=tmp_path / "neither")
    assert len(load("digits").train) == 1437


def truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flipped(content: bytes) -> bytes:
    # The stored checksum, eight bytes from the end, no longer fits.
    return content[:-8] + bytes([content[-8] ^ 1]) + content[-7:]


def shorter(content: bytes) -> bytes:
    return gzip.compress(gzip.decompress(content)[:-1])


def other_magic(content: bytes) -> bytes:
    return gzip.compress(b"\0\0\x08\x02" + gzip.decompress(content)[4:])


def not_gzip(_content: bytes) -> bytes:
    return b"<html>Not here</html>"


def nothing(_content: bytes) -> bytes:
    return b""


def great_label(content: bytes) -> bytes:
    return gzip.compress(gzip.decompress(content)[:-1] + b"\x0b")


@pytest.mark.parametrize(
    ("damage", "filename", "message"),
    [
        (truncated, "train-images-idx3-ubyte.gz", "is damaged"),
        (flipped, "train-images-idx3-ubyte.gz", "is damaged"),
        (shorter, "t10k-images-idx3-ubyte.gz", r"does not hold an array of shape \(4, 28, 28\)"),
        (other_magic, "train-labels-idx1-ubyte.gz", "begins with 00000802, not 00000801"),
        (not_gzip, "t10k-labels-idx1-ubyte.gz", "is not an idx file"),
        (nothing, "t10k-labels-idx1-ubyte.gz", "begins with nothing"),
        (great_label, "t10k-labels-idx1-ubyte.gz", "holds the label 11 where 9 is the greatest"),
    ],
)
def test_damaged_files(
    tiny_mnist: Path, damage: Callable[[bytes], bytes], filename: str, message: str
) -> None:
    path = tiny_mnist / "mnist" / filename
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(EbbflowError, match=message) as error:
        load("mnist", folder=tiny_mnist)
    assert str(path) in str(error.value)
    assert "`ebbflow data verify mnist`" in str(error.value)
    assert "`ebbflow data get mnist`" in str(error.value)


def test_a_file_that_unpacks_without_end_is_not_unpacked(tiny_mnist: Path) -> None:
    path = tiny_mnist / "mnist" / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(path.read_bytes() + 16 * gzip.compress(bytes(2**22)))
    tracemalloc.start()
    try:
        with pytest.raises(EbbflowError, match=r"does not hold an array of shape \(4,\)"):
            load("mnist", folder=tiny_mnist)
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


# --- .npz files


def good_arrays() -> Arrays:
    return {
        "x_train": np.linspace(-1, 1, 24, dtype=np.float64).reshape(6, 4),
        "y_train": np.array([0, 1, 2, 0, 1, 2]),
        "x_test": np.zeros((2, 4)),
        "y_test": np.array([0, 3], dtype=np.uint8),
    }


def saved(folder: Path, **changes: Any) -> Path:
    path = folder / "mine.npz"
    np.savez(path, **{**good_arrays(), **changes})
    return path


def test_npz(tmp_path: Path) -> None:
    mine = load(str(saved(tmp_path)), limit_train=3)
    assert_ready(mine)
    assert (mine.name, mine.classes, len(mine.train)) == ("mine", 4, 3)
    np.testing.assert_array_equal(
        from_npz(saved(tmp_path)).train.x.numpy(), good_arrays()["x_train"].astype(np.float32)
    )


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((5, 6), np.uint8, (5, 6)),
        ((5, 6, 7), np.uint8, (5, 1, 6, 7)),
        ((5, 6, 7, 1), np.uint8, (5, 1, 6, 7)),
        ((5, 6, 7, 3), np.uint8, (5, 3, 6, 7)),
        ((5, 3, 6, 7), np.uint8, (5, 3, 6, 7)),
        ((5, 6, 7, 3), np.float32, (5, 6, 7, 3)),
        ((5, 6, 7), np.int16, (5, 6, 7)),
        ((5, 6, 7), np.bool_, (5, 6, 7)),
        ((5, 6, 7), np.dtype(">f8"), (5, 6, 7)),
    ],
)
def test_npz_layouts(
    tmp_path: Path, shape: tuple[int, ...], dtype: Any, expected: tuple[int, ...]
) -> None:
    x = np.random.default_rng(0).integers(0, 256, size=shape).astype(dtype)
    y = np.arange(5)
    mine = from_npz(saved(tmp_path, x_train=x, y_train=y, x_test=x, y_test=y))
    assert_ready(mine)
    assert tuple(mine.train.x.shape) == expected
    scale = 255 if dtype is np.uint8 else 1
    values = np.moveaxis(x, -1, 1) if len(shape) == 4 and expected[1] != shape[1] else x
    np.testing.assert_allclose(
        mine.train.x.numpy(), values.astype(np.float64).reshape(expected) / scale, rtol=1e-6
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_train": np.zeros((5, 4))}, "x_train has 5 samples and y_train has 6"),
        ({"x_test": np.zeros((2, 5))}, r"shape \(4,\) in x_train and \(5,\) in x_test"),
        ({"x_test": np.zeros((0, 4)), "y_test": np.zeros(0, int)}, "x_test is empty"),
        ({"x_train": np.zeros((6, 0)), "x_test": np.zeros((2, 0))}, "x_train is empty"),
        ({"x_train": np.zeros(6)}, r"x_train has shape \(6,\)"),
        ({"x_train": np.float64(3)}, r"x_train has shape \(\)"),
        ({"y_test": np.array([0.0, 1.0])}, "labels y_test are of type float64"),
        ({"y_test": np.array([True, False])}, "labels y_test are of type bool"),
        ({"y_test": np.array(["a", "b"])}, "labels y_test are of type <U1"),
        ({"y_test": np.eye(2, dtype=int)}, r"labels y_test have shape \(2, 2\)"),
        ({"y_test": np.array([0, -2])}, r"y_test holds the negative label -2 \(sample 1\)"),
        ({"y_test": np.array([0, 100_000])}, "greatest label is 100000"),
        ({"y_test": np.array([0, 2**64 - 1], np.uint64)}, f"greatest label is {2**64 - 1}"),
        ({"x_test": np.array([[0, 0, 0, 0], [0, np.nan, 0, 0]])}, r"x_test .*NaN.*sample 1"),
        ({"x_test": np.full((2, 4), -np.inf)}, r"x_test holds .*infinite.*sample 0"),
        ({"x_test": np.full((2, 4), 1e300)}, r"x_test holds .*infinite value in float32"),
        ({"x_train": np.zeros((6, 4), complex)}, "x_train is of type complex128"),
        ({"x_train": np.full((6, 4), "a")}, "x_train is of type <U1"),
        ({"x_train": np.zeros((6, 4), "M8[s]")}, "x_train is of type datetime64"),
        ({"x_train": np.zeros((6, 4), np.uint8)}, "x_train is uint8 and x_test is float64"),
        ({"x_train": np.full((6, 4), None)}, "x_train holds Python objects"),
        ({"y_test": np.array([0, None])}, "y_test holds Python objects"),
    ],
)
def test_npz_with_bad_arrays(tmp_path: Path, changes: Arrays, message: str) -> None:
    path = saved(tmp_path, **changes)
    with pytest.raises(EbbflowError, match=message) as error:
        from_npz(path)
    assert str(error.value).startswith(str(path))
    assert "; " in str(error.value)
    assert "\n" not in str(error.value)


def test_npz_lacks_arrays(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, x_train=np.zeros((1, 1)), x=np.zeros(1))
    with pytest.raises(EbbflowError, match=r"lacks y_train, x_test, y_test \(it has x_train, x\)"):
        from_npz(path)


def test_npz_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(EbbflowError, match=r"mine\.npz does not exist"):
        load(str(tmp_path / "mine.npz"))
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(EbbflowError, match=r"folder\.npz is a folder"):
        load(str(tmp_path / "folder.npz"))


def write_npy(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


def write_member_with_bad_checksum(path: Path) -> None:
    content = bytearray(path.read_bytes())
    # The first value of x_train; members are stored uncompressed.
    content[content.index(np.float64(-1).tobytes())] ^= 1
    path.write_bytes(content)


def write_members(path: Path, content: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for key in good_arrays():
            archive.writestr(f"{key}.npy", content)


def npy_header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda p: p.write_bytes(b""), id="empty"),
        pytest.param(lambda p: p.write_bytes(b"x,y\n1,2\n"), id="text"),
        pytest.param(lambda p: p.write_bytes(b"PK\x03\x04" + bytes(50)), id="fake zip"),
        pytest.param(lambda p: p.write_bytes(truncated(p.read_bytes())), id="truncated"),
        pytest.param(lambda p: p.write_bytes(p.read_bytes()[:-1]), id="one byte short"),
        pytest.param(write_npy, id="single array"),
        pytest.param(write_member_with_bad_checksum, id="bad checksum"),
        pytest.param(lambda p: write_members(p, b"\x93NUMPY\x01\x00 no"), id="bad header"),
        pytest.param(lambda p: write_members(p, b"no array"), id="member is no array"),
        pytest.param(lambda p: write_members(p, npy_header("(" * 90)), id="header without end"),
        pytest.param(
            lambda p: write_members(
                p, npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (10**30,)}")
            ),
            id="header that computes",
        ),
        pytest.param(
            lambda p: write_members(
                p,
                npy_header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': (1{'0' * 30},)}}"),
            ),
            id="more samples than there are numbers",
        ),
    ],
)
def test_npz_that_cannot_be_read(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    path = saved(tmp_path)
    spoil(path)
    with pytest.raises(EbbflowError, match=r"is not a readable \.npz file") as error:
        from_npz(path)
    assert str(error.value).startswith(str(path))
    assert "numpy.savez" in str(error.value)
    assert "pickle" not in str(error.value)


# --- torch data sets


class Items(TorchDataset[Any]):
    def __init__(self, *items: object) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> object:
        return self.items[index]


GOOD = Items(
    (torch.zeros(2), 0), [np.ones(2, np.float32), np.int64(1)], (torch.ones(2), torch.tensor(2))
)


def test_torch_items_are_stacked() -> None:
    custom = from_torch(GOOD, GOOD)
    assert_ready(custom)
    assert (custom.name, custom.classes) == ("custom", 3)
    assert custom.train.x.tolist() == [[0, 0], [1, 1], [1, 1]]
    assert custom.train.y.tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.uint8])
def test_tensor_dataset_gives_what_its_items_give(dtype: torch.dtype) -> None:
    x = torch.arange(24).reshape(6, 1, 2, 2).to(dtype)
    whole = TensorDataset(x, torch.arange(6))
    fast = from_torch(whole, whole, "mine")
    items = Items(*(whole[index] for index in range(6)))
    slow = from_torch(items, items, "mine")
    assert_ready(fast)
    assert torch.equal(fast.train.x, slow.train.x)
    assert torch.equal(fast.test.y, slow.test.y)
    assert float(fast.train.x.max()) == pytest.approx(23 / 255 if dtype == torch.uint8 else 23)


def test_tensor_dataset_is_copied() -> None:
    x = torch.zeros(3, 2)
    whole = TensorDataset(x, torch.zeros(3, dtype=torch.int64))
    custom = from_torch(whole, whole)
    x.fill_(7)
    assert float(custom.train.x.abs().sum()) == 0


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([(torch.zeros(2), 0)])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (Items((torch.zeros(2), 0), torch.zeros(2)), "Item 1 of the test data is a Tensor;"),
        (Items((torch.zeros(2), 0, 1)), "Item 0 of the test data is a tuple of 3"),
        (Items((torch.zeros(2), 0.5)), "the labels y of test are of type float64"),
        (Items((torch.zeros(2), True)), "has a label of type bool"),
        (Items((torch.zeros(2), torch.zeros(2))), "the labels y of test are of type float32"),
        (Items(("image", 0)), "Item 0 of the test data has an input of type str"),
        (
            Items((torch.zeros(2), 0), (torch.zeros(3), 0)),
            r"Item 1 of the test data is float32 of shape \(3,\) and item 0 is float32 of",
        ),
        (
            Items((torch.zeros(2), 0), (torch.zeros(2, dtype=torch.uint8), 0)),
            "Item 1 of the test data is uint8",
        ),
        (Items((torch.zeros(3), 0)), r"\(2,\) in x of train and \(3,\) in x of test"),
        (Items((torch.zeros(2), -1)), "y of test holds the negative label -1"),
        (Items((torch.full((2,), torch.nan), 1)), r"x of test holds a NaN .*sample 0"),
        (Items(), "x of test is empty"),
        (Stream(), "test data of type Stream have no length"),
        (TensorDataset(torch.zeros(2, 2), torch.zeros(2)), "labels y of test are of type float32"),
        (TensorDataset(torch.zeros(2, 2)), "Item 0 of the test data is a tuple of 1"),
    ],
)
def test_torch_data_that_is_refused(bad: TorchDataset[Any], message: str) -> None:
    with pytest.raises(EbbflowError, match=message):
        from_torch(GOOD, bad)
