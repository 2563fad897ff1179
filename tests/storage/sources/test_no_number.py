"""Servers that export NaN, infinities and numbers out of all bounds: no data, and no fault."""

from __future__ import annotations

import pytest

from storage.sources import RecordedSource
from storage.sources.base import Outcome

ODD = ["NaN", "+Inf", "-Inf", "1e308", "1e400", "9" * 6_000]


def source(value: str, *, before: str = "0") -> RecordedSource:
    """Two scrapes of a counter, a gauge and a histogram, 60 s apart."""

    def text(value: str) -> str:
        return "".join(
            f"{name} {value}\n"
            for name in ("c_total", "g", "h_sum", "h_count", "process_start_time_seconds",
                         'h_bucket{le="1"}', 'h_bucket{le="+Inf"}', 'h_bucket{le="x"}',
                         'h_bucket{le="NaN"}', "h_bucket")
        )  # fmt: skip

    return RecordedSource([(1000.0, text(before)), (1060.0, text(value))])


@pytest.mark.parametrize("value", ODD)
def test_what_nobody_can_have_measured_is_no_value(value: str) -> None:
    for found in (source(value), source(value, before=value)):
        readings = [
            found.gauge("g"), found.rate("c_total", 60.0), found.increase("c_total", 60.0),
            found.mean("h", 60.0), found.quantile("h", 0.95, 60.0),
            *found.breakdown("h_bucket", "le", 60.0).values(),
        ]  # fmt: skip
        for reading in readings[:3]:
            assert reading.outcome is not Outcome.VALUE or reading.value == 0, reading
        assert all(abs(reading.value or 0) <= 1e100 for reading in readings)
        assert all(reading.samples < 10**101 for reading in readings)
        assert abs(found.status().process_start_s or 0) <= 1e100


def test_a_counter_that_is_no_number_is_told() -> None:
    assert source("NaN").rate("c_total", 60.0).reason == "what is exported is no usable number"
