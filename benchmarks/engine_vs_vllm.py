"""slotune's engine beside vLLM: same model folder, same client, alternating runs, one ratio.

    python benchmarks/engine_vs_vllm.py --vllm-venv VENV --model FOLDER

Both servers are up for the whole run and measured in turn, so that a noisy machine hits both; the
ratio of each round is printed, then its median and range. FOLDER holds config.json and safetensors.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tuner.endpoint import Endpoint
from tuner.measure import Measurement, measure
from tuner.units import show
from tuner.workload import Workload, parse_workload


@dataclass(frozen=True)
class Server:
    """A server of ours: how it is called in the table, and where it answers."""

    name: str
    endpoint: Endpoint


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def serving(
    name: str, command: list[str], port: int, folder: Path, environment: dict[str, str]
) -> Iterator[Server]:
    """Start a server in its own process group, wait until healthy, end it."""
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, **environment},
        )  # fmt: skip
    try:
        wait_until_healthy(name, process, port, log)
        yield Server(name, Endpoint(f"http://127.0.0.1:{port}").probe())
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_until_healthy(name: str, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    print(f"starting {name} …", flush=True)
    began = time.monotonic()
    while time.monotonic() - began < 600:
        if process.poll() is not None:
            sys.exit(f"{name} ended while starting:\n{log.read_text(errors='replace')[-2000:]}")
        with contextlib.suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2)
            print(f"  {name} is up after {time.monotonic() - began:.0f} s", flush=True)
            return
        time.sleep(1)
    sys.exit(f"{name} is not up after 600 s")


def ours(options: argparse.Namespace, port: int) -> list[str]:
    return [
        sys.executable, "-m", "engine", "serve", "--model", options.model, "--port", str(port),
        "--max-model-len", "2048", "--max-num-seqs", str(options.max_num_seqs),
        "--chunk-size", str(options.chunk_size), "--dtype", "bfloat16",
    ]  # fmt: skip


def vllm(options: argparse.Namespace, port: int) -> list[str]:
    return [
        str(Path(options.vllm_venv) / "bin" / "vllm"), "serve", options.model, "--host",
        "127.0.0.1", "--port", str(port), "--max-model-len", "2048", "--max-num-seqs",
        str(options.max_num_seqs), "--max-num-batched-tokens", str(options.chunk_size),
        "--dtype", "bfloat16",
    ]  # fmt: skip


VLLM_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


def one_run(server: Server, workload: Workload, options: argparse.Namespace, seed: int) -> float:
    """Output tokens per second, 0 when no request ended in the window; prints the run's line."""
    made: Measurement = measure(
        server.endpoint, workload, duration_s=options.duration, warmup_s=options.warmup, seed=seed
    )
    tps = made.summary["output_tps"]
    ttft, tpot = made.summary["ttft_p50"], made.summary["tpot_p50"]
    print(
        f"  {server.name:8} {tps.value:7.1f} output tok/s · TTFT p50 {show(ttft.value, 's'):>8} · "
        f"TPOT p50 {show(tpot.value, 's'):>8} · {made.counts['ok']} ok, "
        f"{made.counts['failed']} failed",
        flush=True,
    )
    return tps.value if made.counts["ok"] else 0.0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--vllm-venv", required=True, help="virtual environment with vLLM for CPU")
    parser.add_argument("--model", required=True, help="Hugging Face folder with safetensors")
    parser.add_argument("--workload", default="prompt=256,output=64,concurrency=16")
    parser.add_argument("--max-num-seqs", type=int, default=16)
    parser.add_argument("--chunk-size", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--duration", type=float, default=20.0, help="seconds per run")
    parser.add_argument("--warmup", type=float, default=6.0, help="seconds per run, not counted")
    return parser.parse_args()


def main() -> None:
    options = parse()
    workload = parse_workload(options.workload)
    ratios = []
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        ports = free_port(), free_port()
        threads = {"VLLM_CPU_OMP_THREADS_BIND": f"0-{(os.cpu_count() or 1) - 1}"}
        peer = stack.enter_context(
            serving(
                "vLLM", vllm(options, ports[1]), ports[1], Path(folder),
                {**VLLM_ENVIRONMENT, **threads},
            )
        )  # fmt: skip
        own = stack.enter_context(
            serving("slotune", ours(options, ports[0]), ports[0], Path(folder), {})
        )
        print(f"{workload} · {options.rounds} rounds of {options.duration:g} s each\n", flush=True)
        for index in range(options.rounds):
            order = (own, peer) if index % 2 == 0 else (peer, own)
            tps = {server.name: one_run(server, workload, options, index) for server in order}
            if not all(tps.values()):
                print(f"  round {index + 1} is void: raise --duration\n", flush=True)
                continue
            ratios.append(tps["slotune"] / tps["vLLM"])
            print(f"  round {index + 1}: slotune / vLLM = {ratios[-1]:.2f}\n", flush=True)
    if not ratios:
        sys.exit("no round counts: no request ended within --duration on one of the servers")
    print(
        f"slotune / vLLM, output tok/s: median {statistics.median(ratios):.2f}, "
        f"range {min(ratios):.2f} … {max(ratios):.2f} over {len(ratios)} rounds"
    )


if __name__ == "__main__":
    main()
