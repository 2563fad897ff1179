"""A server that somebody else runs and that offers no way to turn its knobs: it can be measured."""

from __future__ import annotations

import contextlib
from typing import Any

from tuner.endpoint import Endpoint
from tuner.errors import UserError
from tuner.targets import http
from tuner.targets.base import Config, KnobRange, TargetError


class UrlTarget:
    """Load only; apply refuses every setting."""

    kind = "url"

    def __init__(self, url: str, *, model: str | None = None, api_key: str | None = None) -> None:
        self._endpoint = Endpoint(url, model or "", api_key)

    def start(self) -> None:
        self._endpoint = self._endpoint.probe()

    def stop(self) -> None:
        """Not ours to stop."""

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "url": self._endpoint.base_url, "model": self._endpoint.model}

    def knobs(self) -> dict[str, KnobRange]:
        return {}

    def apply(self, config: Config) -> None:
        if config:
            raise UserError(
                f"the tuner cannot change {', '.join(config)} of {self._endpoint.base_url}: it is "
                "no slotune engine; let the tuner start the server instead (--target vllm or "
                "sglang), or vary the load (--knob concurrency=… or rate=…)"
            )

    @property
    def endpoint(self) -> Endpoint:
        return self._endpoint

    def verify(self) -> None:
        """A server without an identity shows by its answers alone that it is there."""

    def reset_prefix_cache(self) -> None:
        with contextlib.suppress(http.HttpRefusalError, TargetError):
            url = self._endpoint.base_url + "/reset_prefix_cache"
            http.call(url, api_key=self._endpoint.api_key, method="POST")

    def log_tail(self) -> str:
        return ""
