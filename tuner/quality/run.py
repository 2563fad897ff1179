"""All items of a task, several at a time, and the share that was right with its interval.

Invariant: an item that failed counts as wrong, and the result tells how many did; where every item
failed there is no accuracy at all.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from tuner.endpoint import Endpoint
from tuner.quality.ask import DEFAULT_TIMEOUT_S, ItemResult, ask, check_scoring
from tuner.quality.task import Item, Task
from tuner.stats import Estimate
from tuner.stats.rates import clopper_pearson

DEFAULT_CONCURRENCY = 8

OnItem = Callable[[int, int], None]
"""(items done, of how many)"""


@dataclass(frozen=True, slots=True)
class QualityResult:
    """results are in the task's order."""

    task: Task
    results: tuple[ItemResult, ...]
    took_s: float

    @property
    def accuracy(self) -> Estimate:
        """Right answers ÷ items: choices by the sum of their tokens' log-probabilities."""
        return _share([result.right for result in self.results], self.failures)

    @property
    def accuracy_by_length(self) -> Estimate:
        """The same with each choice's sum divided by its characters."""
        rights = [
            result.right if result.right_by_length is None else result.right_by_length
            for result in self.results
        ]
        return _share(rights, self.failures)

    @property
    def failures(self) -> list[tuple[str, int]]:
        """Why items failed, the commonest first, with their counts."""
        return Counter(r.failure for r in self.results if r.failure).most_common()

    @property
    def num_failed(self) -> int:
        return sum(count for _, count in self.failures)

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "task": self.task.name,
            "items": len(self.results),
            "multiple_choice": self.task.num_multiple_choice,
            "exact_match": len(self.results) - self.task.num_multiple_choice,
            "failed": self.num_failed,
            "failures": [list(one) for one in self.failures],
            "accuracy": self.accuracy.as_dict(),
            "accuracy_by_length": self.accuracy_by_length.as_dict(),
            "chance": self.task.chance,
            "took_s": self.took_s,
            "results": [
                {"line": r.item.line, "right": r.right, "said": r.said, "failure": r.failure}
                for r in self.results
            ],
        }


def run_task(
    endpoint: Endpoint,
    task: Task,
    *,
    concurrency: int = DEFAULT_CONCURRENCY,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    on_item: OnItem | None = None,
) -> QualityResult:
    """Put every item to the server, `concurrency` at a time.

    endpoint must have been probed. Raises UserError where the server cannot score choices, and
    KeyboardInterrupt.
    """
    if task.num_multiple_choice:
        check_scoring(endpoint, timeout_s)
    began_s = time.monotonic()
    results: dict[int, ItemResult] = {}
    for place, result in _asked(endpoint, task.items, concurrency, timeout_s):
        results[place] = result
        if on_item is not None:
            on_item(len(results), len(task.items))
    ordered = tuple(results[place] for place in range(len(task.items)))
    return QualityResult(task, ordered, time.monotonic() - began_s)


def _asked(
    endpoint: Endpoint, items: Sequence[Item], concurrency: int, timeout_s: float
) -> Iterator[tuple[int, ItemResult]]:
    """(place, result) of each item as it comes. The threads are daemons: a pool's would keep
    Ctrl-C waiting for a server that hangs."""
    waiting = deque(enumerate(items))
    done: SimpleQueue[tuple[int, ItemResult | Exception]] = SimpleQueue()

    def work() -> None:
        while True:
            try:
                place, item = waiting.popleft()
            except IndexError:
                return
            try:
                done.put((place, ask(endpoint, item, timeout_s)))
            except Exception as fault:
                done.put((place, fault))

    for _ in range(min(concurrency, len(items))):
        threading.Thread(target=work, name="quality", daemon=True).start()
    try:
        for _ in items:
            place, result = done.get()
            if isinstance(result, Exception):
                raise result
            yield place, result
    finally:
        waiting.clear()


def quality_estimate(
    endpoint: Endpoint,
    task: Task,
    *,
    by_length: bool = False,
    concurrency: int = DEFAULT_CONCURRENCY,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    on_item: OnItem | None = None,
) -> Estimate:
    """The accuracy alone, as a Measurement holds it. Raises UserError."""
    result = run_task(
        endpoint, task, concurrency=concurrency, timeout_s=timeout_s, on_item=on_item
    )  # fmt: skip
    return result.accuracy_by_length if by_length else result.accuracy


def _share(rights: Sequence[bool], failures: Sequence[tuple[str, int]]) -> Estimate:
    """Questions do not depend on their order, so every one of them is a sample."""
    n = len(rights)
    failed = sum(count for _, count in failures)
    if failed == n:
        return Estimate.missing("share", f"every item failed: {failures[0][0]}")
    low, high = clopper_pearson(sum(rights), n)
    method = "Clopper-Pearson interval"
    if failed:
        method += f", {failed} failed items counted as wrong"
    return Estimate(sum(rights) / n, low, high, n, "share", method)
