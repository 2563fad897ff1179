"""Request records survive the trip through the blob exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage import columns

FINITE = st.floats(allow_nan=False, allow_infinity=False)
COLUMN_KINDS: list[Any] = [
    FINITE,
    st.integers(-(2**62), 2**62),
    st.none() | FINITE,
    st.none() | st.text(max_size=5),
    st.lists(FINITE, max_size=4),
    st.lists(st.integers(0, 9), max_size=4),
    st.booleans(),
]


def plain(column: Any) -> list[Any]:
    items = column.tolist() if isinstance(column, np.ndarray) else list(column)
    return [item.tolist() if isinstance(item, np.ndarray) else item for item in items]


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(0, 6))
def test_every_kind_of_column_comes_back(data: st.DataObject, count: int) -> None:
    given_ = {
        f"c{i}": data.draw(st.lists(kind, min_size=count, max_size=count))
        for i, kind in enumerate(COLUMN_KINDS)
    }
    stored_count, blob = columns.encode(given_)
    assert stored_count == count
    loaded = columns.decode(columns.CODEC, blob)
    assert {name: plain(column) for name, column in loaded.items()} == given_


def test_arrays_keep_their_type() -> None:
    loaded = columns.decode(columns.CODEC, columns.encode({"n": np.arange(3, dtype="<i4")})[1])
    assert isinstance(loaded["n"], np.ndarray)
    assert loaded["n"].dtype == np.dtype("<i4")


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="'b' has 1"):
        columns.encode({"a": [1, 2], "b": [1]})


def test_an_unknown_or_damaged_blob_is_named() -> None:
    with pytest.raises(ValueError, match="unknown format"):
        columns.decode("columns-lz9", b"")
    with pytest.raises(ValueError, match="damaged"):
        columns.decode(columns.CODEC, b"nonsense")


def test_a_thousand_requests_are_small() -> None:
    """Chunk times of 1,000 requests of 64 chunks: well under the 512 KB of raw doubles."""
    rng = np.random.default_rng(1)
    sent = np.cumsum(rng.exponential(0.1, 1000))
    chunks = [list(t + 0.2 + np.cumsum(rng.gamma(4, 0.005, 64))) for t in sent]
    _, blob = columns.encode({"sent_s": sent, "chunk_times_s": chunks})
    assert len(blob) < 450_000
