"""A real `vllm serve`, clients that keep it loaded, and the tree's look at it.

vLLM does not export max_num_seqs and max_num_batched_tokens, so that a look is told them, as an
operator tells them with --set.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from storage.sources import open_source
from tests.beside import beside
from tests.tuner.diagnosis.real_engine import post
from tuner.cli.main import main
from tuner.diagnosis import Diagnosis, History, asked_quantiles, collect, diagnose, render
from tuner.diagnosis.thresholds import DEFAULT, Thresholds
from tuner.slo import parse_slos
from tuner.targets.process import OwnProcess, next_log

BINARY, MODEL = os.environ.get("VLLM_BINARY", ""), os.environ.get("VLLM_MODEL", "")
NAME = "model"
START_S = 600.0
ANSWER_S = 300.0
SCRAPE_S = 0.5
WINDOW_S = 60.0
LIMIT_S = 120.0
EVALUATIONS = 3
"""So many in a row that agree end a look: nodes fire after 2 and clear after 3."""

USUAL = {
    "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "0,1",
    "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1",
}  # fmt: skip
"""For a CPU build; what the environment says already stays."""

TOLD = {"--max-num-seqs": "max_num_seqs", "--max-num-batched-tokens": "chunk_size"}
FLAGS = {"--max-num-seqs": "16", "--max-num-batched-tokens": "1024"}


class Look(Protocol):
    def __call__(self, until: Callable[[Diagnosis], bool], least_s: float = 0.0) -> Diagnosis: ...


@dataclass(frozen=True)
class Server:
    """A running vLLM. settings: what it does not export, by our knob names."""

    url: str
    settings: dict[str, str]


@contextlib.contextmanager
def serving(folder: Path, **flags: str) -> Iterator[Server]:
    """vLLM with FLAGS and these (`max_num_seqs="4"`) in their place, until the block ends."""
    words = FLAGS | {f"--{name.replace('_', '-')}": value for name, value in flags.items()}
    process = OwnProcess(
        lambda port: [
            BINARY, "serve", MODEL, "--host", "127.0.0.1", "--port", str(port),
            "--served-model-name", NAME, "--max-model-len", "1024", "--enforce-eager",
            *(word for pair in words.items() for word in pair),
        ],
        next_log(folder, "vllm"),
        environment={key: os.environ.get(key, value) for key, value in USUAL.items()},
    )  # fmt: skip
    process.start(START_S)
    try:
        yield Server(process.url, {TOLD[w]: value for w, value in words.items() if w in TOLD})
    finally:
        process.stop()


@dataclass(frozen=True)
class Clients:
    """So many clients in a closed loop, with a pause between a client's requests.

    prefixes: how many heads of prefix_tokens the prompts share, 0 for none; the rest is fresh.
    """

    count: int
    prompt_tokens: int
    output_tokens: int
    pause_s: float = 0.0
    prefixes: int = 0
    prefix_tokens: int = 0

    def prompt(self, chance: random.Random) -> list[int]:
        head: list[int] = []
        if self.prefixes:
            text = random.Random(f"prefix {chance.randrange(self.prefixes)}")
            head = tokens(text, self.prefix_tokens)
        return head + tokens(chance, self.prompt_tokens - len(head))


def tokens(chance: random.Random, count: int) -> list[int]:
    return [chance.randrange(1000, 40_000) for _ in range(count)]


def ask(server: Server, prompt: list[int], output_tokens: int) -> None:
    post(f"{server.url}/v1/completions",
         {"model": NAME, "prompt": prompt, "max_tokens": output_tokens, "ignore_eos": True,
          "temperature": 0}, ANSWER_S)  # fmt: skip


@contextlib.contextmanager
def offered(server: Server, *loads: Clients) -> Iterator[None]:
    """The loads at once, until the block ends; a request that failed is an error."""
    faults: list[str] = []

    def client(number: int, load: Clients, stop: threading.Event) -> None:
        chance = random.Random(number)
        while not stop.is_set():
            try:
                ask(server, load.prompt(chance), load.output_tokens)
            except OSError as fault:
                faults.append(str(fault))
                return
            stop.wait(load.pause_s)

    each = [load for load in loads for _ in range(load.count)]
    with beside(*(partial(client, number, load) for number, load in enumerate(each))):
        yield
    assert faults == []


@contextlib.contextmanager
def arriving(server: Server, every_s: float, prompt_tokens: int, output: int) -> Iterator[None]:
    """A request every so many seconds, whether or not earlier ones were answered; a refused one
    (503) is as it should be."""
    chance = random.Random(0)

    def one(prompt: list[int]) -> None:
        with contextlib.suppress(OSError):
            ask(server, prompt, output)

    def crowd(stop: threading.Event) -> None:
        while not stop.wait(every_s):
            prompt = tokens(chance, prompt_tokens)
            threading.Thread(target=one, args=(prompt,), daemon=True).start()

    with beside(crowd):
        yield


@contextlib.contextmanager
def watching(
    server: Server, slos: list[str], thresholds: Thresholds = DEFAULT, window_s: float = WINDOW_S
) -> Iterator[Look]:
    """look(until, least_s): the diagnosis once `until` has held EVALUATIONS times in a row, after
    least_s at the soonest, or the last of LIMIT_S. Looks of one block share its scrapes and its
    hysteresis."""
    source = open_source(url=server.url, scrape_interval_s=SCRAPE_S)
    wanted, history = parse_slos(slos), History()

    def look(until: Callable[[Diagnosis], bool], least_s: float = 0.0) -> Diagnosis:
        held, began_s = 0, time.monotonic()
        while True:
            time.sleep(2 * SCRAPE_S)
            signals = collect(
                source, window_s=window_s, known=server.settings, target=server.url,
                quantiles=asked_quantiles(wanted.clauses),
            )  # fmt: skip
            found = diagnose(signals, wanted, history, thresholds=thresholds)
            seen = bool(signals.value("finished")) and until(found)
            held = held + 1 if seen else 0
            spent_s = time.monotonic() - began_s
            if (held >= EVALUATIONS and spent_s >= least_s) or spent_s > LIMIT_S:
                print(render(found))
                return found

    try:
        yield look
    finally:
        source.close()


def command_line(capsys: Any, server: Server, slo: str, *more: str) -> tuple[int, Diagnosis]:
    """(exit code, diagnosis) of `tuner diagnose --json`, told what vLLM does not export."""
    told = [word for pair in server.settings.items() for word in ("--set", "=".join(pair))]
    capsys.readouterr()
    code = main(["diagnose", "--url", server.url, "--slo", slo, "--watch-for", "10s", "--interval",
                 "500ms", "--quiet", "--json", *told, *more])  # fmt: skip
    return code, Diagnosis.from_dict(json.loads(capsys.readouterr().out))
