"""How the server listens and who may use it. Pure data, so that the command line stays light."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServeOptions:
    """The flags of `engine serve` that do not concern the model."""

    host: str = "127.0.0.1"
    port: int = 0
    api_key: str | None = None
    enable_admin: bool = False
