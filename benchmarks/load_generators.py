"""What load generators reach on one core, side by side against a server that computes nothing.

    python benchmarks/load_generators.py [--vllm-venv VENV] [--guidellm-venv VENV]

The server (null_server.py) has one core, the generator another; generators take turns, so that a
noisy machine hits all of them. Shown are requests/s with 16 tokens in one write, token events/s
with each token in a write of its own, the ratio of each round's requests/s, and the p99 of
slotune's own lag at half its rate. A peer without its venv is skipped. Needs two free cores.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from null_server import MODEL, TOKENS

HERE = Path(__file__).parent
PROMPT_TOKENS = 16
PEER_TIMEOUT_S = 600


@dataclass(frozen=True)
class Bench:
    """What every run shares."""

    cpu: int
    concurrency: int
    seconds: float
    folder: Path
    """Holds a tokenizer, which the peers need to make up prompts."""


@dataclass(frozen=True)
class Run:
    """One run of one generator. lag_p99_s: of its own, where it tells."""

    requests_per_s: float
    lag_p99_s: float | None = None


Drive = Callable[[Bench, str], Run]


def pinned(command: list[str], bench: Bench) -> str:
    """Run a generator on its core alone; gives what it printed."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PEER_TIMEOUT_S,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        preexec_fn=lambda: os.sched_setaffinity(0, {bench.cpu}),
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)}\nfailed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


# slotune: this file again, in a process of its own.


def drive_slotune(bench: Bench, url: str, rate: float = 0.0) -> Run:
    out = pinned(
        [sys.executable, __file__, "--drive", url, "--seconds", str(bench.seconds),
         "--concurrency", str(bench.concurrency), "--rate", str(rate)], bench,
    )  # fmt: skip
    return Run(**json.loads(out))


def drive(url: str, seconds: float, concurrency: int, rate: float) -> Run:
    from tuner.endpoint import Endpoint
    from tuner.figures import lag_p99_s
    from tuner.load import LoadPlan, generate
    from tuner.workload import parse_workload

    arrivals = f"rate={rate}" if rate else f"concurrency={concurrency}"
    workload = parse_workload(f"prompt={PROMPT_TOKENS},output={TOKENS},{arrivals}")
    endpoint = Endpoint(url, MODEL, token_ids=True, forced_lengths=True)
    # As many as fit into the time at a rate that none reaches: all of them are made before.
    most = int(seconds * 20_000)
    load = generate(LoadPlan(endpoint, workload, 0, seconds, max_requests=most, processes=1))
    good = [record for record in load.records if record.ok]
    if len(good) < 0.99 * len(load.records):
        sys.exit(f"slotune: {len(good)} of {len(load.records)} requests were good")
    took_s = max(r.end_s for r in good) - min(r.sent_s for r in good)
    return Run(len(good) / took_s, lag_p99_s(load.records))


# The peers, as their own manuals say.


def drive_vllm(venv: Path, requests_per_s: float) -> Drive:
    def run(bench: Bench, url: str) -> Run:
        out = pinned(
            [str(venv / "bin/vllm"), "bench", "serve", "--backend", "openai", "--base-url", url,
             "--model", MODEL, "--tokenizer", str(bench.folder), "--dataset-name", "random",
             "--random-input-len", str(PROMPT_TOKENS), "--random-output-len", str(TOKENS),
             "--num-prompts", str(int(bench.seconds * requests_per_s)), "--max-concurrency",
             str(bench.concurrency), "--ready-check-timeout-sec", "0", "--disable-tqdm"], bench,
        )  # fmt: skip
        failed = re.search(r"Failed requests:\s+(\d+)", out)
        rate = re.search(r"Request throughput \(req/s\):\s+([\d.]+)", out)
        if rate is None or failed is None or int(failed.group(1)):
            sys.exit(f"vllm bench serve gave no clean figures:\n{out[-2000:]}")
        return Run(float(rate.group(1)))

    return run


def drive_guidellm(venv: Path, requests_per_s: float) -> Drive:
    def run(bench: Bench, url: str) -> Run:
        report = bench.folder / "guidellm.json"
        pinned(
            [str(venv / "bin/guidellm"), "run",
             "--backend", f"kind=openai_http,target={url},model={MODEL}",
             "--profile", f"kind=concurrent,streams={bench.concurrency}",
             "--constraint", f"kind=max_requests,count={int(bench.seconds * requests_per_s)}",
             "--tokenizer", f"kind=huggingface_auto,model={bench.folder}", "--data",
             f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={TOKENS}",
             "--disable-console", "--output", f"kind=json,path={report}"], bench,
        )  # fmt: skip
        metrics = json.loads(report.read_text())["benchmarks"][0]["metrics"]
        if metrics["request_totals"]["errored"]:
            sys.exit(f"guidellm: {metrics['request_totals']['errored']} requests failed")
        return Run(float(metrics["requests_per_second"]["successful"]["mean"]))

    return run


