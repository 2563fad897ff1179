"""What the log of a dead server says: the line that names the fault, and whose fault it was.

Invariant: a line that merely tells of settings (INFO, a warning) is never a fault, whatever words
it holds: vLLM's first line names all its flags.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tuner.targets.base import FailureKind

_CONFIGURATION_FAULT = re.compile(
    r"out of memory|OutOfMemory|cannot allocate memory|no available memory|"
    r"larger than the (?:maximum|available)|not enough (?:KV|memory)|no memory for|"
    r"want of memory|can't allocate memory|increase .?gpu_memory_util|"
    r"max_num_batched_tokens|chunk[-_]size .*must|must be (?:at least|between|in|a power)|"
    r"unrecognized arguments|invalid choice|validation error|Killed",
    re.IGNORECASE,
)
_TRANSIENT_FAULT = re.compile(
    r"address already in use|port .* in use|Errno 98|temporarily|free memory on device",
    re.IGNORECASE,
)
_WORKER_DIED = re.compile(r"died unexpectedly|exit(?: code:?|code[=:]?) ?-\d+", re.IGNORECASE)
_ERROR = re.compile(r"\w(?:Error|Exception): ")
_ELSEWHERE = re.compile(r"see (?:the )?root cause|see .* above", re.IGNORECASE)
_TELLS = re.compile(r"\b(?:INFO|WARNING|DEBUG)\b|non-default args")
_WORKER_KILLED = re.compile(r"exit(?: code:?|code[=:]?) ?-9\b", re.IGNORECASE)


def classify(log_tail: str) -> FailureKind:
    """Whose fault a dead server is: its settings', or the moment's."""
    lines = _not_telling(log_tail.splitlines())
    if any(_TRANSIENT_FAULT.search(line) for line in lines):
        return "transient"
    named = any(_CONFIGURATION_FAULT.search(line) for line in lines)
    return "configuration" if named else "transient"


def fault_line(log_tail: str) -> str:
    """The line that says why, else the last that says something."""
    return named_fault(log_tail.splitlines()) or last_line(log_tail)


def named_fault(lines: Iterable[str]) -> str:
    """The line that says why: the settings' fault, a worker's death, an error; empty if none."""
    said = _not_telling(lines)
    for words in (_CONFIGURATION_FAULT, _TRANSIENT_FAULT, _WORKER_DIED, _ERROR):
        hits = [line for line in said if words.search(line) and not _ELSEWHERE.search(line)]
        if hits:
            return hits[-1].strip()
    return ""


def worker_killed(log_tail: str) -> bool:
    """Whether the server tells that a process of its own was killed."""
    return bool(_WORKER_KILLED.search(log_tail))


def last_line(text: str) -> str:
    """The last line that says something."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no output")


def _not_telling(lines: Iterable[str]) -> list[str]:
    return [line for line in lines if not _TELLS.search(line)]
