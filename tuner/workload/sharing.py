"""How many prompt tokens a workload repeats by itself: what a prefix cache may rightly find.

A hit rate above it comes from an earlier measurement's content or from other traffic.
"""

from __future__ import annotations

from collections.abc import Iterable

from tuner.workload.content import BLOCK_TOKENS
from tuner.workload.model import Workload


def repeated_share(
    workload: Workload, seed: int, requests: Iterable[tuple[int, int]]
) -> float | None:
    """Repeated ÷ all prompt tokens of the (session, turn) pairs in their order, 0 to 1.

    None where the prompts are a file's text, whose sharing no one has counted, or for no requests.
    """
    if workload.source is not None and workload.source.rows.has_text:
        return None
    sent = repeated = 0
    known: set[tuple[int, int]] = set()
    for session, turn in requests:
        prompt, _, group = workload.lengths(seed, session, turn)
        sent += prompt
        if turn:
            repeated += prompt - workload.added(seed, session, turn)[0]
        elif workload.source is not None and workload.source.rows.blocks is not None:
            row, again = workload.source.row(seed, session)
            ids = workload.source.rows.blocks.of(row)[: prompt // BLOCK_TOKENS]
            blocks = [(again, block) for block in ids]
            first_new = next(
                (i for i, block in enumerate(blocks) if block not in known), len(blocks)
            )
            repeated += first_new * BLOCK_TOKENS
            known.update(blocks)
        else:
            repeated += workload.shared_prefix if (0, group) in known else 0
            known.add((0, group))
    return repeated / sent if sent else None
