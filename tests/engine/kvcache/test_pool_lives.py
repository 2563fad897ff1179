"""The block pool beside a naive model of it, over random moves.

The model keeps plain lists and sets: who holds what, and contents in the order they were last used.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.kvcache.blocks import BlockPool
from engine.kvcache.prefix_hash import PrefixNode, extend

tokens = st.integers(0, 11)


def content(token: int) -> PrefixNode:
    nodes: list[PrefixNode] = []
    extend(nodes, [token], 1, "", 1)
    return nodes[0]


class PoolLives(RuleBasedStateMachine):
    """Holders are block tables; `recent` lists unheld contents, the least recently used first."""

    @initialize(num_blocks=st.integers(1, 10))
    def begin(self, num_blocks: int) -> None:
        self.pool = BlockPool(num_blocks)
        self.tables: list[list[int]] = []
        self.where: dict[int, int] = {}
        self.recent: list[int] = []

    @rule(count=st.integers(1, 6))
    def allocate(self, count: int) -> None:
        available = max(0, self.pool.cap - len(self.used()))
        blocks = self.pool.allocate(count)
        assert (blocks is not None) == (count <= available)
        if blocks is not None:
            assert not set(blocks) & self.used()
            self.tables.append(blocks)
            lost = [token for token in self.recent if self.where[token] in blocks]
            self.evict(len(lost))
            assert not set(lost) & set(self.recent), "not the least recently used went"
            self.trim()

    @precondition(lambda self: self.tables)
    @rule(index=st.integers(0, 99))
    def release(self, index: int) -> None:
        table = self.tables.pop(index % len(self.tables))
        self.pool.release(table)
        still_used = self.used()
        for block in table:
            token = next((t for t, b in self.where.items() if b == block), None)
            if block not in still_used and token is not None:
                self.recent.append(token)
        self.trim()

    @precondition(lambda self: self.tables)
    @rule(index=st.integers(0, 99), token=tokens)
    def register(self, index: int, token: int) -> None:
        block = self.tables[index % len(self.tables)][0]
        if block in self.where.values():  # a block is filled once
            return
        self.pool.register(block, content(token))
        self.where.setdefault(token, block)

    @rule(token=tokens)
    def share(self, token: int) -> None:
        block = self.pool.find(content(token))
        assert block == self.where.get(token)
        if block is not None:
            self.pool.hold(block)
            self.tables.append([block])
            if token in self.recent:
                self.recent.remove(token)

    @rule(share=st.floats(0, 1))
    def cap(self, share: float) -> None:
        self.pool.set_cap(max(1, int(share * self.pool.num_blocks)))
        self.trim()

    @rule()
    def clear(self) -> None:
        self.pool.clear_cache()
        self.where.clear()
        self.recent.clear()

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.pool.check_integrity(self.tables)
        assert self.pool.num_used == len(self.used())
        assert self.pool.num_cached == len(self.recent)
        for token in range(12):
            assert self.pool.find(content(token)) == self.where.get(token)

    def used(self) -> set[int]:
        return {block for table in self.tables for block in table}

    def evict(self, count: int) -> None:
        for token in self.recent[:count]:
            del self.where[token]
        del self.recent[:count]

    def trim(self) -> None:
        """What is cached may not lift use above the cap."""
        self.evict(
            max(0, min(len(self.recent), len(self.used()) + len(self.recent) - self.pool.cap))
        )


TestPoolLives = PoolLives.TestCase
TestPoolLives.settings = settings(
    max_examples=150, stateful_step_count=30, deadline=None, derandomize=True
)
