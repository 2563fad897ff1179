"""A running `engine serve` of a small model, clients that keep it loaded, the tree's look at it.

Nothing waits for a fixed time: a look is taken once requests of the load have finished, and goes on
until the tree has settled.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from storage.sources import open_source
from tests.beside import beside
from tests.engine.tiny_models import FAMILIES, SIZES, save_folder
from tests.tuner.diagnosis.contents import Content, folding_tokenizer, fresh
from tuner.diagnosis import Diagnosis, History, Signals, asked_quantiles, collect, diagnose
from tuner.diagnosis.server_info import server_info
from tuner.diagnosis.thresholds import DEFAULT, Thresholds
from tuner.slo import parse_slos

MAX_MODEL_LEN = 4096
VOCABULARY = 270
SCRAPE_S = 0.5
WINDOW_S = 6.0
LIMIT_S = 60.0
EVALUATIONS = 3
"""So many in a row that agree end a look: nodes fire after 2."""

GOOD = {"max_num_seqs": 16, "chunk_size": 4096, "gpu_memory_utilization": 0.9}
"""Knobs with which no load of these tests has a fault, but for the one a test is about."""

FLAGS = ("--enable-admin", "--num-threads", "1", "--port", "0", "--served-model-name", "tiny",
         "--max-num-seqs", "16", "--chunk-size", "4096")  # fmt: skip
SMALL = ("--device-memory", "128MiB", "--no-enable-prefix-caching")
LARGE = ("--device-memory", "512MiB")
SLOWER: dict[str, Any] = {
    "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 8,
    "initializer_range": 0.05,
}  # fmt: skip
"""Beside SIZES: a prompt of thousands of tokens takes about a second on one core."""


def model_folder(folder: Path, **sizes: Any) -> Path:
    """A Llama of two layers that takes prompts of MAX_MODEL_LEN; its tokens are bytes and, of the
    letter that folds (contents.py), runs."""
    import torch
    import transformers

    torch.manual_seed(0)
    kind, extra = FAMILIES["llama"]
    own = {"vocab_size": VOCABULARY, "max_position_embeddings": MAX_MODEL_LEN, **sizes}
    config = kind(**{**SIZES, **extra, **own})
    model = transformers.AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    save_folder(model.float(), folder)
    folding_tokenizer().backend.save(str(folder / "tokenizer.json"))
    return folder


def post(url: str, body: dict[str, Any], timeout_s: float = LIMIT_S) -> dict[str, Any]:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


def turn(url: str, **knobs: float) -> None:
    """Knobs of a running engine, through its admin endpoint."""
    post(f"{url}/admin/config", knobs)


def utilization_of(url: str, kv_blocks: int) -> float:
    """The gpu_memory_utilization with which the engine has about so many KV blocks, or the lowest
    it takes. Turns the knob to find out."""
    knob = server_info(url)["knobs"]["gpu_memory_utilization"]
    low, high = float(knob["low"]), float(knob["high"])
    blocks = []
    for share in (low, high):
        turn(url, gpu_memory_utilization=share)
        blocks.append(server_info(url)["kv_blocks_cap"])
    share = low + (high - low) * (kv_blocks - blocks[0]) / (blocks[1] - blocks[0])
    return float(min(max(share, low), high))


@dataclass
class Load:
    """clients in a closed loop; pause_s between a client's requests. url, output_tokens, patience_s
    may change meanwhile.

    asks: of a request, in place of the usual. patience_s: a client that waits longer goes away.
    comes_back: refused, or tired of waiting, it asks for something else after its pause. finished:
    answers so far; faults: what went wrong, to be looked at when the load ends.
    """

    url: str
    clients: int
    prompt_tokens: int
    output_tokens: int
    pause_s: float = 0.0
    content: Content = fresh
    asks: dict[str, Any] = field(default_factory=dict)
    patience_s: float = LIMIT_S
    comes_back: bool = False
    finished: int = 0
    faults: list[str] = field(default_factory=list)

    def client(self, number: int, stop: threading.Event) -> None:
        chance = random.Random(number)
        while not stop.is_set():
            prompt = self.content(chance, self.prompt_tokens)
            body = {"model": "tiny", "prompt": prompt, "max_tokens": self.output_tokens,
                    "ignore_eos": True, "temperature": 0, **self.asks}  # fmt: skip
            try:
                post(f"{self.url}/v1/completions", body, self.patience_s)
                self.finished += 1
            except OSError as fault:
                if not self.comes_back:
                    self.faults.append(str(fault))
                    return
            stop.wait(self.pause_s)

    @contextlib.contextmanager
    def offered(self) -> Iterator[Load]:
        with beside(*(partial(self.client, number) for number in range(self.clients))):
            yield self
        assert self.faults == []


class Watch:
    """A target seen through the embedded scraper, and what hysteresis remembers of it.

    Its windows hold nothing of what was before it was opened. signals: of the newest judgement;
    loaded: a request has finished since.
    """

    def __init__(self, url: str, slos: list[str], thresholds: Thresholds = DEFAULT) -> None:
        self.url, self.slos, self.thresholds = url, parse_slos(slos), thresholds
        self.source = open_source(url=url, scrape_interval_s=SCRAPE_S)
        self.history = History()
        self.loaded = False
        self.signals: Signals

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.source.close()

    def judge(self) -> Diagnosis:
        self.signals = collect(
            self.source, window_s=WINDOW_S, known=server_info(self.url), target=self.url,
            quantiles=asked_quantiles(self.slos.clauses),
        )  # fmt: skip
        return diagnose(self.signals, self.slos, self.history, thresholds=self.thresholds)

    def until(self, holds: Callable[[Diagnosis], bool], limit_s: float = LIMIT_S) -> Diagnosis:
        """The diagnosis once `holds` was true EVALUATIONS times in a row, or the last of limit_s.

        Nothing counts before a request of the load has finished.
        """
        held, end_s = 0, time.monotonic() + limit_s
        while True:
            time.sleep(2 * SCRAPE_S)
            diagnosis = self.judge()
            self.loaded = self.loaded or bool(self.signals.value("finished"))
            held = held + 1 if self.loaded and holds(diagnosis) else 0
            if held >= EVALUATIONS or time.monotonic() > end_s:
                assert self.loaded, "no request of the load finished"
                return diagnosis


def look(
    url: str,
    slos: list[str],
    until: Callable[[Diagnosis], bool],
    thresholds: Thresholds = DEFAULT,
) -> Diagnosis:
    """A watch of its own, for one question."""
    with Watch(url, slos, thresholds) as watch:
        return watch.until(until)


def named_first(node: str, diagnosis: Diagnosis) -> bool:
    return bool(diagnosis.causes) and diagnosis.causes[0].key == node


def named_alone(node: str, diagnosis: Diagnosis) -> bool:
    """The only cause: whatever else fires is a symptom."""
    return [cause.key for cause in diagnosis.causes] == [node]


def calm(diagnosis: Diagnosis, *keys: str) -> bool:
    """Whether none of these nodes fires; of none: whether nothing does."""
    firing = {node.key for node in diagnosis.nodes if node.firing}
    return not (firing & set(keys) if keys else firing)


def usual_s(watch: Watch, name: str) -> float:
    """What the figure is here while nothing is asked of it."""
    well = watch.until(calm)
    assert calm(well), well.headline
    seen_s = watch.signals.value(name)
    assert seen_s is not None
    return seen_s


def levers(diagnosis: Diagnosis, node: str) -> list[str]:
    return [lever.title for lever in diagnosis.node(node).levers]
