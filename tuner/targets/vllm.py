"""`vllm serve` as a target: every configuration is a fresh start of our own process.

Environment variables (VLLM_CPU_KVCACHE_SPACE and the like) are handed through. A knob that
--serve-args names has that value as its baseline; the others the table's default for the device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.knobs import KNOBS, LIVE_KNOBS, Knob
from tuner.endpoint import Endpoint
from tuner.errors import UserError
from tuner.targets import http
from tuner.targets.base import Config, KnobRange, Setting, TargetError
from tuner.targets.process import OwnProcess

MOST = 1_000_000
"""More sequences or tokens per step than any server runs."""


class VllmTarget:
    """binary: vLLM's executable; model: what to serve (hub id or folder)."""

    kind = "vllm"

    def __init__(
        self,
        binary: str,
        model: str,
        *,
        api_key: str | None = None,
        serve_args: Sequence[str] = (),
        startup_timeout_s: float = 600.0,
        log_dir: Path = Path(".slotune/logs"),
        device: str = "cpu",
    ) -> None:
        self._binary = binary
        self._model = model
        self._api_key = api_key
        self._startup_timeout_s = startup_timeout_s
        self._log_dir = log_dir
        self._starts = 0
        self._process: OwnProcess | None = None
        self._endpoint: Endpoint | None = None
        self._version = ""
        self._defaults, self._serve_args = _split_flags(serve_args, device)
        self._config: dict[str, Setting] = dict(self._defaults)

    def start(self) -> None:
        """Nothing yet: the first apply starts the first configuration, not the default."""

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()

    def describe(self) -> dict[str, Any]:
        return {
            "kind": self.kind, "engine": "vllm", "version": self._version, "model": self._model,
            "binary": self._binary, "serve_args": list(self._serve_args), "started_here": True,
        }  # fmt: skip

    def knobs(self) -> dict[str, KnobRange]:
        """A restart allows all that the flags do; the search keeps to the table's ranges."""
        return {
            name: KnobRange(self._config[name], *_accepted(KNOBS[name]), live=False)
            for name in LIVE_KNOBS
        }

    def apply(self, config: Config) -> None:
        wanted = self._config | dict(config)
        running = self._process is not None and self._process.alive
        if running and wanted == self._config:
            return
        self.stop()
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
            url = self.endpoint.base_url + "/reset_prefix_cache"
            http.call(url, api_key=self._api_key, method="POST")

    def log_tail(self) -> str:
        return self._process.log_tail() if self._process is not None else ""

    def _launch(self) -> None:
        self._starts += 1
        log = self._log_dir / f"vllm-{self._starts:03d}.log"
        self._process = OwnProcess(self._command, log)
        self._process.start(self._startup_timeout_s)
        url = self._process.url
        self._endpoint = Endpoint(url, "", self._api_key).probe()
        with contextlib.suppress(http.HttpRefusalError, TargetError, TypeError, KeyError):
            self._version = str(http.call(f"{url}/version")["version"])

    def _command(self, port: int) -> list[str]:
        command = [self._binary, "serve", self._model, "--host", "127.0.0.1", "--port", str(port)]
        if self._api_key:
            command += ["--api-key", self._api_key]
        for name, value in self._config.items():
            command += [str(KNOBS[name].vllm_flag), str(value)]
        return [*command, *self._serve_args]


def _split_flags(
    serve_args: Sequence[str], device: str
) -> tuple[dict[str, Setting], tuple[str, ...]]:
    """(baseline of the tuned knobs, the other flags)."""
    baseline = {name: _default(KNOBS[name], device) for name in LIVE_KNOBS}
    by_flag = {KNOBS[name].vllm_flag: KNOBS[name] for name in LIVE_KNOBS}
    others: list[str] = []
    words = iter(serve_args)
    for word in words:
        flag, equals, value = word.partition("=")
        knob = by_flag.get(flag)
        if knob is None:
            others.append(word)
            continue
        baseline[knob.name] = _setting(knob, flag, value if equals else next(words, ""))
    return baseline, tuple(others)


def _setting(knob: Knob, flag: str, text: str) -> Setting:
    try:
        return int(text) if knob.kind == "int" else float(text)
    except ValueError:
        kind = "a whole number" if knob.kind == "int" else "a number"
        raise UserError(f"--serve-args: {flag} takes {kind}, got {text!r}") from None


def _default(knob: Knob, device: str) -> Setting:
    value = knob.default_cpu if device == "cpu" else knob.default_cuda
    return int(value) if knob.kind == "int" else float(value)


def _accepted(knob: Knob) -> tuple[float, float]:
    """What vLLM's own check of the flag lets through."""
    return (1, MOST) if knob.kind == "int" else (0.01, 1.0)