def write_tokenizer(folder: Path) -> None:
    """One token a word, in the files that both peers read."""
    words = ["<unk>", "<s>", "</s>", *(f"w{i}" for i in range(997))]
    special = [
        {"id": i, "content": word, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for i, word in enumerate(words[:3])
    ]  # fmt: skip
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }  # fmt: skip
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "bos_token": "<s>",
        "eos_token": "</s>", "model_max_length": 100_000,
    }  # fmt: skip
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 1000,
              "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
              "intermediate_size": 128}  # fmt: skip
    for name, content in (
        ("tokenizer.json", tokenizer), ("tokenizer_config.json", settings), ("config.json", config),
    ):  # fmt: skip
        (folder / name).write_text(json.dumps(content))


@contextlib.contextmanager
def null_server(cpu: int, *, flush: bool) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, str(HERE / "null_server.py"), "--port", str(port), "--cpu", str(cpu)]
    process = subprocess.Popen([*command, "--flush"] if flush else command)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def spread(values: list[float], digits: int = 0) -> str:
    middle = f"{statistics.median(values):,.{digits}f}"
    return f"{middle} ({min(values):,.{digits}f} … {max(values):,.{digits}f})"


def compare(drives: dict[str, Drive], bench: Bench, rounds: int, server_cpu: int) -> None:
    whole: dict[str, list[float]] = {name: [] for name in drives}
    flushed: dict[str, list[float]] = {name: [] for name in drives}
    with (
        null_server(server_cpu, flush=False) as url,
        null_server(server_cpu, flush=True) as flush_url,
    ):
        for number in range(1, rounds + 1):
            for name, drive_it in drives.items():
                whole[name].append(drive_it(bench, url).requests_per_s)
                flushed[name].append(drive_it(bench, flush_url).requests_per_s * TOKENS)
                print(f"round {number}: {name:22} {whole[name][-1]:9,.0f} requests/s   "
                      f"{flushed[name][-1]:9,.0f} token events/s", flush=True)  # fmt: skip
        half = statistics.median(whole["slotune"]) / 2
        lags = [drive_slotune(bench, url, half).lag_p99_s or 0.0 for _ in range(rounds)]
    print(f"\n{rounds} rounds of about {bench.seconds:g} s, {bench.concurrency} clients, one core "
          "each for generator and server; median (range)")  # fmt: skip
    for name in drives:
        print(f"  {name:22} {spread(whole[name])} requests/s; "
              f"{spread(flushed[name])} token events/s")  # fmt: skip
    for name in list(drives)[1:]:
        ratios = [a / b for a, b in zip(whole["slotune"], whole[name], strict=True)]
        print(f"  slotune / {name}: {spread(ratios, 2)} × requests/s")
    print(f"  slotune's p99 lag at {half:,.0f} requests/s (Poisson): "
          f"{spread([lag * 1e3 for lag in lags], 2)} ms")  # fmt: skip


def main() -> None:
    cores = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vllm-venv", type=Path, help="a virtual environment that holds vllm")
    parser.add_argument("--guidellm-venv", type=Path, help="one that holds guidellm 0.8.1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run, about")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--server-cpu", type=int, default=cores[0])
    parser.add_argument("--load-cpu", type=int, default=cores[-1])
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=float, default=0.0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        run = drive(options.drive, options.seconds, options.concurrency, options.rate)
        print(json.dumps(asdict(run)))
        return
    if options.server_cpu == options.load_cpu:
        sys.exit("generator and server need a core each: this machine grants one")
    drives: dict[str, Drive] = {"slotune": drive_slotune}
    for name, venv, make, requests_per_s in (
        ("vllm bench serve", options.vllm_venv, drive_vllm, 2500.0),
        ("guidellm", options.guidellm_venv, drive_guidellm, 150.0),
    ):
        if venv is None:
            print(f"{name} is skipped: no --{name.split()[0]}-venv is given")
        else:
            drives[name] = make(venv, requests_per_s)
    with tempfile.TemporaryDirectory() as name:
        write_tokenizer(Path(name))
        bench = Bench(options.load_cpu, options.concurrency, options.seconds, Path(name))
        compare(drives, bench, options.rounds, options.server_cpu)


if __name__ == "__main__":
    main()
