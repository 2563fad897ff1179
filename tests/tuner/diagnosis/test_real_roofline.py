"""A running engine at its device's roofs: prompts that wait for arithmetic, single tokens that wait
for the weights to be read.

The model is wide, so that little but matrix products is computed. SLOs are shares of what its
requests take on this machine as it is now, and the roofs are told as with `--peak`: those that one
thread reaches beside the engine, and not on a machine of its own.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

import pytest
import torch

from tests.servers import running
from tests.tuner.diagnosis.contents import starting
from tests.tuner.diagnosis.real_engine import (
    FLAGS,
    Load,
    Watch,
    calm,
    levers,
    model_folder,
    named_alone,
    named_first,
    turn,
    usual_s,
)
from tuner.diagnosis import Diagnosis
from tuner.diagnosis.thresholds import DevicePeak, Thresholds
from tuner.slo import parse_slos

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

WIDE = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 4,
    "num_attention_heads": 12, "num_key_value_heads": 4, "initializer_range": 0.02,
}  # fmt: skip
"""Weights of 140 MB in float32, more than a last-level cache holds beside others."""

GOOD = {"max_num_seqs": 16, "chunk_size": 256}
PROMPT_TOKENS = 150
SIDE, STREAM, PIECE = 512, 1 << 26, 1 << 23
"""Of a square product, and of a vector that is summed piece by piece; of float32 numbers."""

BURST_S, BURSTS = 0.1, 6
FAVOURED = {"plausible_ratio": 3.0}
FASTER = "faster device, tensor parallelism or a faster attention kernel"
SHED = "scale out or shed load (--max-num-queued-reqs)"
FEWER_BYTES = "weight or KV quantization, tensor parallelism, speculative decoding"


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("wide")
    model = model_folder(folder / "model", **WIDE)
    own = ("--dtype", "float32", "--chunk-size", "256", "--chunk-size-limit", "256",
           "--device-memory", "1GiB")  # fmt: skip
    arguments = ("serve", "--model", str(model), *FLAGS, *own)
    with running("engine", *arguments, log=folder / "log") as program:
        yield program.url


class Roofs:
    """What one thread reaches here while others run: of the last BURSTS, about a window's, the
    highest counts, since others can only slow it down. They may slow it more than the engine."""

    def __init__(self) -> None:
        self.square, self.stream = torch.ones(SIDE, SIDE), torch.ones(STREAM)
        self.products: deque[float] = deque(maxlen=BURSTS)
        self.sums: deque[float] = deque(maxlen=BURSTS)

    def now(self) -> Thresholds:
        pieces = torch.split(self.stream, PIECE)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self.products.append(per_s(lambda n: torch.mm(self.square, self.square)))
        self.sums.append(per_s(lambda n: torch.sum(pieces[n % len(pieces)])))
        torch.set_num_threads(threads)
        flops_per_s, bytes_per_s = 2.0 * SIDE**3 * max(self.products), 4.0 * PIECE * max(self.sums)
        return Thresholds(FAVOURED, DevicePeak(flops_per_s, bytes_per_s))


def per_s(work: Callable[[int], object]) -> float:
    """Calls per second over a burst; work gets their number."""
    count, began_s = 0, time.perf_counter()
    while (passed_s := time.perf_counter() - began_s) < BURST_S or not count:
        work(count)
        count += 1
    return count / passed_s


def under(watch: Watch, roofs: Roofs, holds: Callable[[Diagnosis], bool]) -> Diagnosis:
    """As watch.until, every look under the roofs as they are then."""

    def look(found: Diagnosis) -> bool:
        watch.thresholds = roofs.now()
        return holds(found)

    return watch.until(look)


def test_prompts_that_wait_for_arithmetic(wide: str) -> None:
    """One client, whose prompt takes a step: only cheaper or more arithmetic could shorten it. Then
    twelve more, so that every step is full; they leave again, as when others serve them."""
    turn(wide, **GOOD)
    roofs = Roofs()
    one, more = (Load(wide, n, PROMPT_TOKENS, 1, content=starting(n)) for n in (1, 12))
    with one.offered(), Watch(wide, ["ttft_p95<60s"], roofs.now()) as watch:
        usual = usual_s(watch, "ttft_p95")
        watch.slos = parse_slos([f"ttft_p95<{usual / 3:.4f}s"])
        ill = under(watch, roofs, lambda found: named_alone("3b.compute", found))
        assert named_alone("3b.compute", ill), ill.headline
        assert levers(ill, "3b.compute") == [FASTER, "quantization on"]

        watch.slos = parse_slos([f"ttft_p95<{3 * usual:.4f}s"])
        with more.offered():
            ill = under(watch, roofs, lambda found: named_alone("3a.compute", found))
            assert named_alone("3a.compute", ill), ill.headline
            assert levers(ill, "3a.compute") == [SHED, FASTER, "quantization on"]
        well = watch.until(lambda found: calm(found, "3"))
    assert calm(well, "3"), well.headline


def test_the_same_prompts_a_token_at_a_time_do_not(wide: str) -> None:
    """Steps of one row read all weights for little arithmetic."""
    turn(wide, chunk_size=1, max_num_seqs=1)
    roofs = Roofs()
    try:
        with (
            Load(wide, 1, PROMPT_TOKENS, 1, content=starting(2)).offered(),
            Watch(wide, ["ttft_p95<50ms"], roofs.now()) as watch,
        ):
            ill = under(watch, roofs, lambda found: named_first("3b.long_prompt", found))
    finally:
        turn(wide, **GOOD)
    assert named_first("3b.long_prompt", ill), ill.headline
    assert calm(ill, "3b.compute"), ill.node("3b.compute").summary


def test_single_tokens_that_wait_for_the_weights(wide: str) -> None:
    """On a busy machine the host is slow too, which is named after it."""
    turn(wide, **GOOD)
    roofs = Roofs()
    with (
        Load(wide, 1, 20, 100, content=starting(3)).offered(),
        Watch(wide, ["itl_p95<60s"], roofs.now()) as watch,
    ):
        usual = usual_s(watch, "itl_p95")
        watch.slos = parse_slos([f"itl_p95<{usual / 3:.5f}s"])
        ill = under(watch, roofs, lambda found: named_first("4.bandwidth", found))
    assert named_first("4.bandwidth", ill), ill.headline
    assert levers(ill, "4.bandwidth") == [FEWER_BYTES, "max_num_seqs down"]
