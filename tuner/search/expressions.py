"""Expressions over knobs: `chunk_size >= 4 * max_num_seqs and dtype == "auto"`.

Parsed once into closures from a short list of syntax; nothing is ever given to Python to execute.
Invariant: an expression that parses can only compare, calculate and choose among its knobs' values.
"""

from __future__ import annotations

import ast
import difflib
import math
import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.knobs import KNOB_ALIASES
from tuner.errors import UserError
from tuner.targets.base import Setting

MAX_LENGTH = 500
MAX_DEPTH = 40
_WORDS: dict[str, Setting] = {"true": True, "false": False}

Values = Mapping[str, Setting]
_Read = Callable[[Values], Any]

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max}


@dataclass(frozen=True, slots=True)
class Expression:
    """text as it was written; names: the knobs it reads."""

    text: str
    names: frozenset[str]
    _read: _Read = field(compare=False, repr=False)

    def value(self, values: Values) -> Setting:
        """The result; UserError where its parts cannot be combined (a word and a number)."""
        try:
            result = self._read(values)
        except ZeroDivisionError:
            raise UserError(f"{self.text!r} divides by zero") from None
        except TypeError:
            raise UserError(
                f"{self.text!r} combines a word with a number ({_shown(values, self.names)})"
            ) from None
        except OverflowError:
            result = math.inf
        if isinstance(result, (int, float)) and not abs(result) <= sys.float_info.max:
            raise UserError(f"{self.text!r} gives no finite number ({_shown(values, self.names)})")
        if not isinstance(result, (bool, int, float, str)):
            raise UserError(f"{self.text!r} gives no setting")
        return result

    def holds(self, values: Values) -> bool:
        """Whether a condition is true; one that divides by zero, or leaves all bounds, is not."""
        try:
            return bool(self._read(values))
        except (ZeroDivisionError, OverflowError):
            return False
        except TypeError:
            raise UserError(
                f"{self.text!r} compares a word with a number ({_shown(values, self.names)})"
            ) from None


def parse_expression(text: str, flag: str, known: Iterable[str] | None = None) -> Expression:
    """flag names the option in faults; known: the knobs it may read, None for any name.

    Raises UserError with what is wrong and what would be right.
    """
    if len(text) > MAX_LENGTH:
        raise UserError(f"{flag}: an expression may have {MAX_LENGTH} characters at most")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UserError(
            f'{flag} {text!r} is no expression; write for example "chunk_size >= max_num_seqs"'
        ) from None
    reader = _Reader(text, flag, None if known is None else frozenset(known))
    read = reader.compile(tree.body, 0)
    return Expression(text.strip(), frozenset(reader.names), read)


def expression_name(name: str) -> str:
    """How an expression names a knob: a flag's own name without its dashes."""
    return name.lstrip("-").replace("-", "_")


class _Reader:
    """Turns one syntax tree into a closure, noting the knobs it reads."""

    def __init__(self, text: str, flag: str, known: frozenset[str] | None) -> None:
        self._text, self._flag = text, flag
        self._known = None if known is None else {expression_name(name): name for name in known}
        self.names: set[str] = set()

    def compile(self, node: ast.expr, depth: int) -> _Read:
        if depth > MAX_DEPTH:
            raise self._fault("is nested too deeply")
        match node:
            case ast.Constant(value=value) if isinstance(value, (bool, int, float, str)):
                return lambda values: value
            case ast.Name(id=name):
                return self._name(name)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                return self._binary(_ARITHMETIC[type(op)], left, right, depth)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.compile(operand, depth + 1)
                return lambda values: -inner(values)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self.compile(operand, depth + 1)
                return lambda values: not inner(values)
            case ast.BoolOp(op=op, values=parts):
                return self._junction(isinstance(op, ast.And), parts, depth)
            case ast.Compare(left=left, ops=ops, comparators=rest):
                return self._comparison(left, ops, rest, depth)
            case ast.Call(func=ast.Name(id=name), args=[_, _, *_] as args, keywords=[]):
                return self._call(name, args, depth)
        raise self._fault(
            "may hold knobs, numbers, quoted words, + - * / // %, comparisons, and, or, not, "
            f"min(a, b) and max(a, b), but not {ast.unparse(node)!r}"
        )

    def _name(self, name: str) -> _Read:
        if name.lower() in _WORDS:
            word = _WORDS[name.lower()]
            return lambda values: word
        knob = KNOB_ALIASES.get(name, name)
        if self._known is not None:
            if knob not in self._known:
                close = difflib.get_close_matches(name, list(self._known), n=1)
                hint = f"did you mean {close[0]}?" if close else "a word stands in quotes"
                raise self._fault(f"names {name!r}, which is no knob of this server; {hint}")
            knob = self._known[knob]
        self.names.add(knob)
        return lambda values: values[knob]

    def _binary(
        self, apply: Callable[[Any, Any], Any], left: ast.expr, right: ast.expr, depth: int
    ) -> _Read:
        first, second = self.compile(left, depth + 1), self.compile(right, depth + 1)
        return lambda values: apply(_number(first(values)), _number(second(values)))

    def _junction(self, every: bool, parts: list[ast.expr], depth: int) -> _Read:
        reads = [self.compile(part, depth + 1) for part in parts]
        if every:
            return lambda values: all(read(values) for read in reads)
        return lambda values: any(read(values) for read in reads)

    def _comparison(
        self, left: ast.expr, ops: list[ast.cmpop], rest: list[ast.expr], depth: int
    ) -> _Read:
        reads = [self.compile(part, depth + 1) for part in (left, *rest)]
        if any(type(op) not in _COMPARISONS for op in ops):
            raise self._fault("compares with <, <=, >, >=, == and != only")
        compares = [_COMPARISONS[type(op)] for op in ops]

        def read(values: Values) -> bool:
            found = [one(values) for one in reads]
            pairs = zip(compares, found, found[1:], strict=False)
            return all(compare(a, b) for compare, a, b in pairs)

        return read

    def _call(self, name: str, args: list[ast.expr], depth: int) -> _Read:
        function = _FUNCTIONS.get(name)
        if function is None:
            raise self._fault(f"calls {name}; only min and max can be called")
        reads = [self.compile(part, depth + 1) for part in args]
        return lambda values: function(*(read(values) for read in reads))

    def _fault(self, what: str) -> UserError:
        return UserError(f"{self._flag} {self._text!r} {what}")


def _number(value: Any) -> Any:
    """Words are compared, never calculated with ("a" * 10**9 would fill the memory)."""
    if isinstance(value, str):
        raise TypeError
    return value


def _shown(values: Values, names: Iterable[str]) -> str:
    return ", ".join(f"{name}={values[name]}" for name in sorted(names) if name in values)
