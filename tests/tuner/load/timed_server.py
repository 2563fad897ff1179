"""The scripted server in a process of its own: python -m tests.tuner.load.timed_server NAME

Prints its address, answers by the named script until its input ends, then prints when it sent what:
a JSON list of monotonic times for each request. Both processes read the same clock.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from tests.tuner.fake_server import (
    DONE,
    FakeServer,
    Reply,
    Script,
    answer,
    delta,
    refusal,
    steps,
    text,
    tokens,
    usage,
)


class Stall:
    """Everything that comes while request 5 is worked on waits 0.5 s for its end."""

    def __init__(self) -> None:
        self.until_s = 0.0

    def __call__(self, index: int, body: dict[str, Any]) -> Reply:
        if index == 5:
            self.until_s = time.monotonic() + 0.5
        return answer(body, first_s=max(0.0, self.until_s - time.monotonic()))


def chat(*parts: Any) -> Script:
    return lambda _, __: steps(*parts, usage(2), DONE)


SCRIPTS: dict[str, Script] = {
    "plain": lambda _, __: tokens(4, first_s=0.02, gap_s=0.01),
    "empty_first": chat(
        delta(0.005, role="assistant"), delta(content=""), delta(0.05, content="x"),
        delta(0.01, finish="stop"),
    ),
    "reasoning": chat(delta(0.01, reasoning_content="hm"), delta(0.05, content="x"),
                      delta(finish="stop")),
    "several": lambda _, __: tokens(9, first_s=0.02, gap_s=0.03, per_chunk=3),
    "refusing": lambda index, body: refusal() if index % 2 else answer(body, first_s=0.02),
    "empty": lambda _, __: steps(text("", finish="stop"), usage(0), DONE),
    "stall": Stall(),
}  # fmt: skip


def main() -> None:
    with FakeServer(SCRIPTS[sys.argv[1]]) as server:
        print(server.url, flush=True)
        sys.stdin.read()
    print(json.dumps(server.sent))


if __name__ == "__main__":
    main()
