"""A small surface of a made-up engine: slots, a queue before them, slower tokens when all are full.

Few slots make requests wait for their first token, many make all tokens slow.
"""

from __future__ import annotations

import heapq
from itertools import product

import numpy as np

from benchmarks.efficiency.surface import RecordedRun, Surface
from tuner.records import RequestRecord
from tuner.search.trials import Config
from tuner.slo import parse_slos
from tuner.workload import parse_workload

CLIENTS = 8
WINDOW_S, WARMUP_S = 8.0, 2.0
OVERHEAD_S = 0.5
GRID = {"max_num_seqs": (1, 2, 4, 8), "chunk_size": (64, 256, 1024)}
OUT_OF_MEMORY: Config = {"max_num_seqs": 8, "chunk_size": 1024}


def made_surface(
    repeat: int = 2, slo: str = "ttft_p95<1s", noise: float = 0.03, kind: str = "slotune"
) -> Surface:
    points: list[Config] = [
        dict(zip(GRID, values, strict=True)) for values in product(*GRID.values())
    ]
    return Surface(
        about="made up",
        kind=kind,
        workload=parse_workload(f"prompt=64,output=16,concurrency={CLIENTS}"),
        slos=parse_slos([slo]),
        baseline={"max_num_seqs": 8, "chunk_size": 256},
        grid=dict(GRID),
        window_s=WINDOW_S,
        warmup_s=WARMUP_S,
        runs=[_run(point, seed, noise) for seed in range(repeat) for point in points],
    )


def _run(config: Config, seed: int, noise: float) -> RecordedRun:
    if config == OUT_OF_MEMORY:
        return RecordedRun(
            config, seed, "failed", (0.0, 0.0), 3.0, [], None, "configuration", "out of memory"
        )
    key = (seed, int(config["max_num_seqs"]), int(config["chunk_size"]))
    records = _records(config, np.random.default_rng(key), noise)
    spent_s = max(record.end_s for record in records) + OVERHEAD_S
    window_s = (WARMUP_S, WARMUP_S + WINDOW_S)
    return RecordedRun(config, seed, "ok", window_s, spent_s, records)


def _records(config: Config, rng: np.random.Generator, noise: float) -> list[RequestRecord]:
    slots, chunk = int(config["max_num_seqs"]), float(config["chunk_size"])
    slower = float(np.exp(rng.normal(0, noise)))
    free_s, slot_s = [0.0] * CLIENTS, [0.0] * slots
    found: list[RequestRecord] = []
    while free_s[0] < WARMUP_S + WINDOW_S:
        at_s, tokens = free_s[0], int(rng.integers(10, 23))
        gap_s = slower * (0.01 + 0.0015 * slots + 2e-6 * chunk)
        first_s = max(at_s, slot_s[0]) + slower * (0.02 + 2 / chunk)
        times = [first_s + gap_s * place for place in range(tokens)]
        record = RequestRecord(len(found), at_s, at_s, first_s, first_s, first_s, times[-1], times)
        record.chunk_tokens = [1] * tokens
        record.prompt_tokens, record.output_tokens = 64, tokens
        record.http_status, record.state = 200, "ok"
        found.append(record)
        heapq.heapreplace(slot_s, times[-1])
        heapq.heapreplace(free_s, times[-1])
    return found
