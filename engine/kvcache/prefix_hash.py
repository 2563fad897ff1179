"""The identity of a full KV block: its tokens and everything before them.

A block's KV depends on all tokens up to its end and on the salt, so its hash is chained. A hash is
only a way to find a candidate: `same_prefix` compares the tokens of the whole chain, so that a
collision (made by chance or on purpose) can never serve one request's KV to another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class PrefixNode:
    """One full block's content: its tokens after its parent's. The root's parent is None.

    Only `same_prefix` changes a node: its parent becomes an equal one.
    """

    parent: PrefixNode | None
    token_ids: tuple[int, ...]
    salt: str
    hash: int


def block_hash(parent_hash: int, token_ids: tuple[int, ...], salt: str) -> int:
    return hash((parent_hash, token_ids, salt))


def extend(
    nodes: list[PrefixNode], token_ids: Sequence[int], block_size: int, salt: str, num_blocks: int
) -> None:
    """Grow nodes to the first num_blocks full blocks of token_ids."""
    for index in range(len(nodes), num_blocks):
        parent = nodes[-1] if nodes else None
        block = tuple(token_ids[index * block_size : (index + 1) * block_size])
        parent_hash = parent.hash if parent else 0
        nodes.append(PrefixNode(parent, block, salt, block_hash(parent_hash, block, salt)))


def same_prefix(known: PrefixNode | None, node: PrefixNode | None) -> bool:
    """Whether two chains hold the same tokens under the same salt.

    Chains that share a node agree from there on, so what has proved equal is joined: node takes
    over known's parent. Comparing a chain block by block from its head then costs a few
    comparisons a block, not the square of its length.
    """
    a, b = known, node
    while a is not b:
        if a is None or b is None or a.token_ids != b.token_ids or a.salt != b.salt:
            return False
        a, b = a.parent, b.parent
    if known is not None and node is not None:
        node.parent = known.parent
    return True
