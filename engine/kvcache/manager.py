"""Block tables of sequences: prefix look-up, growth, registration of full blocks, release.

Invariant: a block is shared only with content that is identical up to its end, and only once all
of its tokens are computed.
"""

from __future__ import annotations

from engine.kvcache.blocks import BlockPool
from engine.kvcache.prefix_hash import extend
from engine.sequence import Sequence


class KVCacheManager:
    """Gives sequences their blocks. All amounts are in blocks of block_size tokens."""

    def __init__(self, pool: BlockPool, block_size: int, *, enable_prefix_caching: bool) -> None:
        self.pool = pool
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching

    @property
    def usage(self) -> float:
        """Share of usable blocks that are held, 0 … 1 (above only just after a lowered cap)."""
        return self.pool.num_used / max(1, self.pool.cap)

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def find_prefix(self, sequence: Sequence) -> list[int]:
        """Cached blocks that hold the sequence's head; its last token is always left to compute,
        and all are where the prompt's own logits are wanted: the cache holds none."""
        if not self.enable_prefix_caching or sequence.needs_prompt_logits:
            return []
        num_full = (sequence.num_tokens - 1) // self.block_size
        nodes = sequence.prefix_nodes
        extend(nodes, sequence.token_ids, self.block_size, sequence.cache_salt, num_full)
        found = []
        for node in nodes[:num_full]:
            block_id = self.pool.find(node)
            if block_id is None:
                break
            found.append(block_id)
        return found

    def missing_blocks(self, sequence: Sequence) -> int:
        """Blocks the sequence still has to get before all its present tokens are computed."""
        return max(0, self.blocks_for(sequence.num_tokens) - len(sequence.block_table))

    def fits(self, sequence: Sequence, prefix: list[int], promised: int) -> bool:
        """Whether all of the sequence's present tokens fit beside `promised` blocks of others.

        A prefix block that somebody holds costs nothing; a cached one leaves the available ones.
        """
        shared = sum(1 for block_id in prefix if self.pool.num_holders(block_id))
        needed = self.blocks_for(sequence.num_tokens) - shared
        return needed + promised <= self.pool.num_available

    def take_prefix(self, sequence: Sequence, prefix: list[int]) -> None:
        """Start the sequence's block table with cached blocks."""
        for block_id in prefix:
            self.pool.hold(block_id)
        sequence.block_table.extend(prefix)
        sequence.num_registered_blocks = len(prefix)
        sequence.num_computed_tokens = len(prefix) * self.block_size

    def grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """Make the block table cover num_tokens; False and nothing changed when blocks lack."""
        missing = self.blocks_for(num_tokens) - len(sequence.block_table)
        if missing <= 0:
            return True
        blocks = self.pool.allocate(missing)
        if blocks is None:
            return False
        sequence.block_table.extend(blocks)
        return True

    def register_full_blocks(self, sequence: Sequence) -> None:
        """Make newly filled blocks findable by others."""
        num_full = sequence.num_computed_tokens // self.block_size
        if not self.enable_prefix_caching or num_full <= sequence.num_registered_blocks:
            return
        nodes = sequence.prefix_nodes
        extend(nodes, sequence.token_ids, self.block_size, sequence.cache_salt, num_full)
        for index in range(sequence.num_registered_blocks, num_full):
            self.pool.register(sequence.block_table[index], nodes[index])
        sequence.num_registered_blocks = num_full

    def release(self, sequence: Sequence) -> None:
        """Give all blocks back, the tail first, so that it is also evicted first."""
        self.pool.release(reversed(sequence.block_table))
        sequence.block_table.clear()
        sequence.num_registered_blocks = 0
