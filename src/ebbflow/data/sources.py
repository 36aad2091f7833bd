"""The data sets that ebbflow knows by name: their files, addresses and checksums."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from ebbflow.core.errors import EbbflowError
from ebbflow.data.names import ALIASES


@dataclass(frozen=True)
class RemoteFile:
    """One file of a data set, and its SHA-256.

    The checksum is of the *uncompressed content*: mirrors compress the same file differently, and
    an unpacked file is still the same file. With ``packed`` it is of the file as it is sent,
    because that checksum was published. ``folder`` and ``base_url`` are set only if they differ
    from those of the data set.
    """

    filename: str
    sha256: str
    packed: bool = False
    folder: str | None = None
    base_url: str = ""


@dataclass(frozen=True)
class Source:
    """A data set that ebbflow knows by name.

    ``folder`` is the sub-folder of the data folder that holds ``files``; ``train`` and ``test``
    count their samples. ``subset`` are files with part of the data, which are used if ``files`` are
    missing and are never downloaded. A source without ``base_url`` comes with ebbflow.
    """

    name: str
    title: str
    folder: str
    licence: str
    classes: int
    train: int
    test: int
    files: tuple[RemoteFile, ...]
    base_url: str = ""
    subset: tuple[RemoteFile, ...] = ()

    @property
    def bundled(self) -> bool:
        """Whether the files come with ebbflow."""
        return not self.base_url

    def folder_of(self, file: RemoteFile) -> str:
        """Return the sub-folder of the data folder that holds a file."""
        return self.folder if file.folder is None else file.folder

    @property
    def remedy(self) -> str:
        """The remedy at the end of an error about a damaged file."""
        return (
            f"look at it with `ebbflow data verify {self.name}`, then get it again with "
            f"`ebbflow data get {self.name}`."
        )


def _idx_files(*sha256: str) -> tuple[RemoteFile, ...]:
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    return tuple(RemoteFile(f"{n}-ubyte.gz", h) for n, h in zip(names, sha256, strict=True))


def _in_the_data_folder(filename: str, sha256: str) -> tuple[RemoteFile, ...]:
    return (RemoteFile(filename, sha256, folder=""),)


_VOCABULARY = RemoteFile(
    "vocab.txt",
    "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
    folder="bert-base-uncased",
    base_url="https://huggingface.co/google-bert/bert-base-uncased/resolve/main/",
)

_KNOWN = (
    Source(
        name="digits",
        title="Optical Recognition of Handwritten Digits (8x8)",
        folder="",
        licence="CC BY 4.0",
        classes=10,
        train=1_437,
        test=360,
        files=(
            RemoteFile(
                "digits.npz", "6f801551877abf69fbf3711373bb642a18dc933430a3385cd6febc235225ea6f"
            ),
        ),
    ),
    Source(
        name="mnist",
        title="MNIST handwritten digits (28x28)",
        folder="mnist",
        licence="CC BY-SA 3.0",
        classes=10,
        train=60_000,
        test=10_000,
        files=_idx_files(
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
        base_url="https://ossci-datasets.s3.amazonaws.com/mnist/",
    ),
    Source(
        name="fmnist",
        title="Fashion-MNIST articles of clothing (28x28)",
        folder="fashion-mnist",
        licence="MIT",
        classes=10,
        train=60_000,
        test=10_000,
        files=_idx_files(
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
        base_url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
    Source(
        name="svhn",
        title="Street View House Numbers, cropped digits (32x32)",
        folder="svhn",
        licence="non-commercial",
        classes=10,
        train=73_257,
        test=26_032,
        files=(
            RemoteFile(
                "train_32x32.mat",
                "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            ),
            RemoteFile(
                "test_32x32.mat",
                "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
            ),
        ),
        base_url="http://ufldl.stanford.edu/housenumbers/",
        subset=_in_the_data_folder(
            "svhn_subset.npz",
            "115d7bc15f1e757b0af2b8f5a7fc8ba31c9e3d5e47e0e320cf4d6bb4e38956d9",
        ),
    ),
    Source(
        name="cifar10",
        title="CIFAR-10 photographs (32x32)",
        folder="cifar-10",
        licence="none stated",
        classes=10,
        train=50_000,
        test=10_000,
        files=(
            RemoteFile(
                "cifar-10-binary.tar.gz",
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                packed=True,
            ),
        ),
        base_url="https://www.cs.toronto.edu/~kriz/",
        subset=_in_the_data_folder(
            "cifar10_subset.npz",
            "74da066c86a51b4a37a81e83f5dd1630efd711fb7ff7e9f28f51584fcd70b265",
        ),
    ),
    Source(
        name="cifar100",
        title="CIFAR-100 photographs (32x32)",
        folder="cifar-100",
        licence="none stated",
        classes=100,
        train=50_000,
        test=10_000,
        files=(
            RemoteFile(
                "cifar-100-binary.tar.gz",
                "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
                packed=True,
            ),
        ),
        base_url="https://www.cs.toronto.edu/~kriz/",
        subset=_in_the_data_folder(
            "cifar100_subset.npz",
            "d3c784f9d1af0bd278901c93a1f74a5b49093c0ba7bf803e2b0e58a1dc999f79",
        ),
    ),
    Source(
        name="tinyimagenet",
        title="Tiny ImageNet photographs (64x64)",
        folder="tiny-imagenet",
        licence="non-commercial",
        classes=200,
        train=100_000,
        test=10_000,
        files=(
            RemoteFile(
                "tiny-imagenet-200.zip",
                "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
            ),
        ),
        base_url="http://cs231n.stanford.edu/",
        subset=_in_the_data_folder(
            "tinyimagenet_subset.zip",
            "68a9586410cde4b5a7533509a2f213310a5d2bb9b01d05d847912ac9dfc1850f",
        ),
    ),
    Source(
        name="agnews",
        title="AG's News, topics of news articles",
        folder="ag_news",
        licence="non-commercial",
        classes=4,
        train=120_000,
        test=7_600,
        files=(
            RemoteFile(
                "train.csv", "76a0a2d2f92b286371fe4d4044640910a04a803fdd2538e0f3f29a5c6f6b672e"
            ),
            RemoteFile(
                "test.csv", "521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699"
            ),
            _VOCABULARY,
        ),
        base_url="https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/",
        subset=(
            RemoteFile(
                "train_subset.csv.gz",
                "67a1deb230042e39f2ea6a7b47c53e9d4289e50bcc4c0db4f84c1bd889ed2253",
            ),
            RemoteFile(
                "test.csv.gz", "dfea7929e5b3aa7a91223b97004301f56a88cdb9c8466e874e69a38a33375b1e"
            ),
            _VOCABULARY,
        ),
    ),
)

SOURCES: dict[str, Source] = {known.name: known for known in _KNOWN}
"""Every known data set by name. A source's files are in the order that its reader expects: training
before test, images before labels, the vocabulary last."""


def source(name: str) -> Source:
    """Return the data set called ``name``.

    >>> source("fashion-mnist").name
    'fmnist'
    >>> source("mnits")
    Traceback (most recent call last):
    ebbflow.core.errors.EbbflowError: There is no data set 'mnits' (did you mean 'mnist'?); choose \
digits, mnist, fmnist, svhn, cifar10, cifar100, tinyimagenet or agnews, or give the path of an \
.npz file.
    """
    canonical = ALIASES.get(name, name)
    if canonical in SOURCES:
        return SOURCES[canonical]
    near = difflib.get_close_matches(name.lower(), [*SOURCES, *ALIASES], n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    *first, last = SOURCES
    raise EbbflowError(
        f"There is no data set {name!r}{hint}; choose {', '.join(first)} or {last}, "
        "or give the path of an .npz file."
    )
