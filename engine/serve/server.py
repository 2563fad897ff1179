"""The listening socket and the uvicorn server on it.

The port is taken before the model is loaded, so that a busy port is known at once. On the first
signal, running requests fail, connections close, and the process ends within seconds.
"""

from __future__ import annotations

import contextlib
import errno
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn
from fastapi import FastAPI

from engine.errors import EngineConfigError

_GRACE_S = 2
"""How long open connections may take to end after a signal."""

_BACKLOG = 2048
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
    """Begin to accept connections, as many as the system grants files; fails when another process
    won the race for the port."""
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems refuse their own hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
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

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but the signal is not raised again afterwards: a requested stop is a
        success, not a death by signal."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
