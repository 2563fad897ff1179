"""The protocol of a target: something that serves, and whose knobs may be turned.

Invariant: after apply(config) returns, the server that answers at `endpoint` is the one this
target means, and it runs exactly that configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from tuner.endpoint import Endpoint

Setting = int | float | str | bool
Config = Mapping[str, Setting]
"""Knob name → value. A name with dashes is a flag of the server's own, handed through as it is."""

UNSET = "default"
"""The setting of a flag that is left out: the server decides."""

FailureKind = Literal["configuration", "transient"]


class TargetError(Exception):
    """A target that does not come up or does not answer.

    kind "configuration": these settings cannot work, and trying again is useless. "transient":
    worth one more try. gone: the server is not ours to restart, so the study cannot go on.
    """

    def __init__(
        self,
        reason: str,
        *,
        kind: FailureKind = "transient",
        log_tail: str = "",
        gone: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind
        self.log_tail = log_tail
        self.gone = gone


@dataclass(frozen=True, slots=True)
class KnobRange:
    """Present value and bounds (both ends included); live: changed without a restart.

    words: what is no number, where the target knows it; () for numbers, and for a flag whose words
    only the server knows (low is then above high). cost_s: about what a change takes, in seconds.
    """

    value: Setting
    low: float
    high: float
    live: bool
    words: tuple[Setting, ...] = ()
    cost_s: float = 0.0

    @property
    def anything(self) -> bool:
        """Whether only the server can say which values it takes."""
        return self.low > self.high and not self.words

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def setting_text(value: Setting) -> str:
    """`24`, `0.85`, `fp8`, `true`: as a person, a flag and a knob's text write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def config_text(config: Mapping[str, Setting], none: str = "as started") -> str:
    """`max_num_seqs=24 chunk_size=512`; none: what is said where nothing is set."""
    told = (f"{name}={setting_text(value)}" for name, value in config.items())
    return " ".join(told) or none


class Target(Protocol):
    """Life: start, then any number of apply/measure, then stop. start and apply raise TargetError;
    start raises UserError for what the user must mend."""

    kind: str

    def start(self) -> None: ...

    def stop(self) -> None:
        """End what this target started; a server that was there before is left running."""
        ...

    def describe(self) -> dict[str, Any]:
        """Who is measured, for the study's record: kind, url, model, version, identity."""
        ...

    def knobs(self) -> dict[str, KnobRange]:
        """What can be turned, with the values in force; empty when nothing can."""
        ...

    def apply(self, config: Config) -> None:
        """Put the settings in force: live where possible, else by a restart."""
        ...

    @property
    def endpoint(self) -> Endpoint: ...

    def verify(self) -> None:
        """TargetError when the server that apply() left in force is no longer the one that answers:
        what was measured since then mixes two servers, or one that died."""
        ...

    def reset_prefix_cache(self) -> None:
        """Forget cached prefixes where the server can; never fails."""
        ...

    def log_tail(self) -> str:
        """The last lines of the server's log; empty when the log is not ours."""
        ...
