"""Devices that draw their samples from a shared pool."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbflow.data import pool
from ebbflow.data.pool import Pool

LABELS = np.arange(90) % 3


def drawing(samples: int) -> Pool:
    return Pool(7, LABELS, [(0, 1), (2,)], lambda device: device % 2, samples)


@given(st.lists(st.integers(0, 12), max_size=40), st.integers(1, 30), st.integers(0, 8))
def test_rows_that_are_kept_are_those_that_would_be_drawn(
    devices: list[int], samples: int, kept: int
) -> None:
    """In whatever order devices are asked for, and however few are kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "KEPT_BYTES", 8 * samples * kept)
        one = drawing(samples)
        for device in devices:
            rows = one.draw(device)
            np.testing.assert_array_equal(rows, drawing(samples).draw(device))
            assert len(set(rows.tolist())) == samples
            assert (np.diff(rows) > 0).all()
            assert set(LABELS[rows].tolist()) <= ({0, 1} if device % 2 == 0 else {2})
        assert len(one._kept) <= kept
