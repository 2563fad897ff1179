"""What the clients of a running engine ask: prompts of fresh content, of shared documents, or of
text that takes long to tokenize."""

from __future__ import annotations

import random
from collections.abc import Callable

from engine.tokenizer import Tokenizer
from engine.tokenizer.detokenizer import byte_level_alphabet
from engine.tokenizer.tokenizer import tokenizer_from_metadata

Prompt = list[int] | str
Content = Callable[[random.Random, int], Prompt]
"""A client's random numbers and a length in tokens → the next prompt."""

LETTER = "a"
DOUBLINGS = 10
"""The longest token is 2¹⁰ letters."""

LONGEST = 1 << DOUBLINGS
QUESTION_TOKENS = 20


def fresh(chance: random.Random, tokens: int) -> list[int]:
    """Token ids that no other prompt shares."""
    return [chance.randrange(10, 250) for _ in range(tokens)]


def starting(token: int) -> Content:
    """The same behind a first token of its own: no prompt without it shares a prefix."""

    def prompt(chance: random.Random, tokens: int) -> list[int]:
        return [token, *fresh(chance, tokens - 1)]

    return prompt


def about(documents: int) -> Content:
    """A question of its own at the end of one of so many documents."""

    def prompt(chance: random.Random, tokens: int) -> list[int]:
        document = fresh(random.Random(chance.randrange(documents)), tokens - QUESTION_TOKENS)
        return document + fresh(chance, QUESTION_TOKENS)

    return prompt


def unbroken_text(chance: random.Random, tokens: int) -> str:
    """Text without a space, as of an encoded file: merging its letters is most of the work."""
    return LETTER * (tokens * LONGEST + chance.randrange(LONGEST))


def unbroken_ids(chance: random.Random, tokens: int) -> list[int]:
    """The same as a client tokenizes it."""
    return [LONGEST_ID] * tokens + [chance.randrange(10, 250)]


def _vocabulary() -> list[str]:
    character_of = {byte: character for character, byte in byte_level_alphabet().items()}
    runs = [LETTER * (1 << n) for n in range(1, DOUBLINGS + 1)]
    return [*(character_of[byte] for byte in range(256)), "<|end|>", *runs]


LONGEST_ID = len(_vocabulary()) - 1


def folding_tokenizer() -> Tokenizer:
    """One token per byte, and one per doubling of LETTER."""
    halves = (LETTER * (1 << n) for n in range(DOUBLINGS))
    return tokenizer_from_metadata(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": _vocabulary(),
            "tokenizer.ggml.token_type": [1] * 256 + [3] + [1] * DOUBLINGS,
            "tokenizer.ggml.merges": [f"{half} {half}" for half in halves],
            "tokenizer.ggml.eos_token_id": 256,
        }
    )
