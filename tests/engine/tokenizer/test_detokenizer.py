"""Incremental text equals the decoding of the whole, and characters are never split."""

import pytest

from engine.tokenizer.detokenizer import IncrementalDetokenizer, TokenBytes, byte_level_alphabet

_CHARACTER_OF = {byte: character for character, byte in byte_level_alphabet().items()}


def byte_tokens() -> TokenBytes:
    """A tokenizer of one token per byte, and special token 256."""
    pieces = {byte: _CHARACTER_OF[byte] for byte in range(256)}
    return TokenBytes(pieces.get, special_ids=[256], alphabet="byte_level")


def pieces_of(token_ids: list[int]) -> list[str]:
    detokenizer = IncrementalDetokenizer(byte_tokens())
    return [*(detokenizer.append(i) for i in token_ids), detokenizer.flush()]


@pytest.mark.parametrize(
    "text", ["plain", "naïve café", "日本語テキスト", "🏳️‍🌈 family 👨‍👩‍👧", "a\u0000b\r\n"]
)
def test_characters_appear_whole_with_their_last_byte(text: str) -> None:
    pieces = pieces_of(list(text.encode()))
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces)
    assert len([piece for piece in pieces if piece]) == len(text)


def test_alphabet_is_a_bijection_over_all_bytes() -> None:
    alphabet = byte_level_alphabet()
    assert sorted(alphabet.values()) == list(range(256))
    assert alphabet["Ġ"] == 0x20
    assert alphabet["Ċ"] == 0x0A


def test_broken_bytes_become_replacement_characters_as_in_a_whole_decode() -> None:
    token_ids = [0xE6, 0x97, 0x41, 0xFF, 0x42]
    assert "".join(pieces_of(token_ids)) == bytes(token_ids).decode(errors="replace")


def test_an_output_that_ends_inside_a_character_shows_one_replacement() -> None:
    assert pieces_of([0x41, 0xE6, 0x97]) == ["A", "", "", "\ufffd"]


def test_special_and_unknown_tokens_add_nothing() -> None:
    assert pieces_of([0x41, 256, 99_999, 0x42]) == ["A", "", "", "B", ""]


def test_byte_fallback_pieces() -> None:
    pieces = {0: "▁Hi", 1: "<0xE6>", 2: "<0x97>", 3: "<0xA5>", 4: "▁x"}
    tokens = TokenBytes(pieces.get, special_ids=[], alphabet="byte_fallback")
    detokenizer = IncrementalDetokenizer(tokens)
    assert [detokenizer.append(i) for i in range(5)] == [" Hi", "", "", "日", " x"]
