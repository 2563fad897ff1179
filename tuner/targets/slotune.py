"""This engine as a target: knobs are changed live through /admin/config.

By URL it belongs to somebody else: it is never stopped, its identity (instance_id) must stay the
same throughout, and one tuner at a time turns its knobs. Without a URL the tuner starts
`engine serve` itself, verifies its pid, and changes the knobs of its start by a restart.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.knobs import KNOBS, LIVE_KNOBS
from tuner.endpoint import Endpoint
from tuner.errors import UserError
from tuner.targets import http
from tuner.targets.base import UNSET, Config, KnobRange, Setting, TargetError
from tuner.targets.flags import flag_words, split_words, turned_at_start
from tuner.targets.lease import Lease
from tuner.targets.process import OwnProcess, next_log
from tuner.targets.restart import default_of, knob_range

_WORDS: dict[str, tuple[str, ...]] = {"dtype": KNOBS["dtype"].choices}
"""Words this engine takes, and no others."""

ENDING_S = 5.0
"""How long an engine may take from its last answer to its end."""

_DESCRIBED = (
    "engine", "version", "instance_id", "pid", "model", "served_model_name", "device", "dtype",
    "max_model_len", "num_kv_blocks", "kv_blocks_cap", "attention_backend", "num_threads",
    "enable_prefix_caching", "block_size",
)  # fmt: skip


class SlotuneTarget:
    """url None: started here, with serve_args; knobs: those of its start that are tuned, too."""

    kind = "slotune"

    def __init__(
        self,
        url: str | None = None,
        *,
        model: str | None = None,
        api_key: str | None = None,
        serve_args: Sequence[str] = (),
        startup_timeout_s: float = 300.0,
        log_dir: Path = Path(".slotune/logs"),
        knobs: Sequence[str] = (),
    ) -> None:
        self._url = url
        self._model = model
        self._api_key = api_key
        self._startup_timeout_s = startup_timeout_s
        self._info: dict[str, Any] = {}
        self._applied: Config = {}
        self._lease = Lease()
        self._endpoint: Endpoint | None = None
        self._process: OwnProcess | None = None
        self._log_dir = log_dir
        turned = turned_at_start(knobs, serve_args, "slotune")
        at_start = [name for name in turned if name not in LIVE_KNOBS]
        self._check_flags(at_start, url)
        named, self._serve_args = split_words(serve_args, at_start, "slotune")
        self._at_start = {name: _unset_or_default(name) for name in at_start} | named
        if url is None:
            self._process = OwnProcess(self._command, next_log(log_dir, "engine"))

    def start(self) -> None:
        if self._process is not None:
            self._process.start(self._startup_timeout_s)
            self._url = self._process.url
        try:
            self._info = self._server_info()
        except TargetError as error:
            if self._process is not None:
                raise
            raise UserError(f"{error.reason}: is the server up?") from error
        self._check_admin()
        if self._process is None:
            self._lease.take(str(self._info["instance_id"]), self._base)
        self._endpoint = Endpoint(self._base, self._served_model(), self._api_key).probe()

    def stop(self) -> None:
        self._lease.release()
        if self._process is not None:
            self._process.stop()

    def describe(self) -> dict[str, Any]:
        known = {key: self._info[key] for key in _DESCRIBED if key in self._info}
        return {
            "kind": self.kind,
            "url": self._url,
            "started_here": self._process is not None,
            "serve_args": list(self._serve_args),
        } | known

    def knobs(self) -> dict[str, KnobRange]:
        knobs = self._settings()
        cost_s = self._process.start_s if self._process is not None else 0.0
        live = {
            name: KnobRange(knob["value"], knob["low"], knob["high"], bool(knob["live"]))
            for name, knob in knobs.items()
        }
        return live | {
            name: knob_range(name, value, cost_s, _WORDS.get(name, ()))
            for name, value in self._at_start.items()
        }

    def apply(self, config: Config) -> None:
        at_start = self._at_start | {n: v for n, v in config.items() if n in self._at_start}
        config = {name: value for name, value in config.items() if name not in at_start}
        if at_start != self._at_start:
            self._restart(at_start)
        self._ensure_same_server()
        if not config:
            return
        try:
            knobs = self._settings(dict(config))
        except http.HttpRefusalError as refusal:
            raise TargetError(refusal.reason, kind="configuration") from refusal
        for name, value in config.items():
            in_force = knobs[name]["value"]
            if in_force != value:
                raise TargetError(f"{name}={value} was asked for, but {in_force} is in force")
        self._applied = dict(config)

    @property
    def endpoint(self) -> Endpoint:
        if self._endpoint is None:
            raise RuntimeError("the target has not been started")
        return self._endpoint

    def verify(self) -> None:
        if self._process is not None:
            self._process.check_alive()
        self._check_identity()
        for name, knob in self._settings().items():
            if name in self._applied and knob["value"] != self._applied[name]:
                raise TargetError(
                    f"somebody else has set {name} of {self._url} from {self._applied[name]} to "
                    f"{knob['value']} during the measurement; let one tuner work at a time",
                    gone=True,
                )

    def reset_prefix_cache(self) -> None:
        with contextlib.suppress(http.HttpRefusalError, TargetError):
            self._call("/reset_prefix_cache", method="POST")

    def log_tail(self) -> str:
        return self._process.log_tail() if self._process is not None else ""

    @property
    def _base(self) -> str:
        if self._url is None:
            raise RuntimeError("the target has not been started")
        return self._url

    def _command(self, port: int) -> list[str]:
        command = [sys.executable, "-m", "engine", "serve", "--host", "127.0.0.1"]
        command += ["--port", str(port), "--enable-admin"]
        if self._model:
            command += ["--model", self._model]
        if self._api_key:
            command += ["--api-key", self._api_key]
        return [*command, *flag_words(self._at_start, "slotune"), *self._serve_args]

    @staticmethod
    def _check_flags(names: Sequence[str], url: str | None) -> None:
        """UserError for a knob that this engine cannot change, or not while it runs."""
        for name in names:
            if name in KNOBS and KNOBS[name].engine_flag is None:
                raise UserError(f"--knob {name}: this engine has no flag for it")
            if url is not None:
                raise UserError(
                    f"--knob {name} is set when a server starts, and {url} runs already; leave out "
                    "--url, so that the tuner starts the server"
                )

    def _restart(self, at_start: dict[str, Setting]) -> None:
        """Start anew with other settings; what comes next is started by _ensure_same_server."""
        assert self._process is not None, "knobs of the start are for engines of our own"
        self._process.stop_for_another()
        self._at_start = at_start

    def _served_model(self) -> str:
        """With a URL --model names what to ask for; else it was what to serve."""
        return (self._model or "") if self._process is None else ""

    def _call(
        self, path: str, body: dict[str, Any] | None = None, method: str | None = None
    ) -> Any:
        try:
            return http.call(self._base + path, body, api_key=self._api_key, method=method)
        except TargetError as error:
            if self._process is not None:
                self._process.check_alive(ENDING_S)
            raise self._lost(error.reason) from error

    def _server_info(self) -> dict[str, Any]:
        try:
            info = self._call("/server_info")
        except http.HttpRefusalError as refusal:
            hint = ": give --api-key" if refusal.status == 401 else ""
            raise UserError(f"{self._url} refuses: {refusal.reason}{hint}") from refusal
        if not isinstance(info, dict) or "instance_id" not in info:
            raise self._lost(f"{self._url}/server_info does not answer as this engine does")
        return info

    def _settings(self, change: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
        """Knob name → value, low, high, live; after the change, if one is given."""
        answer = self._call("/admin/config", change)
        knobs = answer.get("knobs") if isinstance(answer, dict) else None
        if not isinstance(knobs, dict) or not all(
            isinstance(knob, dict)
            and "live" in knob
            and all(isinstance(knob.get(key), (int, float)) for key in ("value", "low", "high"))
            for knob in knobs.values()
        ):
            raise self._lost(f"{self._url}/admin/config does not answer as this engine does")
        return knobs

    def _check_admin(self) -> None:
        if self._process is not None and os.getpgid(int(self._info["pid"])) != self._process.pid:
            raise TargetError(f"{self._url} is answered by a server that was not started here")
        if not self._info.get("admin"):
            raise UserError(
                f"the engine at {self._url} cannot be tuned: start it with --enable-admin"
            )

    def _ensure_same_server(self) -> None:
        """The engine that was there at the start, restarted if it was ours and has died."""
        if self._process is not None and not self._process.alive:
            self._process.log = next_log(self._log_dir, "engine")
            self._process.start(self._startup_timeout_s)
            self._url = self._process.url
            self._info = self._server_info()
            self._check_admin()
            self._endpoint = Endpoint(self._base, "", self._api_key).probe()
            return
        self._check_identity()

    def _check_identity(self) -> None:
        if self._server_info().get("instance_id") != self._info.get("instance_id"):
            raise TargetError(
                f"{self._url} is another engine than at the start (it was restarted)", gone=True
            )

    def _lost(self, reason: str) -> TargetError:
        ours = self._process is not None
        return TargetError(reason, log_tail=self.log_tail(), gone=not ours)


def _unset_or_default(name: str) -> Setting:
    """What the engine has where no flag says otherwise."""
    return default_of(KNOBS[name], "cpu") if name in KNOBS else UNSET
