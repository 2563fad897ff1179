"""Causes of slow tokens planted in a running engine: named first over its /metrics, and gone with
what the lever says. The look before a cause, or the one after its lever, is the control: the same
load without the cause has no such finding.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers import Program, running
from tests.tuner.diagnosis.contents import about, unbroken_ids, unbroken_text
from tests.tuner.diagnosis.real_engine import (
    FLAGS,
    GOOD,
    LARGE,
    Load,
    Watch,
    calm,
    levers,
    look,
    named_alone,
    named_first,
    turn,
    utilization_of,
)
from tuner.diagnosis import Diagnosis
from tuner.diagnosis.thresholds import Thresholds
from tuner.slo import parse_slos

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

Pair = tuple[Program, Program]

STEADY = Thresholds({"itl_ratio_warning": 4.0})
"""On a busy machine one gap in a hundred takes twice as long by itself."""


def test_more_documents_than_the_pool_holds_are_a_thrashing_cache(pair: Pair) -> None:
    """Eight documents of 94 blocks: all fit into the whole pool, three into 300 blocks. The SLO is
    four times what prompts take here while their documents are found."""
    url = pair[0].url
    starved = utilization_of(url, 300)
    turn(url, **GOOD)
    with (
        Load(url, 2, 1500, 2, content=about(8)).offered(),
        Watch(url, ["ttft_p95<60s"]) as watch,
    ):

        def reused(found: Diagnosis) -> bool:
            return calm(found, "3") and (watch.signals.value("hit_rate") or 0.0) > 0.96

        well = watch.until(reused)
        assert reused(well), well.headline
        usual_s = watch.signals.value("ttft_p95")
        assert usual_s is not None
        watch.slos = parse_slos([f"ttft_p95<{4 * usual_s:.3f}s"])
        turn(url, gpu_memory_utilization=starved)
        ill = watch.until(lambda found: named_alone("3b.thrash", found))
        assert named_alone("3b.thrash", ill), ill.headline
        assert "gpu_memory_utilization up" in levers(ill, "3b.thrash")
        turn(url, gpu_memory_utilization=GOOD["gpu_memory_utilization"])
        healed = watch.until(reused)
        assert reused(healed), healed.headline


def test_long_prompts_beside_running_answers_interfere(pair: Pair) -> None:
    url, slo = pair[0].url, "itl_p99<200ms"
    turn(url, **GOOD)
    with Load(url, 4, 20, 200).offered(), Load(url, 1, 3000, 1, pause_s=0.1).offered():
        ill = look(url, [slo], lambda found: named_alone("4.interference", found))
        assert named_alone("4.interference", ill), ill.headline
        assert levers(ill, "4.interference") == ["chunk_size down"]
        turn(url, chunk_size=32)
        well = look(url, [slo], lambda found: calm(found, "4"))
        assert calm(well, "4"), well.headline


def test_few_very_long_prompts_are_the_tail_of_many_short_ones(pair: Pair) -> None:
    """The lever is a pool of their own: another engine."""
    url, slo = pair[0].url, "ttft_p95<300ms"
    for engine in pair:
        turn(engine.url, **GOOD)
    long = Load(url, 1, 3500, 1, pause_s=1.0)
    with Load(url, 3, 20, 4, pause_s=0.1).offered(), long.offered():
        ill = look(url, [slo], lambda found: named_alone("3c", found))
        assert named_alone("3c", ill), ill.headline
        assert levers(ill, "3c") == ["a separate pool or a per-step cap for long prompts"]
        long.url = pair[1].url
        well = look(url, [slo], lambda found: calm(found, "3"))
        assert calm(well, "3"), well.headline


def test_text_that_takes_long_to_tokenize_is_the_front_ends(pair: Pair) -> None:
    """The same prompts as token ids cost the HTTP process nothing: the control."""
    url, slo = pair[0].url, "ttft_p95<150ms"
    turn(url, **GOOD)
    with Load(url, 3, 1000, 1, content=unbroken_text).offered():
        ill = look(url, [slo], lambda found: named_alone("3d", found))
    assert named_alone("3d", ill), ill.headline
    assert levers(ill, "3d")
    with Load(url, 3, 1000, 1, content=unbroken_ids).offered():
        well = look(url, [slo], lambda found: calm(found, "3"))
    assert calm(well, "3"), well.headline


def test_prompts_in_every_step_raise_the_usual_gap(pair: Pair) -> None:
    """A prompt of about a step's tokens in each of them: every gap is as long, so that no ratio
    shows it."""
    url, slo = pair[0].url, "itl_p95<80ms"
    turn(url, **GOOD | {"chunk_size": 2048})
    with Load(url, 6, 20, 60).offered(), Load(url, 4, 2000, 1).offered():
        ill = look(url, [slo], lambda found: named_alone("4.mixed", found), STEADY)
        assert named_alone("4.mixed", ill), ill.headline
        assert levers(ill, "4.mixed") == ["chunk_size down", "more replicas"]
        turn(url, chunk_size=32)
        well = look(url, [slo], lambda found: calm(found, "4"), STEADY)
    assert calm(well, "4"), well.headline


def test_documents_that_are_read_anew_each_time_ask_for_the_prefix_cache(
    pair: Pair, slower_model: Path, tmp_path: Path
) -> None:
    """The setting is of the start: an engine without the cache, then one that is alike and has
    it."""
    arguments = ("serve", "--model", str(slower_model), *FLAGS, *LARGE)
    off, slo = "--no-enable-prefix-caching", "ttft_p95<250ms"
    turn(pair[0].url, **GOOD)
    with (
        running("engine", *arguments, off, log=tmp_path / "log") as program,
        Load(program.url, 1, 3900, 1, content=about(2)).offered() as load,
    ):
        ill = look(program.url, [slo], lambda found: named_first("3b.cache_off", found))
        assert named_first("3b.cache_off", ill), ill.headline
        assert levers(ill, "3b.cache_off") == ["enable_prefix_caching on"]
        load.url = pair[0].url
        well = look(load.url, [slo], lambda found: calm(found, "3"))
    assert calm(well, "3"), well.headline
    assert "prefix caching is on" in well.node("3b.cache_off").summary
