"""Studies for tests, written through storage's own API in the shape the tuner stores them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from storage import Database, open_database

BASELINE = {"max_num_seqs": 128, "chunk_size": 2048, "gpu_memory_utilization": 0.9}
BEST = {"max_num_seqs": 48, "chunk_size": 512, "gpu_memory_utilization": 0.88}
BOUND_S = 0.5
BEGAN_S = 1_796_010_000.0
OUT_OF_MEMORY = "out of memory at peak prefill: 512 MiB asked, 38 MiB free"


def figure(value: float, unit: str, spread: float = 0.06, n: int = 310) -> dict[str, Any]:
    low, high = value * (1 - spread), value * (1 + spread)
    return {"value": value, "low": low, "high": high, "n": n, "unit": unit, "method": "m"}


def summary(tps: float, ttft_p95_s: float) -> dict[str, Any]:
    figures = {
        "output_tps": figure(tps, "tok/s"),
        "total_tps": figure(tps * 5, "tok/s"),
        "rps": figure(tps / 64, "req/s"),
        "error_rate": figure(0.0, "share"),
        "attainment": figure(min(0.98, 0.95 * BOUND_S / ttft_p95_s), "share", 0.01),
        "ttft_p50": figure(ttft_p95_s / 2.4, "s"),
        "ttft_p95": figure(ttft_p95_s, "s", 0.1),
        "tpot_p50": figure(0.021, "s"),
        "tpot_p95": figure(0.034, "s"),
        "itl_p95": figure(0.03, "s"),
        "e2e_p95": figure(2.3, "s"),
    }
    return {"window_s": [3.0, 23.0], "counts": {"sent": 310, "ok": 310}, "figures": figures}


def verdict(ttft_p95_s: float) -> dict[str, Any]:
    low, high = ttft_p95_s * 0.9, ttft_p95_s * 1.1
    state = "pass" if high < BOUND_S else "fail" if low > BOUND_S else "inconclusive"
    needs = "17 of 310 samples are over the bound: needs about 140 more requests"
    clause = {
        "clause": "ttft_p95<500ms",
        "key": "ttft_p95",
        "bound": BOUND_S,
        "state": state,
        "estimate": figure(ttft_p95_s, "s", 0.1),
        "margin_log": math.log(ttft_p95_s / BOUND_S),
        "reason": needs if state == "inconclusive" else "",
    }
    return {"state": state, "reason": "", "clauses": [clause]}


def add(
    database: Database, study_id: int, stage: str, config: dict[str, Any], **fields: Any
) -> int:
    """One measurement; tps and ttft_p95_s make its figures and verdict."""
    tps, ttft_p95_s = fields.pop("tps", None), fields.pop("ttft_p95_s", None)
    if tps is not None:
        fields |= {"summary": summary(tps, ttft_p95_s), "verdict": verdict(ttft_p95_s)}
    return database.add_measurement(
        stage=stage,  # type: ignore[arg-type]
        config=config,
        study_id=study_id,
        slos="ttft_p95<500ms",
        duration_s=20.3,
        **fields,
    )


def run(database: Database, **fields: Any) -> int:
    """One run of `tuner bench`, in the shape it stores."""
    tps, ttft_p95_s = fields.pop("tps", None), fields.pop("ttft_p95_s", None)
    if tps is not None:
        fields |= {"summary": summary(tps, ttft_p95_s), "verdict": verdict(ttft_p95_s)}
    given = {
        "stage": "bench",
        "config": {"url": "http://127.0.0.1:8000", "model": "smollm2"},
        "workload": {"text": "prompt=256,output=64,concurrency=16"},
        "slos": "ttft_p95<500ms",
        "duration_s": 23.0,
    }
    return database.add_measurement(**given | fields)


def hostile_text(place: str) -> str:
    """Runs as a script or turns into Markdown, if a page lets it."""
    return f"<img src=x onerror=alert(1)> **{place}** [x](javascript:2)"


def hostile(path: Path) -> None:
    """A study and a run whose every text comes from somebody who means harm."""
    told = {name: hostile_text(name) for name in (
        "name", "command", "slos", "objective", "axis", "workload", "config", "reason", "url",
        "clause",
    )}  # fmt: skip
    with open_database(path) as database:
        made = database.create_study(
            told["name"], command=told["command"], slos=told["slos"], objective=told["objective"],
            space={"axes": [told["axis"]]}, workload={"text": told["workload"]},
        )  # fmt: skip
        config = {told["config"]: told["config"]}
        add(database, made.id, "baseline", config, started_at_s=1.0, state="failed",
            failure_reason=told["reason"], failure_kind="transient")  # fmt: skip
        wrong = verdict(0.9)
        wrong["clauses"][0]["clause"] = told["clause"]
        run(
            database, started_at_s=2.0, config={"url": told["url"]}, slos=told["slos"],
            workload={"text": told["workload"]}, summary=summary(1.0, 0.9), verdict=wrong,
        )  # fmt: skip


def study(path: Path, *, state: str = "done", trials: int = 16) -> None:
    """A study of `trials` search measurements, two of them failed, and a confirmation when done."""
    with open_database(path) as database:
        made = database.create_study(
            f"optimize-{state}",
            command='tuner optimize --url http://127.0.0.1:8000 --slo "ttft_p95<500ms"',
            slos="ttft_p95<500ms",
            objective="maximize output_tps",
            space={"axes": ["max_num_seqs=4:256:log", "chunk_size=64:4096:log"], "fixed": {}},
            workload={"text": "prompt=256,output=64,concurrency=16"},
            seed=7,
        )
        at_s = BEGAN_S
        for tps, ttft_p95_s in ((410.0, 0.71), (418.0, 0.69)):
            add(database, made.id, "baseline", BASELINE,
                tps=tps, ttft_p95_s=ttft_p95_s, started_at_s=at_s)  # fmt: skip
            at_s += 22
        for trial in range(trials):
            _search(database, made.id, trial, at_s)
            at_s += 22
        if state == "done":
            add(database, made.id, "confirm", BEST, tps=455.0, ttft_p95_s=0.43, started_at_s=at_s)
        database.update_study(made.id, state=state, result=result() if state == "done" else None)


def result() -> dict[str, Any]:
    """What `tuner optimize` stores at its end."""
    return {
        "answer": "improved",
        "reason": "meets the SLOs, which the baseline misses",
        "met": True,
        "objective": "maximize output_tps",
        "baseline": _side(BASELINE, 414.0, 0.70, runs=4),
        "best": _side(BEST, 455.0, 0.43, runs=2),
        "gain": {"ratio": 1.1, "low": 1.06, "high": 1.14, "pairs": 2, "outcome": "improved"},
        "closest": {},
        "flags": {
            "slotune": "engine serve --max-num-seqs 48 --chunk-size 512",
            "vllm serve": "vllm serve MODEL --max-num-seqs 48 --max-num-batched-tokens 512",
        },
    }


def _side(config: dict[str, Any], tps: float, ttft_p95_s: float, runs: int) -> dict[str, Any]:
    figures = summary(tps, ttft_p95_s)["figures"]
    return {"config": config, "runs": runs, "figures": figures, "verdict": verdict(ttft_p95_s)}


def _search(database: Database, study_id: int, trial: int, at_s: float) -> None:
    max_num_seqs = (8, 96, 16, 24, 64, 32, 48)[trial % 7]
    chunk_size = (128, 1024, 512, 256)[trial % 4]
    config = {
        "max_num_seqs": max_num_seqs,
        "chunk_size": chunk_size,
        "gpu_memory_utilization": 0.6 + 0.017 * trial,
    }
    if trial in (4, 9):
        add(database, study_id, "search", config, started_at_s=at_s, trial_number=trial,
            state="failed", failure_kind="configuration", failure_reason=OUT_OF_MEMORY)  # fmt: skip
        return
    tps = 300 + 3.2 * max_num_seqs - 0.05 * abs(chunk_size - 512) + 7 * math.sin(trial)
    add(database, study_id, "search", config, started_at_s=at_s, trial_number=trial,
        tps=tps, ttft_p95_s=0.22 + 0.0055 * max_num_seqs)  # fmt: skip
