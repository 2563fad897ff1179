"""The pool of KV blocks: who holds which, what is cached, what goes first.

Invariant: every block is exactly one of free (no content), cached (content, no holder, evictable)
or used (at least one holder), and used + cached ≤ cap whenever use allows it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from engine.kvcache.prefix_hash import PrefixNode, same_prefix


class BlockPool:
    """Blocks 0 … num_blocks-1, at most `cap` of them in use or cached.

    Cached blocks are evicted least recently used first; a sequence's blocks are released from the
    tail, so that the shared head of a prefix outlives its tail.
    """

    def __init__(self, num_blocks: int, cap: int | None = None) -> None:
        self.num_blocks = num_blocks
        self.cap = num_blocks if cap is None else cap
        self._free = list(range(num_blocks - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._num_holders = [0] * num_blocks
        self._content: list[PrefixNode | None] = [None] * num_blocks
        self._by_hash: dict[int, int] = {}

    @property
    def num_cached(self) -> int:
        return len(self._cached)

    @property
    def num_used(self) -> int:
        return self.num_blocks - len(self._free) - len(self._cached)

    @property
    def num_available(self) -> int:
        """Blocks that could be allocated now, cached ones included; 0 when over the cap."""
        return max(0, self.cap - self.num_used)

    def num_holders(self, block_id: int) -> int:
        return self._num_holders[block_id]

    def allocate(self, count: int) -> list[int] | None:
        """`count` blocks without content and with one holder each, or None and nothing taken."""
        if count > self.num_available:
            return None
        taken = []
        for _ in range(count):
            if not self._free or self.num_used + len(self._cached) >= self.cap:
                self._evict_oldest()
            block_id = self._free.pop()
            self._num_holders[block_id] = 1
            taken.append(block_id)
        return taken

    def find(self, node: PrefixNode) -> int | None:
        """The block that holds exactly this content, or None."""
        block_id = self._by_hash.get(node.hash)
        if block_id is None or not same_prefix(self._content[block_id], node):
            return None
        return block_id

    def hold(self, block_id: int) -> None:
        """One more holder for a block with content."""
        if self._num_holders[block_id] == 0:
            del self._cached[block_id]
        self._num_holders[block_id] += 1

    def release(self, block_ids: Iterable[int]) -> None:
        """One holder less for each; a block without holders stays cached if it has content."""
        for block_id in block_ids:
            holders = self._num_holders[block_id]
            if holders <= 0:
                raise AssertionError(f"block {block_id} is released more often than it was held")
            self._num_holders[block_id] = holders - 1
            if holders == 1:
                self._put_back(block_id)
        self._make_room()

    def register(self, block_id: int, node: PrefixNode) -> None:
        """Make a held, fully computed block findable. The first of two equal blocks stays it."""
        if node.hash not in self._by_hash:
            self._by_hash[node.hash] = block_id
            self._content[block_id] = node

    def set_cap(self, cap: int) -> None:
        """Change the cap now; what is in use stays, cached blocks make room."""
        self.cap = cap
        self._make_room()

    def clear_cache(self) -> None:
        """Forget all content; blocks in use stay with their holders."""
        while self._cached:
            self._evict_oldest()
        for node_hash, block_id in list(self._by_hash.items()):
            self._content[block_id] = None
            del self._by_hash[node_hash]

    def check_integrity(self, holders: Iterable[Iterable[int]]) -> None:
        """Raise AssertionError unless the pool agrees with the block tables given."""
        counted = [0] * self.num_blocks
        for block_table in holders:
            for block_id in block_table:
                counted[block_id] += 1
        if counted != self._num_holders:
            wrong = [i for i, n in enumerate(counted) if n != self._num_holders[i]]
            raise AssertionError(f"holders of blocks {wrong[:8]} differ from the block tables")
        free, cached = set(self._free), set(self._cached)
        used = {i for i, n in enumerate(counted) if n}
        if len(free) != len(self._free) or len(free) + len(cached) + len(used) != self.num_blocks:
            raise AssertionError("free + cached + used blocks do not add up to the pool")
        if free & cached or free & used or cached & used:
            raise AssertionError("a block is in two states at once")
        for node_hash, block_id in self._by_hash.items():
            node = self._content[block_id]
            if node is None or node.hash != node_hash or block_id in free:
                raise AssertionError(f"the cache index points to block {block_id} without content")
        if sum(node is not None for node in self._content) != len(self._by_hash):
            raise AssertionError("a block has content that the cache index does not know")
        if any(self._content[block_id] is None for block_id in cached):
            raise AssertionError("a cached block has no content")

    def _put_back(self, block_id: int) -> None:
        if self._content[block_id] is None:
            self._free.append(block_id)
        else:
            self._cached[block_id] = None

    def _make_room(self) -> None:
        """Evict what is cached above the cap."""
        while self._cached and self.num_used + len(self._cached) > self.cap:
            self._evict_oldest()

    def _evict_oldest(self) -> None:
        block_id, _ = self._cached.popitem(last=False)
        node = self._content[block_id]
        assert node is not None
        del self._by_hash[node.hash]
        self._content[block_id] = None
        self._free.append(block_id)
