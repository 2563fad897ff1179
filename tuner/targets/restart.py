"""A server whose every configuration is a fresh start of our own process.

Owns what vLLM and SGLang have in common: which knobs there are and with which settings the baseline
has them, one log per start, and what the server told of itself when it was up. Invariant: apply()
restarts only for another configuration, so that several loads per start cost one start.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.knobs import KNOBS, LIVE_KNOBS, Knob
from storage.errors import StorageError
from storage.sources.fetch import scrape_once
from tuner.endpoint import Endpoint
from tuner.targets import http
from tuner.targets.base import UNSET, Config, KnobRange, Setting, TargetError
from tuner.targets.flags import Dialect, flag_of, flag_words, split_words, turned_at_start
from tuner.targets.last_words import classify
from tuner.targets.peak import try_peak
from tuner.targets.process import OwnProcess, next_log

MOST = 1_000_000
"""More sequences or tokens per step than any server runs."""

FIRST_GUESS_S = 60.0
"""What a start takes, until one has been seen."""


@dataclass(frozen=True, slots=True)
class Start:
    """How to start a server. program: the words before its flags; knobs: further knobs to be
    tuned, by name, beside the usual ones and a size of the KV pool that serve_args give."""

    program: tuple[str, ...]
    model: str
    api_key: str | None = None
    serve_args: tuple[str, ...] = ()
    startup_timeout_s: float = 600.0
    log_dir: Path = Path(".slotune/logs")
    device: str = "cpu"
    knobs: tuple[str, ...] = ()


class RestartTarget(ABC):
    """What a subclass adds: kind, its command line, and where it tells of itself."""

    kind: str
    dialect: Dialect
    health_path = "/health"

    def __init__(self, how: Start) -> None:
        self.how = how
        self._process: OwnProcess | None = None
        self._endpoint: Endpoint | None = None
        self._told: dict[str, Any] = {}
        self._start_s = FIRST_GUESS_S
        turned = turned_at_start(how.knobs, how.serve_args, self.dialect)
        self._names = dict.fromkeys([*LIVE_KNOBS, *turned])
        named, self._serve_args = split_words(how.serve_args, [*self._names], self.dialect)
        self._config: dict[str, Setting] = {n: self.baseline_of(n) for n in self._names} | named

    def start(self) -> None:
        """Nothing yet: the first apply starts the first configuration, not the default."""
        return

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()

    def describe(self) -> dict[str, Any]:
        return {
            "kind": self.kind, "engine": self.kind, "version": "", "model": self.how.model,
            "binary": self.how.program[0], "serve_args": list(self._serve_args),
            "started_here": True, "device": self.how.device,
        } | self._told  # fmt: skip

    def knobs(self) -> dict[str, KnobRange]:
        """A restart allows all that the flags do; the search keeps to the table's ranges."""
        return {
            name: knob_range(name, self._config[name], self._start_s)
            for name in self._names
            if name not in KNOBS or flag_of(KNOBS[name], self.dialect) is not None
        }

    def apply(self, config: Config) -> None:
        wanted = self._config | dict(config)
        running = self._process is not None and self._process.alive
        if running and wanted == self._config:
            return
        if self._process is not None:
            self._process.stop_for_another()
        self._config = wanted
        self._launch()

    @property
    def endpoint(self) -> Endpoint:
        if self._endpoint is None:
            raise RuntimeError("the target has not been started")
        return self._endpoint

    def verify(self) -> None:
        if self._process is not None:
            self._process.check_alive()

    def reset_prefix_cache(self) -> None:
        with contextlib.suppress(http.HttpRefusalError, TargetError):
            http.call(self._url + self.reset_path, api_key=self.how.api_key, method="POST")

    def log_tail(self) -> str:
        return self._process.log_tail() if self._process is not None else ""

    # -- what a subclass says -----------------------------------------------------------------

    reset_path = "/reset_prefix_cache"

    @abstractmethod
    def command(self, port: int) -> list[str]:
        """The command line up to the knobs' flags."""

    def environment(self) -> dict[str, str]:
        return {}

    def baseline_of(self, name: str) -> Setting:
        """The setting where --serve-args says nothing."""
        return UNSET if name not in KNOBS else default_of(KNOBS[name], self.how.device)

    def ask(self) -> dict[str, Any]:
        """What the running server tells of itself; never fails."""
        return {}

    # -- starting -----------------------------------------------------------------------------

    @property
    def _url(self) -> str:
        return self._process.url if self._process is not None else ""

    def get(self, path: str) -> Any:
        """JSON of a route of the running server, None where it has none."""
        try:
            return http.call(self._url + path, api_key=self.how.api_key)
        except (http.HttpRefusalError, TargetError):
            return None

    def metrics_info(self, name: str) -> dict[str, str]:
        """Labels of an info metric of the running server; {} where it has none."""
        try:
            return scrape_once(self._url).info(name) or {}
        except StorageError:
            return {}

    def metric(self, name: str) -> float | None:
        """A gauge of the running server, the largest of its series; None where it has none."""
        try:
            return scrape_once(self._url).value(name)
        except StorageError:
            return None

    def _launch(self) -> None:
        self._process = OwnProcess(
            lambda port: [
                *self.command(port), *flag_words(self._config, self.dialect), *self._serve_args,
            ],
            next_log(self.how.log_dir, self.kind),
            health_path=self.health_path,
            environment=self.environment(),
        )  # fmt: skip
        self._process.start(self.how.startup_timeout_s)
        self._start_s = self._process.start_s
        self._endpoint = Endpoint(self._url, "", self.how.api_key).probe()
        self._told = self.ask()
        self._try_peak(self._endpoint, self._process)

    def _try_peak(self, endpoint: Endpoint, process: OwnProcess) -> None:
        """TargetError when the server has no memory for the most that may be in it at once."""
        why = try_peak(endpoint, self._config)
        process.check_alive()
        if why:
            tail = process.log_tail()
            process.stop()  # a second try is a fresh start
            raise TargetError(
                f"at its peak the server fails: {why}",
                kind=classify(f"{tail}\n{why}"),
                log_tail=tail,
            )


def default_of(knob: Knob, device: str) -> Setting:
    """The table's default, of the type the knob has."""
    value = knob.default_cpu if device == "cpu" else knob.default_cuda
    return value if isinstance(value, str) or knob.kind != "float" else float(value)


def knob_range(name: str, value: Setting, cost_s: float, words: Sequence[str] = ()) -> KnobRange:
    """What a start-up flag may be; for a flag that no table knows, only the server can say."""
    knob = KNOBS.get(name)
    if knob is None or knob.kind in ("choice", "bool"):
        return KnobRange(value, 1, 0, live=False, words=tuple(words), cost_s=cost_s)
    low, high = (1.0, max(float(MOST), knob.high or 0.0)) if knob.kind == "int" else (0.01, 1.0)
    return KnobRange(value, low, high, live=False, cost_s=cost_s)
