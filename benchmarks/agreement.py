"""The same load on this engine, measured by slotune and by `vllm bench serve`: do they agree?

    python benchmarks/agreement.py --vllm-venv VENV --model FOLDER

One engine, the same number of requests of the same lengths from as many clients, in turn, so that
a noisy machine hits both; engine and client have a core each, as a heavy client on the engine's own
slows it down. Each figure is shown as the ratio of the rounds' pairs with the interval of their
mean logarithm (Student's). The figures share an error of 5 % (Bonferroni): where nothing differs,
95 of 100 runs of this program call nothing DIFFERENT. 1 inside an interval means that no difference
was seen, and its width how small a one could have been. Throughput is what vLLM calls it: tokens
between the first send and the last answer. The engine's own histograms (means of TPOT and ITL) are
read around every run: whether a difference between the clients is one of what they measured or of
how fast the engine was for them. FOLDER holds config.json, safetensors and the tokenizer.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from scipy.stats import t as student

from storage.sources import Exposition, scrape_once
from tuner.endpoint import Endpoint
from tuner.figures import latency_estimate
from tuner.measure import Measurement, measure
from tuner.records import RequestRecord
from tuner.targets import TargetOptions, open_target
from tuner.units import show
from tuner.workload import parse_workload

FIGURES = {
    "ttft_mean": "mean_ttft_ms", "ttft_p50": "median_ttft_ms", "ttft_p95": "p95_ttft_ms",
    "tpot_mean": "mean_tpot_ms", "tpot_p50": "median_tpot_ms", "itl_mean": "mean_itl_ms",
    "itl_p50": "median_itl_ms", "e2e_mean": "mean_e2el_ms", "e2e_p50": "median_e2el_ms",
}  # fmt: skip
"""Ours and the name of the same in vLLM's result file."""

THROUGHPUT = "output tok/s"

SERVER = {
    "tpot_mean": "vllm:request_time_per_output_token_seconds",
    "itl_mean": "vllm:inter_token_latency_seconds",
}
"""The engine's own histogram of a figure."""

LEVEL = 1 - 0.05 / (len(FIGURES) + 1)
"""Of each interval: 95 % for the clients' figures, throughput's among them, together."""


@dataclass(frozen=True)
class Load:
    prompt: int
    output: int
    concurrency: int
    requests: int


def ours(endpoint: Endpoint, load: Load, seed: int) -> dict[str, float]:
    """Figures over every request, latencies in seconds."""
    text = f"prompt={load.prompt},output={load.output},concurrency={load.concurrency}"
    made = measure(
        endpoint, parse_workload(text), duration_s=3600.0, warmup_s=0.0, warmup_max_s=0.0,
        seed=seed, max_requests=load.requests,
    )  # fmt: skip
    return figures_of(_all_good(made, load))


def figures_of(good: Sequence[RequestRecord]) -> dict[str, float]:
    """Over every one of these requests, all of which have ended."""
    window = min(r.scheduled_s for r in good), max(r.end_s for r in good)
    found = {}
    for key in FIGURES:
        metric, stat = key.split("_")
        found[key] = latency_estimate(good, metric, stat, window).value
    took_s = window[1] - min(r.sent_s for r in good)
    return found | {THROUGHPUT: sum(r.output_tokens or 0 for r in good) / took_s}


def _all_good(made: Measurement, load: Load) -> list[RequestRecord]:
    good = [record for record in made.records if record.ok]
    if len(good) < load.requests:
        sys.exit(f"slotune: {len(good)} of {load.requests} requests were good")
    return good


