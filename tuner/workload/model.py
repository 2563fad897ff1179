"""A workload: what is sent and when, reproducible from its text and a seed.

Common random numbers: the same seed gives the same arrivals and lengths for every configuration,
each session's on its own. Content is fresh for every measurement, so that a warm prefix cache
cannot flatter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.workload.arrivals import Arrivals
from tuner.workload.lengths import Lengths
from tuner.workload.source import Source
from tuner.workload.think import NO_PAUSE, Think
from tuner.workload.writing import plain

ONE_TURN = Lengths("fixed", 1.0)
_TURNS, _LATER, _THINK = 1, 2, 3
"""Last parts of seeds: each kind of draw has a stream of its own."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Lengths in tokens. shared_prefix tokens at the head of each prompt are one of
    prefix_groups common texts, the first ones more often with a prefix_skew (Zipf's exponent).

    turns: questions of a conversation; followup: tokens of the later ones, None: as the first
    without its shared prefix; think: the pause before each. requests: how many sessions are sent,
    None until time is up. source: a file that gives the rows; prompt and output are then its
    means ("recorded"), unless the text has its own.
    """

    prompt: Lengths
    output: Lengths
    arrivals: Arrivals
    shared_prefix: int = 0
    prefix_groups: int = 1
    requests: int | None = None
    prefix_skew: float = 0.0
    turns: Lengths = ONE_TURN
    followup: Lengths | None = None
    think: Think = NO_PAUSE
    source: Source | None = None

    @property
    def conversational(self) -> bool:
        """Whether later turns hold the answers of earlier ones."""
        return not self.turns.always_one

    def turn_count(self, seed: int, session: int) -> int:
        """How many turns a session has."""
        if not self.conversational:
            return 1
        drawn = self.turns.draw(np.random.default_rng((seed, session, 0, _TURNS)))
        if self.source is not None and self.source.rows.turns is not None:
            row, _ = self.source.row(seed, session)
            return min(drawn, int(self.source.rows.turns[row]))
        return drawn

    def think_s(self, seed: int, session: int, turn: int) -> float:
        """Seconds between the last answer's end and this turn."""
        return self.think.draw(np.random.default_rng((seed, session, turn, _THINK)))

    def lengths(self, seed: int, session: int, turn: int = 0) -> tuple[int, int, int]:
        """(prompt tokens, output tokens, prefix group) of one turn of a session.

        A later turn's prompt holds the earlier ones and their answers as planned. Prompt tokens
        are 0 where the prompt is a file's text that no one has counted.
        """
        held = 0
        for earlier in range(turn):
            added, answered, _ = self.added(seed, session, earlier)
            held += added + answered
        added, output, group = self.added(seed, session, turn)
        counted = self.source is None or not self.source.rows.estimated
        return (held + added if counted else 0), output, group

    def added(self, seed: int, session: int, turn: int) -> tuple[int, int, int]:
        """(tokens a turn adds to its conversation, output tokens, prefix group)."""
        rng = np.random.default_rng((seed, session, turn, _LATER) if turn else (seed, session))
        prompt_from = self.prompt if turn == 0 or self.followup is None else self.followup
        prompt = 0 if prompt_from.kind == "recorded" else prompt_from.draw(rng)
        output = 0 if self.output.kind == "recorded" else self.output.draw(rng)
        if turn == 0:
            group = self._group(rng)
            prompt = max(prompt, self.shared_prefix + 1) if prompt else prompt
        else:
            group = self.added(seed, session, 0)[2]
            prompt = max(1, prompt - self.shared_prefix) if self.followup is None else prompt
        if self.source is not None:
            prompt, output = self._recorded(self.source, seed, session, turn, prompt, output)
        return prompt, max(1, output), group

    def at(self, level: float) -> Workload:
        """The same at another concurrency, rate, number at once or replay speed."""
        arrivals = self.arrivals.at(level)
        requests = int(arrivals.level) if arrivals.kind == "at_once" else self.requests
        return replace(self, arrivals=arrivals, requests=requests)

    def _group(self, rng: np.random.Generator) -> int:
        if not self.prefix_skew:
            return int(rng.integers(self.prefix_groups))
        bounds = _zipf_bounds(self.prefix_groups, self.prefix_skew)
        return int(np.searchsorted(bounds, rng.random(), side="right"))

    def _recorded(
        self, source: Source, seed: int, session: int, turn: int, prompt: int, output: int
    ) -> tuple[int, int]:
        """What the file says in the place of what the text leaves open."""
        row, _ = source.row(seed, session)
        recorded_prompt, recorded_output = source.lengths(row)
        if self.prompt.kind == "recorded":
            prompt = max(recorded_prompt, self.shared_prefix + 1) if not turn else 0
        if self.output.kind == "recorded":
            spoken = self.conversational and source.rows.has_text
            output = source.output_after(row, turn) if spoken else recorded_output
        return prompt, output

    def __str__(self) -> str:
        parts = self.source.text_parts() if self.source is not None else []
        if self.prompt.kind != "recorded":
            parts.append(f"prompt={self.prompt}")
        if self.output.kind != "recorded":
            parts.append(f"output={self.output}")
        if self.shared_prefix:
            parts.append(f"shared_prefix={self.shared_prefix}")
        if self.prefix_groups != 1 or self.prefix_skew:
            parts.append(f"prefix_groups={self.prefix_groups}")
        if self.prefix_skew:
            parts.append(f"prefix_skew={plain(self.prefix_skew)}")
        if self.conversational or self.followup is not None or self.think != NO_PAUSE:
            parts.append(f"turns={self.turns}")
        if self.followup is not None:
            parts.append(f"followup={self.followup}")
        if self.think != NO_PAUSE:
            parts.append(f"think={self.think}")
        if self.requests is not None:
            parts.append(f"requests={self.requests}")
        return ",".join([*parts, *filter(None, [str(self.arrivals)])])

    @classmethod
    def parse(cls, text: str | None) -> Workload:
        """`"prompt=256,output=64,concurrency=16"`, `"chat,rate=2"`; None: the default."""
        from tuner.workload.grammar import parse_workload

        return parse_workload(text)

    def as_dict(self) -> dict[str, Any]:
        """Files are in it with their hash: from_dict refuses one that has changed."""
        return {"text": str(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Workload:
        return cls.parse(str(values["text"]))


@lru_cache(maxsize=8)
def _zipf_bounds(groups: int, skew: float) -> npt.NDArray[np.float64]:
    """Upper bounds of each group's part of [0, 1): group g weighs 1 / (g + 1) ** skew."""
    weights = np.arange(1, groups + 1, dtype=np.float64) ** -skew
    bounds: npt.NDArray[np.float64] = np.cumsum(weights / weights.sum())
    bounds[-1] = 1.0
    return bounds
