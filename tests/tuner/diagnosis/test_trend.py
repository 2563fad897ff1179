"""What a series of samples does over a window."""

from __future__ import annotations

import pytest

from tuner.diagnosis.trend import growing_s


@pytest.mark.parametrize(
    ("every_s", "queue", "grown_s"),
    [
        (10.0, [0.0, 1.0, 2.0], 10.0),  # three samples: the rise is known from the second on
        (1.0, [float(i) for i in range(101)], 90.0),
        (1.0, [5.0] * 50 + [float(i) for i in range(51)], 40.0),
        (1.0, [float(i) for i in range(100)] + [0.0] * 11, 0.0),
    ],
)
def test_how_long_a_queue_has_grown(every_s: float, queue: list[float], grown_s: float) -> None:
    points = [(i * every_s, value) for i, value in enumerate(queue)]
    assert growing_s(points) == pytest.approx(grown_s)
