"""Expressions over knobs: they calculate and compare, and can do nothing else."""

from __future__ import annotations

import pytest

from tuner.errors import UserError
from tuner.search.expressions import parse_expression

VALUES = {"max_num_seqs": 16, "chunk_size": 64, "kv_cache_dtype": "fp8", "enforce_eager": True}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("chunk_size >= max_num_seqs", True),
        ("chunk_size >= 4 * max_num_seqs", True),
        ("chunk_size > 4 * max_num_seqs", False),
        ("max_num_batched_tokens == 64", True),
        ("16 <= max_num_seqs < chunk_size <= 64", True),
        ("chunk_size % max_num_seqs == 0 and not chunk_size // 7 == 9", False),
        ("chunk_size / max_num_seqs - 1 == 3 or 1 == 2", True),
        ("min(chunk_size, 32, 48) == 32", True),
        ("max(chunk_size, max_num_seqs) + -4 == 60", True),
        ('kv_cache_dtype == "fp8" and enforce_eager', True),
        ("enforce_eager == false", False),
        ("chunk_size / (max_num_seqs - 16) > 1", False),  # a division by zero holds nowhere
    ],
)
def test_what_they_say(text: str, holds: bool) -> None:
    assert parse_expression(text, "--constraint", known=VALUES).holds(VALUES) is holds


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is no expression"),
        ("chunk_size >=", "is no expression"),
        ("chunk_sise > 1", "did you mean chunk_size?"),
        ("kv_cache_dtype == fp8", "a word stands in quotes"),
        ("__import__('os').system('true')", "but not"),
        ("open('x', 'w')", "only min and max"),
        ("min(chunk_size)", "but not"),
        ("chunk_size ** 99 > 1", "but not"),
        ("chunk_size << 99", "but not"),
        ("[1, 2]", "but not"),
        ("(lambda: 1)()", "but not"),
        ("chunk_size.real > 1", "but not"),
        ("chunk_size if enforce_eager else 1", "but not"),
        ("chunk_size is 5", "compares with"),
        ("(chunk_size := 5) > 1", "but not"),
        ("1e400j > 1", "but not"),
        ("f'{chunk_size}'", "but not"),
        ("(" * 60 + "1" + ")" * 60 + "+ -" + "-" * 60 + "1", "nested too deeply"),
        ("1" + "+1" * 600, "500 characters"),
        ("(" * 240 + ")" * 240, "is no expression"),
    ],
)
def test_everything_else_is_refused(text: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_expression(text, "--constraint", known=VALUES)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["kv_cache_dtype > 5", "kv_cache_dtype * 9 == 1"])
def test_words_are_not_numbers(text: str) -> None:
    with pytest.raises(UserError, match=r"word with a number \(kv_cache_dtype=fp8"):
        parse_expression(text, "--constraint").holds(VALUES)


def test_flags_of_the_server_itself() -> None:
    values = {"--max-num-partial-prefills": 4, "chunk_size": 64}
    expression = parse_expression("max_num_partial_prefills * 8 < chunk_size", "", known=values)
    assert expression.names == {"--max-num-partial-prefills", "chunk_size"}
    assert expression.holds(values)


@pytest.mark.parametrize(
    "text", ["1e308*10*chunk_size", "1e308*10 - 1e308*10", f"{'9' * 400}*1.5", f"{'9' * 400}"]
)
def test_what_leaves_all_bounds_is_no_setting_and_holds_nowhere(text: str) -> None:
    with pytest.raises(UserError, match="gives no finite number"):
        parse_expression(text, "--knob", known=VALUES).value(VALUES)
    condition = parse_expression(f"chunk_size > {text}", "--knob", known=VALUES)
    assert not condition.holds(VALUES)
