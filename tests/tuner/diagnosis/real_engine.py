"""A running `engine serve` of a tiny model, clients that keep it loaded, and the tree's look at it.

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
from pathlib import Path
from typing import Any

from storage.sources import open_source
from storage.sources.base import MetricSource
from tests.engine.serve.harness import byte_tokenizer
from tests.engine.tiny_models import FAMILIES, SIZES, save_folder
from tuner.diagnosis import Diagnosis, History, asked_quantiles, collect, diagnose
from tuner.diagnosis.server_info import server_info
from tuner.diagnosis.thresholds import DEFAULT, Thresholds
from tuner.slo import parse_slos

MAX_MODEL_LEN = 4096
VOCABULARY = 260
SCRAPE_S = 0.5
WINDOW_S = 6.0
LIMIT_S = 60.0
EVALUATIONS = 3
"""So many in a row that agree end a look: nodes fire after 2."""


def tiny_folder(folder: Path) -> Path:
    """A Llama of two layers that takes prompts of MAX_MODEL_LEN, with a tokenizer of bytes."""
    import torch
    import transformers

    torch.manual_seed(0)
    kind, extra = FAMILIES["llama"]
    sizes = {**SIZES, **extra, "vocab_size": VOCABULARY, "max_position_embeddings": MAX_MODEL_LEN}
    save_folder(transformers.AutoModelForCausalLM.from_config(kind(**sizes)).float(), folder)
    byte_tokenizer().backend.save(str(folder / "tokenizer.json"))
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


@dataclass
class Load:
    """clients in a closed loop with prompts of fresh content; pause_s between a client's requests.

    finished: answers so far; faults: what went wrong, to be looked at when the load ends.
    """

    url: str
    clients: int
    prompt_tokens: int
    output_tokens: int
    pause_s: float = 0.0
    finished: int = 0
    faults: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def client(self, number: int) -> None:
        chance = random.Random(number)
        while not self._stop.is_set():
            prompt = [chance.randrange(10, 250) for _ in range(self.prompt_tokens)]
            body = {"model": "tiny", "prompt": prompt, "max_tokens": self.output_tokens,
                    "ignore_eos": True, "temperature": 0}  # fmt: skip
            try:
                post(f"{self.url}/v1/completions", body)
            except OSError as fault:
                self.faults.append(str(fault))
                return
            self.finished += 1
            self._stop.wait(self.pause_s)

    @contextlib.contextmanager
    def offered(self) -> Iterator[Load]:
        threads = [
            threading.Thread(target=self.client, args=(n,), daemon=True)
            for n in range(self.clients)
        ]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(LIMIT_S)
            assert self.faults == []


def look(
    url: str,
    slos: list[str],
    until: Callable[[Diagnosis], bool],
    thresholds: Thresholds = DEFAULT,
) -> Diagnosis:
    """The diagnosis once `until` has held EVALUATIONS times in a row, or the last of LIMIT_S.

    The source is opened anew, so that its window holds nothing of what was before.
    """
    source = open_source(url=url, scrape_interval_s=SCRAPE_S)
    try:
        return _settled(source, url, slos, until, thresholds)
    finally:
        source.close()


def _settled(
    source: MetricSource,
    url: str,
    slos: list[str],
    until: Callable[[Diagnosis], bool],
    thresholds: Thresholds,
) -> Diagnosis:
    wanted, history, held = parse_slos(slos), History(), 0
    end_s = time.monotonic() + LIMIT_S
    while True:
        time.sleep(2 * SCRAPE_S)
        signals = collect(
            source, window_s=WINDOW_S, server_info=server_info(url), target=url,
            quantiles=asked_quantiles(wanted.clauses),
        )  # fmt: skip
        if not (signals.value("finished") or 0.0):
            assert time.monotonic() < end_s, "no request of the load finished"
            continue
        diagnosis = diagnose(signals, wanted, history, thresholds=thresholds)
        held = held + 1 if until(diagnosis) else 0
        if held >= EVALUATIONS or time.monotonic() > end_s:
            return diagnosis
