"""What we write as safetensors is read by the library, to the bit."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load, save
from torch import Tensor

from ebbflow.core.files import write_digested
from ebbflow.core.tensor_files import _TYPES, as_safetensors


def tensor(kind: torch.dtype, shape: list[int], seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=draw) * 10).to(kind)


named = st.dictionaries(
    st.text(min_size=1, max_size=8),
    st.builds(
        tensor,
        st.sampled_from(list(_TYPES)),
        st.lists(st.integers(0, 4), max_size=3),
        st.integers(0, 9),
    ),
    max_size=6,
)


@given(named)
def test_the_library_reads_back_what_was_written(tensors: dict[str, Tensor]) -> None:
    found = load(b"".join(as_safetensors(tensors)))
    assert found.keys() == tensors.keys()
    for name, value in tensors.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value)


@given(named)
def test_it_is_as_long_as_the_librarys_own(tensors: dict[str, Tensor]) -> None:
    ours, theirs = b"".join(as_safetensors(tensors)), save(tensors)
    assert sorted(load(ours)) == sorted(load(theirs))
    # Any other character is escaped in ours, DEL too, and not in theirs.
    if all(name.isascii() and "\x7f" not in name for name in tensors):
        assert len(ours) == len(theirs)


def test_shared_and_strided_tensors_are_written_as_they_are() -> None:
    table = torch.arange(12.0).view(3, 4)
    tensors = {
        "a": table,
        "again": table,
        "row": table[1],
        "column": table[:, 2],
        "one": table[2, 3],
    }
    found = load(b"".join(as_safetensors(tensors)))
    assert all(torch.equal(found[name], value) for name, value in tensors.items())


def test_a_file_can_be_mapped_and_its_digest_is_that_of_its_content(tmp_path: Path) -> None:
    tensors = {"flag": torch.tensor([True]), "w": torch.randn(1000), "n": torch.tensor([2**40])}
    path = tmp_path / "tensors.safetensors"
    digest = write_digested(path, as_safetensors(tensors))
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    with safe_open(path, "pt") as file:
        assert torch.equal(file.get_tensor("w"), tensors["w"])


def test_a_type_that_has_no_name_there_is_an_error() -> None:
    with pytest.raises(KeyError):
        list(as_safetensors({"z": torch.zeros(2, dtype=torch.complex64)}))
