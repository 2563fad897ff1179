"""The block pool: allocation, sharing, eviction, the cap, and its own bookkeeping check."""

from __future__ import annotations

import pytest

from engine.kvcache.blocks import BlockPool
from engine.kvcache.prefix_hash import PrefixNode, extend


def content(*tokens: int) -> PrefixNode:
    nodes: list[PrefixNode] = []
    extend(nodes, tokens, len(tokens), "", 1)
    return nodes[0]


def taken(pool: BlockPool, count: int) -> list[int]:
    blocks = pool.allocate(count)
    assert blocks is not None
    return blocks


def cached(pool: BlockPool, *contents: PrefixNode) -> list[int]:
    """Fill one block after the other and let them go in that order."""
    blocks = taken(pool, len(contents))
    for block, node in zip(blocks, contents, strict=True):
        pool.register(block, node)
    pool.release(blocks)
    return blocks


def test_allocation_is_all_or_nothing() -> None:
    pool = BlockPool(4)
    held = taken(pool, 3)
    assert pool.allocate(2) is None
    assert pool.num_available == 1
    pool.check_integrity([held])


def test_a_block_without_content_is_free_again_and_with_content_cached() -> None:
    pool = BlockPool(4)
    with_content, without = taken(pool, 2)
    pool.register(with_content, content(1))
    pool.release([with_content, without])
    assert (pool.num_used, pool.num_cached, pool.num_available) == (0, 1, 4)
    pool.check_integrity([])


def test_the_least_recently_used_goes_first() -> None:
    pool = BlockPool(3)
    first, second, third = content(1), content(2), content(3)
    block, *_ = cached(pool, first, second, third)
    pool.hold(block)  # used again: now the most recent
    pool.release([block])
    taken(pool, 1)
    assert [pool.find(node) is not None for node in (first, second, third)] == [True, False, True]


def test_free_blocks_are_taken_before_cached_ones() -> None:
    pool = BlockPool(4)
    cached(pool, content(1), content(2))
    taken(pool, 2)
    assert pool.num_cached == 2


def test_a_held_block_is_never_evicted() -> None:
    pool = BlockPool(3)
    block = cached(pool, content(1))[0]
    pool.hold(block)
    held = taken(pool, 2)
    assert pool.allocate(1) is None
    assert block not in held
    pool.check_integrity([[block], held])


def test_an_evicted_content_is_not_found_in_the_block_that_held_it() -> None:
    """A stale entry would serve the new owner's KV under the old owner's hash."""
    pool = BlockPool(1)
    old, new = content(1), content(2)
    cached(pool, old)
    (block,) = taken(pool, 1)
    assert pool.find(old) is None
    pool.register(block, new)
    pool.release([block])
    assert pool.find(old) is None
    assert pool.find(new) == block


def test_the_first_of_two_equal_blocks_is_the_one_shared() -> None:
    pool = BlockPool(3)
    first, second = taken(pool, 2)
    pool.register(first, content(1))
    pool.register(second, content(1))
    assert pool.find(content(1)) == first
    pool.release([first, second])
    assert (pool.num_cached, pool.num_available) == (1, 3)
    pool.check_integrity([])


def test_sharing_counts_every_holder() -> None:
    pool = BlockPool(2)
    (block,) = taken(pool, 1)
    pool.register(block, content(1))
    pool.hold(block)
    pool.release([block])
    assert (pool.num_used, pool.num_cached) == (1, 0)
    pool.release([block])
    assert (pool.num_used, pool.num_cached) == (0, 1)


def test_a_cap_below_use_lets_nothing_be_taken_until_enough_is_back() -> None:
    pool = BlockPool(8)
    held = taken(pool, 6)
    pool.set_cap(4)
    assert (pool.num_available, pool.allocate(1)) == (0, None)
    pool.release(held[:3])
    assert pool.num_available == 1
    pool.check_integrity([held[3:]])


def test_above_the_cap_a_released_block_is_not_kept_as_cached() -> None:
    pool = BlockPool(4)
    held = taken(pool, 4)
    for token, block in enumerate(held):
        pool.register(block, content(token))
    pool.set_cap(2)
    pool.release(held)
    assert (pool.num_used, pool.num_cached, pool.num_available) == (0, 2, 2)
    pool.check_integrity([])


def test_a_cleared_cache_finds_nothing_and_harms_no_holder() -> None:
    pool = BlockPool(4)
    (held,) = taken(pool, 1)
    pool.register(held, content(1))
    cached(pool, content(2))
    pool.clear_cache()
    assert pool.find(content(1)) is None
    assert pool.find(content(2)) is None
    pool.check_integrity([[held]])
    pool.release([held])
    assert (pool.num_cached, pool.num_available) == (0, 4)


def test_a_second_release_is_refused() -> None:
    pool = BlockPool(2)
    held = taken(pool, 1)
    pool.release(held)
    with pytest.raises(AssertionError, match="more often"):
        pool.release(held)


class TestTheCheckItself:
    """Each fault is injected; a check that cannot see it would be worth nothing."""

    def test_a_leaked_block(self) -> None:
        pool = BlockPool(4)
        held = taken(pool, 2)
        with pytest.raises(AssertionError, match="differ"):
            pool.check_integrity([held[:1]])

    def test_a_block_shared_without_a_count(self) -> None:
        pool = BlockPool(4)
        held = taken(pool, 1)
        with pytest.raises(AssertionError, match="differ"):
            pool.check_integrity([held, held])

    def test_a_block_that_is_nowhere(self) -> None:
        pool = BlockPool(4)
        pool._free.pop()
        with pytest.raises(AssertionError, match="add up"):
            pool.check_integrity([])

    def test_a_block_freed_twice(self) -> None:
        pool = BlockPool(4)
        pool._free[0] = pool._free[1]
        with pytest.raises(AssertionError, match="add up"):
            pool.check_integrity([])

    def test_a_held_block_among_the_free(self) -> None:
        pool = BlockPool(4)
        held = taken(pool, 1)
        pool._free[0] = held[0]
        with pytest.raises(AssertionError, match="two states"):
            pool.check_integrity([held])

    def test_a_stale_index_entry(self) -> None:
        pool = BlockPool(4)
        (block,) = cached(pool, content(1))
        del pool._cached[block]
        pool._free.append(block)
        with pytest.raises(AssertionError, match="without content"):
            pool.check_integrity([])

    def test_content_that_nobody_can_find(self) -> None:
        pool = BlockPool(4)
        cached(pool, content(1))
        pool._by_hash.clear()
        with pytest.raises(AssertionError, match="does not know"):
            pool.check_integrity([])
