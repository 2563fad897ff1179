"""The replay of a recorded surface: faithful to its recording, the same for the same seed."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.efficiency.export import exported
from benchmarks.efficiency.replay import Replay
from benchmarks.efficiency.surface import TICK_S, Surface, key_of, read, write
from benchmarks.efficiency.truth import measured
from storage import open_database
from tests.benchmarks.made_surface import CLIENTS, OUT_OF_MEMORY, OVERHEAD_S, made_surface
from tuner.errors import UserError
from tuner.load import LoadResult
from tuner.measure import Measurement
from tuner.records import to_columns
from tuner.search.trials import Config
from tuner.targets.base import TargetError

POINT: Config = {"max_num_seqs": 2, "chunk_size": 256}
REPLAYS = 40
START_S = 30.0


@pytest.fixture(scope="module")
def surface() -> Surface:
    return made_surface()


class StopAfter:
    """Ends a measurement once so many requests have ended; remembers what it was shown."""

    def __init__(self, ended: int) -> None:
        self.ended, self.seen = ended, [0]

    def __call__(self, load: LoadResult, warmup_s: float) -> bool:
        assert all(record.end_s <= load.now_s() for record in load.records)
        self.seen.append(len(load.records))
        return sum(record.ok for record in load.records) >= self.ended


def replayed(
    replay: Replay, surface: Surface, config: Config, stop: StopAfter | None = None
) -> Measurement:
    replay.apply(config)
    return replay.measure(
        replay.endpoint, surface.workload, duration_s=surface.window_s,
        warmup_s=surface.warmup_s, seed=0, slos=surface.slos, should_stop=stop,
    )  # fmt: skip


def test_a_file_keeps_times_to_a_tick(surface: Surface, tmp_path: Path) -> None:
    write(surface, tmp_path / "made.json.gz")
    kept = read(tmp_path / "made.json.gz")
    assert kept.points.keys() == surface.points.keys()
    assert (kept.workload, str(kept.slos), kept.grid) == (
        surface.workload, str(surface.slos), surface.grid,
    )  # fmt: skip
    for mine, its in zip(surface.runs, kept.runs, strict=True):
        assert (its.state, its.failure_reason) == (mine.state, mine.failure_reason)
        assert its.spent_s == pytest.approx(mine.spent_s, abs=TICK_S)
        for a, b in zip(mine.records, its.records, strict=True):
            times = (a.scheduled_s, a.sent_s, a.first_token_s, *a.chunk_times_s, a.end_s)
            kept_times = (b.scheduled_s, b.sent_s, b.first_token_s, *b.chunk_times_s, b.end_s)
            assert np.abs(np.subtract(times, kept_times)).max() < TICK_S
            assert (b.output_tokens, b.chunk_tokens, b.ok) == (
                a.output_tokens,
                a.chunk_tokens,
                a.ok,
            )


def test_a_file_keeps_failures_and_pieces_of_several_tokens(tmp_path: Path) -> None:
    surface = made_surface(repeat=1)
    run = surface.runs[0]
    odd = replace(run.records[0], state="failed", http_status=503, error="busy", chunk_times_s=[])
    several = replace(run.records[1], chunk_tokens=[2, *run.records[1].chunk_tokens[1:]])
    changed = replace(run, records=[replace(odd, chunk_tokens=[]), several])
    write(replace(surface, runs=[changed]), tmp_path / "made.json.gz")
    first, second = read(tmp_path / "made.json.gz").runs[0].records
    assert (first.state, first.http_status, first.error) == ("failed", 503, "busy")
    assert np.isnan(first.first_token_s)
    assert second.chunk_tokens == several.chunk_tokens


@pytest.mark.parametrize("content", [b"# text", gzip.compress(b"[1]"), gzip.compress(b"{")])
def test_another_file_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(ValueError, match="other: not a surface file"):
        read(tmp_path / "other")


def test_a_file_that_is_damaged_is_refused_in_one_sentence(
    surface: Surface, tmp_path: Path
) -> None:
    whole, spoilt = tmp_path / "whole", tmp_path / "spoilt"
    write(surface, whole)
    packed = bytearray(whole.read_bytes())
    packed[10:14] = b"\xff" * 4  # the first block of the compressed data
    spoilt.write_bytes(packed)
    with pytest.raises(ValueError, match="spoilt: not a surface file"):
        read(spoilt)
    found = json.loads(gzip.decompress(whole.read_bytes()))
    for key in ("workload", "runs"):
        lacking = {name: value for name, value in found.items() if name != key}
        spoilt.write_bytes(gzip.compress(json.dumps(lacking).encode()))
        with pytest.raises(ValueError, match=f"spoilt: a surface file that is damaged.*{key}"):
            read(spoilt)
    del found["runs"][0]["times"]
    spoilt.write_bytes(gzip.compress(json.dumps(found).encode()))
    with pytest.raises(ValueError, match=r"damaged \(KeyError: 'times'\)"):
        read(spoilt)


def test_one_seed_gives_one_replay(surface: Surface) -> None:
    def two(seed: int) -> tuple[list[float], float]:
        replay = Replay(surface, seed)
        made = [replayed(replay, surface, POINT) for _ in range(2)]
        return [record.end_s for one in made for record in one.records], replay.clock_s

    assert two(3) == two(3)
    assert two(3) != two(4)


@pytest.mark.parametrize("figure", ["output_tps", "ttft_p50", "ttft_p95", "tpot_p50", "e2e_p95"])
@pytest.mark.parametrize("slots", [1, 2, 8])
def test_a_replay_shows_the_recorded_figures(surface: Surface, slots: int, figure: str) -> None:
    config = POINT | {"max_num_seqs": slots}
    runs = [measured(run, surface, surface.slos) for run in surface.points[key_of(config)]]
    recorded = np.mean([run.summary[figure].value for run in runs])
    replay = Replay(surface, 0)
    values = [replayed(replay, surface, config).summary[figure].value for _ in range(REPLAYS)]
    error = np.std(values) / np.sqrt(REPLAYS)
    assert abs(np.mean(values) - recorded) < 4 * error + 0.04 * recorded


def test_no_more_requests_run_at_once_than_there_are_clients(surface: Surface) -> None:
    records = replayed(Replay(surface, 1), surface, POINT).records
    for record in records:
        at_once = sum(r.scheduled_s <= record.scheduled_s < r.end_s for r in records)
        assert at_once <= CLIENTS


def test_runs_of_one_point_differ_as_the_recorded_ones(surface: Surface) -> None:
    slow, fast = (replace(run, seed=seed) for seed, run in enumerate(surface.points[key_of(POINT)]))
    other = surface.points[key_of(POINT | {"max_num_seqs": 4})][0]
    mixed = replace(surface, runs=[slow, replace(other, config=fast.config)])
    replay = Replay(mixed, 0)
    values = [replayed(replay, mixed, POINT).summary["output_tps"].value for _ in range(REPLAYS)]
    recorded = [measured(r, mixed, mixed.slos).summary["output_tps"].value for r in mixed.runs]
    near = np.abs(np.subtract.outer(values, recorded)).argmin(axis=1)
    assert 0.2 < near.mean() < 0.8
    assert np.std(values) > 0.2 * np.mean(values)


def test_an_early_end_costs_less_and_sees_growing_prefixes(surface: Surface) -> None:
    whole, ended = Replay(surface, 5), Replay(surface, 5)
    replayed(whole, surface, POINT)
    stop = StopAfter(20)
    made = replayed(ended, surface, POINT, stop)
    assert stop.seen == sorted(stop.seen)
    assert len(stop.seen) > 3
    assert ended.clock_s < 0.7 * whole.clock_s
    assert made.counts["sent"] + made.counts["warmup"] == stop.seen[-1]
    assert made.window_s[1] < surface.warmup_s + surface.window_s


def test_machine_time_is_what_the_recording_took(surface: Surface) -> None:
    replay = Replay(surface, 2)
    spent = []
    for _ in range(REPLAYS):
        before_s = replay.clock_s
        replayed(replay, surface, POINT)
        spent.append(replay.clock_s - before_s)
    recorded = np.mean([run.spent_s for run in surface.points[key_of(POINT)]])
    assert np.mean(spent) == pytest.approx(recorded, rel=0.05)
    assert surface.points[key_of(POINT)][0].overhead_s == pytest.approx(OVERHEAD_S)


def test_a_restart_is_paid_once_for_each_change() -> None:
    made = made_surface(kind="vllm")
    starts = [
        replace(r, spent_s=r.spent_s + START_S) if r.seed == 0 and r.records else r
        for r in made.runs
    ]
    surface = replace(made, runs=starts)
    replay = Replay(surface, 2)
    assert not replay.knobs()["chunk_size"].live
    spent = []
    for config in (POINT, POINT, POINT | {"max_num_seqs": 4}, POINT):
        before_s = replay.clock_s
        ended_s = max(record.end_s for record in replayed(replay, surface, config).records)
        spent.append(replay.clock_s - before_s - ended_s)
    changed = START_S + OVERHEAD_S
    assert spent == pytest.approx([changed, 0.0, changed, changed])
    working = len(surface.points) - 1
    assert surface.grid_s == pytest.approx(made.grid_s + START_S * working, rel=0.05)


def test_a_point_that_failed_fails_again_and_takes_its_time(surface: Surface) -> None:
    replay = Replay(surface, 0)
    with pytest.raises(TargetError, match="out of memory") as failure:
        replay.apply(OUT_OF_MEMORY)
    assert failure.value.kind == "configuration"
    assert replay.clock_s == surface.points[key_of(OUT_OF_MEMORY)][0].spent_s


def test_a_stored_study_becomes_a_surface(surface: Surface, tmp_path: Path) -> None:
    run = surface.points[key_of(POINT)][0]
    with open_database(str(tmp_path / "surface.db")) as database:
        study = database.create_study(
            "surface", target={"kind": "slotune", "model": "M", "engine": "E", "version": "1"},
            workload=surface.workload.as_dict(), slos=str(surface.slos),
            objective="maximize output_tps", space={"grid": surface.grid},
            budget={"window": 8.0, "warmup": 2.0}, seed=0, state="done",
        )  # fmt: skip
        database.add_measurement(
            study_id=study.id, stage="search", config=run.config, seed=0, started_at_s=1.0,
            duration_s=run.spent_s, state="ok", records=to_columns(run.records),
            summary=measured(run, surface, surface.slos).summary_dict(),
        )  # fmt: skip
        found = exported(database, "surface")
        with pytest.raises(UserError, match="no study 'other'"):
            exported(database, "other")
    assert found.baseline == {"max_num_seqs": 8, "chunk_size": 1024}
    assert (found.runs[0].config, found.runs[0].window_s) == (run.config, run.window_s)
    assert [r.end_s for r in found.runs[0].records] == [r.end_s for r in run.records]
