"""The server's own counters: differences, restarts, and queue times by whole buckets."""

from __future__ import annotations

import math

import pytest

from storage.sources import parse_exposition
from tuner.server_side import ServerSide


def exposition(le_01: int, le_03: int, total: int, waited_s: float, preempted: int = 0):
    name = "vllm:request_queue_time_seconds"
    return parse_exposition(
        f"# TYPE {name} histogram\n"
        f'{name}_bucket{{engine="0",le="0.1"}} {le_01}\n'
        f'{name}_bucket{{engine="0",le="0.3"}} {le_03}\n'
        f'{name}_bucket{{engine="0",le="+Inf"}} {total}\n'
        f'{name}_sum{{engine="0"}} {waited_s}\n'
        f'{name}_count{{engine="0"}} {total}\n'
        "# TYPE vllm:num_preemptions counter\n"
        f'vllm:num_preemptions_total{{engine="0"}} {preempted}\n',
        0.0,
    )


def test_difference_of_two_scrapes() -> None:
    side = ServerSide.between(exposition(5, 10, 10, 1.0, 2), exposition(85, 108, 110, 11.0, 5))
    assert side is not None
    assert side.preemptions == 3
    assert side.queue_mean_s == 0.1
    assert side.queue_count == 100
    assert side.queue_quantile_s(0.5) == (0.0, 0.1, 100)
    assert side.queue_quantile_s(0.95) == (0.1, 0.3, 100)
    assert side.queue_quantile_s(0.99) == (0.3, math.inf, 100)
    assert side.queue_counts(0.3) == (98, 98)
    assert side.queue_counts(0.2) == (80, 98)
    assert side.queue_counts(0.05) == (0, 80)
    assert side.queue_counts(9.0) == (98, 100)


def test_restart_between_gives_no_figure() -> None:
    side = ServerSide.between(exposition(50, 50, 50, 9.0, 7), exposition(1, 1, 1, 0.1, 0))
    assert side is not None
    assert side.preemptions is None
    assert side.queue_mean_s is None


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1e300"])
def test_nonsense_is_no_figure(value: str) -> None:
    text = f"vllm:prompt_tokens_total {value}\nvllm:num_preemptions_total 2\n"
    scrape = parse_exposition(text, 0.0)
    side = ServerSide.between(scrape, scrape)
    assert side is not None
    assert side.prompt_tokens in (None, 0)
    assert side.preemptions == 0


@pytest.mark.parametrize(("count", "known"), [(9e99, True), (1e101, False)])
def test_what_no_server_has_counted_is_no_figure(count: float, known: bool) -> None:
    before, after = (
        parse_exposition(
            f"vllm:prompt_tokens_total {n}\n"
            f'vllm:request_queue_time_seconds_bucket{{le="+Inf"}} {n}\n',
            0.0,
        )
        for n in (0, count)
    )
    side = ServerSide.between(before, after)
    assert side is not None
    assert (side.prompt_tokens is not None, side.queue_bounds_s != ()) == (known, known)


def test_no_metrics_and_no_samples() -> None:
    assert ServerSide.between(None, exposition(1, 1, 1, 1.0)) is None
    same = exposition(1, 1, 1, 1.0)
    idle = ServerSide.between(same, same)
    assert idle is not None
    assert idle.queue_mean_s is None
    assert idle.queue_quantile_s(0.95)[2] == 0


@pytest.mark.parametrize("label", ["", 'le="banana"', 'le="NaN"'])
def test_a_bucket_that_cannot_be_read_costs_the_waits_alone(label: str) -> None:
    line = f"vllm:request_queue_time_seconds_bucket{{{label}}} 7\n"
    scrapes = []
    for scrape in (exposition(5, 10, 10, 1.0), exposition(85, 108, 110, 11.0)):
        scrapes.append(parse_exposition(line, 0.0))
        scrapes[-1].values.update(scrape.values)
    side = ServerSide.between(*scrapes)
    assert side is not None
    assert side.queue_bounds_s == ()
    assert side.queue_count == 0
    assert side.queue_mean_s == 0.1
