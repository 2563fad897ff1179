"""A server that never ends its answer, and never falls silent either."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

STEP_S = 0.05


@contextlib.contextmanager
def dripping(head: bytes, drop: bytes = b" ") -> Iterator[str]:
    """The address of a server that answers every request with head, then drop after drop."""
    done = threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(1 << 16)
            connection.sendall(head)
            while not done.wait(STEP_S):
                connection.sendall(drop)

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            done.set()
            listener.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fails where what is inside takes longer."""
    began_s = time.monotonic()
    yield
    assert time.monotonic() - began_s < seconds
