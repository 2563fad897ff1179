"""Prefix identity and look-up: chained, salted, verified, and linear in the prompt's length."""

from __future__ import annotations

import pytest

from engine.kvcache import prefix_hash
from engine.kvcache.blocks import BlockPool
from engine.kvcache.manager import KVCacheManager
from engine.kvcache.prefix_hash import PrefixNode, extend, same_prefix
from engine.sampling_params import SamplingParams
from engine.sequence import Sequence

BLOCK = 4


def chain(tokens: list[int], salt: str = "") -> list[PrefixNode]:
    nodes: list[PrefixNode] = []
    extend(nodes, tokens, BLOCK, salt, len(tokens) // BLOCK)
    return nodes


def manager(num_blocks: int = 64, *, caching: bool = True) -> KVCacheManager:
    return KVCacheManager(BlockPool(num_blocks), BLOCK, enable_prefix_caching=caching)


def sequence(tokens: list[int], salt: str = "") -> Sequence:
    return Sequence("x", tokens, SamplingParams(), cache_salt=salt)


def compute(kv: KVCacheManager, tokens: list[int], salt: str = "") -> Sequence:
    """A sequence all of whose tokens are computed; it still holds its blocks."""
    made = sequence(tokens, salt)
    kv.take_prefix(made, kv.find_prefix(made))
    assert kv.grow(made, made.num_tokens)
    made.num_computed_tokens = made.num_tokens
    kv.register_full_blocks(made)
    return made


class TestIdentity:
    def test_the_same_block_after_another_beginning_is_another(self) -> None:
        one, other = chain([1, 1, 1, 1, 5, 5, 5, 5]), chain([2, 2, 2, 2, 5, 5, 5, 5])
        assert one[1].token_ids == other[1].token_ids
        assert one[1].hash != other[1].hash
        assert not same_prefix(one[1], other[1])

    def test_a_salt_makes_another_prefix(self) -> None:
        assert chain([1] * 8)[1].hash != chain([1] * 8, "tenant")[1].hash
        assert not same_prefix(chain([1] * 8)[1], chain([1] * 8, "tenant")[1])

    def test_a_shorter_chain_is_not_the_end_of_a_longer_one(self) -> None:
        assert not same_prefix(chain([1] * 8)[1], chain([1] * 4)[0])
        assert not same_prefix(chain([1] * 4)[0], chain([1] * 8)[1])

    def test_nothing_is_not_something(self) -> None:
        assert not same_prefix(None, chain([1] * 4)[0])

    def test_equal_chains_are_joined_and_stay_equal(self) -> None:
        one, other = chain(list(range(40))), chain(list(range(40)))
        assert all(same_prefix(a, b) for a, b in zip(one, other, strict=True))
        assert other[-1].parent is one[-1].parent
        assert not same_prefix(one[-1], chain([9, *range(1, 40)])[-1])

    def test_a_growing_sequence_keeps_its_hashes(self) -> None:
        nodes = chain([1, 2, 3, 4])
        before = nodes[0]
        extend(nodes, [1, 2, 3, 4, 5, 6, 7, 8], BLOCK, "", 2)
        assert nodes[0] is before
        assert nodes[1].hash == chain([1, 2, 3, 4, 5, 6, 7, 8])[1].hash

    def test_a_very_long_chain_can_be_forgotten(self) -> None:
        nodes = chain(list(range(400_000)))
        assert len(nodes) == 100_000
        nodes.clear()


class TestLookUp:
    @pytest.mark.parametrize(("num_tokens", "found"), [(3, 0), (8, 1), (9, 2), (11, 2), (13, 3)])
    def test_only_full_blocks_and_never_the_last_token(self, num_tokens: int, found: int) -> None:
        kv = manager()
        compute(kv, list(range(20)))
        assert len(kv.find_prefix(sequence(list(range(num_tokens))))) == found

    def test_a_block_is_found_only_once_all_of_it_is_computed(self) -> None:
        kv = manager()
        made = sequence(list(range(9)))
        assert kv.grow(made, 9)
        made.num_computed_tokens = 7
        kv.register_full_blocks(made)
        assert len(kv.find_prefix(sequence(list(range(9))))) == 1

    def test_the_prefix_ends_where_the_prompts_part(self) -> None:
        kv = manager()
        first = compute(kv, [1] * 12)
        found = kv.find_prefix(sequence([1] * 8 + [2] * 8))
        assert found == first.block_table[:2]

    def test_salts_share_nothing(self) -> None:
        kv = manager()
        compute(kv, [1] * 12, "a")
        assert kv.find_prefix(sequence([1] * 12, "b")) == []

    def test_a_hole_ends_the_prefix(self) -> None:
        """The tail alone is worth nothing: attention needs what comes before it."""
        kv = manager()
        first = compute(kv, [1] * 16)
        kv.release(first)
        kv.pool.clear_cache()
        again = sequence([1] * 16)
        assert kv.grow(again, 16)
        again.num_computed_tokens = 16
        again.num_registered_blocks = 1  # the head itself is not findable
        kv.register_full_blocks(again)
        assert kv.find_prefix(sequence([1] * 16)) == []

    def test_the_head_of_a_prefix_outlives_its_tail(self) -> None:
        kv = manager(num_blocks=4)
        kv.release(compute(kv, [1] * 16))
        other = sequence([2] * 8)
        assert kv.grow(other, 8)
        assert len(kv.find_prefix(sequence([1] * 16))) == 2

    def test_off_means_off(self) -> None:
        kv = manager(caching=False)
        kv.release(compute(kv, [1] * 16))
        assert kv.find_prefix(sequence([1] * 16)) == []
        assert kv.pool.num_cached == 0

    def test_equal_hashes_of_other_tokens_are_not_served(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(prefix_hash, "block_hash", lambda *_: 7)
        kv = manager()
        victim = compute(kv, [1] * 8)
        assert kv.find_prefix(sequence([2] * 8)) == []
        assert kv.find_prefix(sequence([1] * 8, "tenant")) == []
        assert kv.find_prefix(sequence([1] * 8)) == victim.block_table[:1]

    def test_verification_grows_with_the_length_not_its_square(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Counted, not timed: an unjoined chain of 500 blocks would need 125,000 comparisons."""
        kv = manager(num_blocks=600)
        prompt = list(range(2_001))
        compute(kv, prompt)
        compared = 0

        class Counted(tuple[int, ...]):
            __hash__ = tuple.__hash__

            def __ne__(self, other: object) -> bool:
                nonlocal compared
                compared += 1
                return tuple.__ne__(self, other)

        asked = sequence(prompt)
        extend(asked.prefix_nodes, prompt, BLOCK, "", 500)
        for node in asked.prefix_nodes:
            node.token_ids = Counted(node.token_ids)
        assert len(kv.find_prefix(asked)) == 500
        assert compared <= 2_000


class TestRoom:
    def test_growth_is_all_or_nothing(self) -> None:
        kv = manager(num_blocks=2)
        made = sequence([1] * 20)
        assert not kv.grow(made, 9)
        assert made.block_table == []
        assert kv.grow(made, 8)
        assert kv.missing_blocks(made) == 3

    def test_held_prefix_blocks_cost_nothing_and_cached_ones_do(self) -> None:
        kv = manager(num_blocks=4)
        holder = compute(kv, [1] * 8)
        asked = sequence([1] * 8 + [2] * 8)
        prefix = kv.find_prefix(asked)
        assert kv.fits(asked, prefix, promised=0)
        assert not kv.fits(asked, prefix, promised=1)
        kv.release(holder)
        assert kv.fits(asked, prefix, promised=0)
        other = sequence([3] * 4)
        assert kv.grow(other, 4)
        assert not kv.fits(asked, prefix, promised=0)

    def test_usage_counts_cached_blocks_as_free(self) -> None:
        kv = manager(num_blocks=8)
        made = compute(kv, [1] * 16)
        assert kv.usage == 0.5
        kv.release(made)
        assert kv.usage == 0.0
