"""A configuration as command-line words of each engine, and back from words to settings.

The one place that knows how a setting is written on a command line: switches without a value,
flags that say the opposite, settings the server works out by itself (no word at all).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from engine.knobs import KNOBS, REPLACING, Knob
from tuner.errors import UserError
from tuner.targets.base import UNSET, Setting, setting_text

Dialect = Literal["slotune", "vllm", "sglang"]
DIALECTS: tuple[Dialect, ...] = ("slotune", "vllm", "sglang")
AUTO = "auto"


def flag_of(knob: Knob, dialect: Dialect) -> str | None:
    """The knob's flag, None where that engine has none."""
    return {
        "slotune": knob.engine_flag, "vllm": knob.vllm_flag, "sglang": knob.sglang_flag,
    }[dialect]  # fmt: skip


def spellings(knob: Knob, dialect: Dialect) -> tuple[str, ...]:
    """The flags by which that engine takes the knob: ours takes vLLM's, too."""
    own = flag_of(knob, dialect)
    if own is None:
        return ()
    return (own, knob.vllm_flag) if dialect == "slotune" and knob.vllm_flag else (own,)


def turned_at_start(
    names: Sequence[str], serve_args: Sequence[str], dialect: Dialect
) -> tuple[str, ...]:
    """The knobs named, and those of serve_args that decide in place of another: what a diagnosis
    may propose to turn. Raises UserError."""
    replacing, _ = split_words(serve_args, REPLACING, dialect)
    return tuple(dict.fromkeys([*names, *replacing]))


def flag_words(
    config: Mapping[str, Setting], dialect: Dialect, *, spoken: Dialect | None = None
) -> list[str]:
    """Words of a command line. Flags handed through as they are belong to the engine `spoken`
    (None: to this one); others leave them out, as they do what they have no flag for."""
    words: list[str] = []
    for name, value in config.items():
        knob = KNOBS.get(name)
        if knob is None:
            if spoken in (None, dialect):
                words += _own(name, value, dialect)
            continue
        flag = _carried(knob, dialect, spoken)
        if flag is None or value in (UNSET, AUTO):
            continue
        if isinstance(value, bool):
            words += _switch(flag, value, dialect, inverted=knob.sglang_inverts)
        else:
            words += [flag, setting_text(value)]
    return words


def left_out(
    config: Mapping[str, Setting], dialect: Dialect, spoken: Dialect | None = None
) -> list[str]:
    """Knobs of a configuration that an engine has no flag for that means the same."""
    return [
        name for name, value in config.items()
        if value not in (UNSET, AUTO)
        and (spoken not in (None, dialect) if name not in KNOBS
             else _carried(KNOBS[name], dialect, spoken) is None)
    ]  # fmt: skip


def split_words(
    words: Sequence[str], names: Sequence[str], dialect: Dialect
) -> tuple[dict[str, Setting], tuple[str, ...]]:
    """(settings of the named knobs that the words hold, all other words). Raises UserError."""
    known = [KNOBS[name] for name in names if name in KNOBS]
    flags = {flag: knob for knob in known for flag in spellings(knob, dialect)}
    found: dict[str, Setting] = {}
    others: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        flag, equals, text = word.partition("=")
        plain = flag.replace("_", "-")
        off = plain.startswith("--no-") and f"--{plain[5:]}" in flags
        knob = flags.get(f"--{plain[5:]}" if off else plain)
        if knob is not None and knob.kind == "bool":
            opposite = dialect == "sglang" and knob.sglang_inverts
            found[knob.name] = off if opposite else not off
        elif knob is not None:
            found[knob.name] = _setting(knob, flag, text if equals else _next(left))
        elif plain in names:
            found[plain] = _raw(text if equals else _next(left))
        else:
            others.append(word)
    return found, tuple(others)


def _carried(knob: Knob, dialect: Dialect, spoken: Dialect | None) -> str | None:
    """The knob's flag; None for the size of a KV pool that another engine was measured with: its
    blocks and what its model takes of the memory are other ones."""
    foreign = spoken not in (None, dialect)
    return None if foreign and knob.replaces else flag_of(knob, dialect)


def _own(name: str, value: Setting, dialect: Dialect) -> list[str]:
    if value == UNSET:
        return []
    if isinstance(value, bool):
        return _switch(name, value, dialect, inverted=False)
    return [name, setting_text(value)]


def _switch(flag: str, value: bool, dialect: Dialect, *, inverted: bool) -> list[str]:
    """SGLang's switches have no opposite; the others write --no-FLAG."""
    if dialect == "sglang":
        return [flag] if value != inverted else []
    return [flag if value else f"--no-{flag.removeprefix('--')}"]


def _next(left: list[str]) -> str:
    return left.pop(0) if left and not left[0].startswith("--") else ""


def _raw(text: str) -> Setting:
    """What a flag that no table knows is set to; one without a value is a switch."""
    if not text:
        return True
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _setting(knob: Knob, flag: str, text: str) -> Setting:
    if text and (knob.kind == "choice" or (text == AUTO and knob.default_cpu == AUTO)):
        return text
    try:
        return _whole(text) if knob.kind == "int" else float(text)
    except (ValueError, OverflowError):
        kinds = {"int": "a whole number", "float": "a number", "choice": "a word"}
        raise UserError(f"--serve-args: {flag} takes {kinds[knob.kind]}, got {text!r}") from None


_FACTORS = {
    letter: base**power
    for base, letters in ((1000, "kmgt"), (1024, "KMGT"))
    for power, letter in enumerate(letters, start=1)
}


def _whole(text: str) -> int:
    """A whole number, as vLLM's flags take it: 8k is 8000, 2G is 2 GiB. Raises ValueError."""
    factor = _FACTORS.get(text[-1:])
    return int(text) if factor is None else round(float(text[:-1]) * factor)