def peers(options: argparse.Namespace, endpoint: Endpoint, load: Load, seed: int, folder: Path
          ) -> dict[str, float]:  # fmt: skip
    """The same by `vllm bench serve`."""
    result = folder / "result.json"
    result.unlink(missing_ok=True)  # the round before left one
    command = [
        str(options.vllm_venv / "bin/vllm"), "bench", "serve", "--backend", "openai",
        "--base-url", endpoint.base_url, "--model", endpoint.model, "--tokenizer", options.model,
        "--dataset-name", "random", "--random-input-len", str(load.prompt),
        "--random-output-len", str(load.output), "--num-prompts", str(load.requests),
        "--max-concurrency", str(load.concurrency), "--ignore-eos", "--seed", str(seed),
        "--temperature", "0",  # else the engine samples, which takes it longer than slotune's load
        "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "95",
        "--save-result", "--result-dir", str(folder), "--result-filename", result.name,
        "--ready-check-timeout-sec", "0", "--disable-tqdm",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    if done.returncode or not result.exists():
        sys.exit(f"vllm bench serve failed:\n{(done.stdout + done.stderr)[-2000:]}")
    told = json.loads(result.read_text())
    if told["completed"] < load.requests:
        sys.exit(f"vllm bench serve: {told['completed']} of {load.requests} requests were good")
    found = {key: told[name] / 1e3 for key, name in FIGURES.items()}
    return found | {THROUGHPUT: told["output_throughput"]}


def beside_server(
    endpoint: Endpoint, run: Callable[[], dict[str, float]]
) -> tuple[dict[str, float], dict[str, float]]:
    """(what the client found, the same by the engine's histograms of that time), in seconds."""
    before = scrape_once(endpoint.base_url)
    found = run()
    after = scrape_once(endpoint.base_url)
    return found, {key: _mean_between(before, after, name) for key, name in SERVER.items()}


def _mean_between(before: Exposition, after: Exposition, name: str) -> float:
    total, count = (
        (after.total(f"{name}_{part}") or 0.0) - (before.total(f"{name}_{part}") or 0.0)
        for part in ("sum", "count")
    )
    if count <= 0:
        sys.exit(f"the engine observed no {name} during a run")
    return total / count


def pairs_of(
    own: tuple[dict[str, float], dict[str, float]],
    peer: tuple[dict[str, float], dict[str, float]],
) -> dict[str, tuple[float, float]]:
    """(slotune, vLLM) of every line: the clients' figures, the engine's during each client's run,
    and how many times the engine's figure each client found."""
    (found, server), (peer_found, peer_server) = own, peer
    pairs = {key: (value, peer_found[key]) for key, value in found.items()}
    pairs |= {f"engine {key}": (value, peer_server[key]) for key, value in server.items()}
    return pairs | {
        f"{key} / engine": (found[key] / value, peer_found[key] / peer_server[key])
        for key, value in server.items()
    }


def told(key: str, pairs: list[tuple[float, float]]) -> str:
    """One line: medians of both, the ratio and whether 1 is inside its interval."""
    logs = [math.log(a / b) for a, b in pairs]
    middle = statistics.mean(logs)
    half = (
        statistics.stdev(logs) / math.sqrt(len(logs)) * student.ppf((1 + LEVEL) / 2, len(logs) - 1)
    )
    low, high = math.exp(middle - half), math.exp(middle + half)
    values = [statistics.median(side) for side in zip(*pairs, strict=True)]
    unit = "tok/s" if key == THROUGHPUT else "×" if key.endswith("/ engine") else "s"
    both = "  ".join(f"{show(value, unit):>11}" for value in values)
    verdict = "no difference" if low <= 1 <= high else "DIFFERENT"
    return f"  {key:18} {both}   {math.exp(middle):.3f} [{low:.3f}, {high:.3f}]  {verdict}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--vllm-venv", type=Path, required=True, help="one that holds vllm")
    parser.add_argument("--model", required=True, help="Hugging Face folder with safetensors")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--requests", type=int, default=48, help="of each run")
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--output", type=int, default=48)
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error(f"--rounds {options.rounds}: an interval needs at least 2")
    load = Load(options.prompt, options.output, options.concurrency, options.requests)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("engine and client need a core each: this machine grants one")
    serve_args = ("--model", options.model, "--num-threads", "1")
    target = open_target(TargetOptions(model=options.model, serve_args=serve_args))
    pairs: dict[str, list[tuple[float, float]]] = {}
    try:
        os.sched_setaffinity(0, {cores[0]})
        target.start()
        os.sched_setaffinity(0, set(cores[1:]))
        endpoint = target.endpoint
        with tempfile.TemporaryDirectory() as name:
            ours(endpoint, load, options.rounds)  # warms the engine up
            for index in range(options.rounds):
                clients = [
                    partial(ours, endpoint, load, index),
                    partial(peers, options, endpoint, load, index, Path(name)),
                ]
                order = (0, 1) if index % 2 else (1, 0)
                seen = {side: beside_server(endpoint, clients[side]) for side in order}
                for key, pair in pairs_of(seen[0], seen[1]).items():
                    pairs.setdefault(key, []).append(pair)
                print(f"round {index + 1}: TTFT mean {seen[0][0]['ttft_mean']:.4f} s and "
                      f"{seen[1][0]['ttft_mean']:.4f} s", flush=True)  # fmt: skip
    finally:
        target.stop()
    print(f"\n{load.requests} requests of {load.prompt} + {load.output} tokens, "
          f"{load.concurrency} at once; {options.rounds} pairs of runs")  # fmt: skip
    head = f"ratio [{LEVEL:.1%} interval: 95 % for the clients' {len(FIGURES) + 1} together]"
    print(f"  {'':18} {'slotune':>11}  {'vllm bench':>11}   {head}")
    for key, found in pairs.items():
        print(told(key, found))


if __name__ == "__main__":
    main()
