"""The listening socket and the uvicorn server on it.

The port is taken before the model is loaded, so that a busy port is known at once. On the first
signal, running requests fail, connections close, and the process ends within seconds.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI

from engine.errors import EngineConfigError

_GRACE_S = 2
"""How long open connections may take to end after a signal."""

_BACKLOG = 2048


def bind(host: str, port: int) -> socket.socket:
    """A bound socket; EngineConfigError when the port is taken or the address is not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise EngineConfigError(_why_not(host, port, error)) from error
    return listener


def _why_not(host: str, port: int, error: Exception) -> str:
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        return f"port {port} on {host} is already in use; choose another with --port (0: any free)"
    if number == errno.EACCES:
        return f"port {port} needs privileges this user lacks; choose a --port of 1024 or above"
    return f"cannot listen on {host}:{port}: {error}; give --host an address of this machine"


def listen(listener: socket.socket) -> None:
    """Begin to accept connections; fails when another process won the race for the port."""
    try:
        listener.listen(_BACKLOG)
    except OSError as error:
        host, port = listener.getsockname()[:2]
        raise EngineConfigError(_why_not(host, port, error)) from error


class Server(uvicorn.Server):
    """uvicorn that tells the engine of a signal before it waits for connections to end."""

    def __init__(
        self, app: FastAPI, *, on_ready: Callable[[], None], on_signal: Callable[[], None]
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_GRACE_S,
                timeout_keep_alive=65,
                ws="none",
            )
        )
        self._on_ready = on_ready
        self._on_signal = on_signal

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_signal()
        await super().shutdown(sockets=sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        # uvicorn raises the signal again after its shutdown, which would end in a traceback or a
        # status that looks like a crash; a requested stop is a success.
        self._captured_signals.clear()
