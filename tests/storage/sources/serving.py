"""A /metrics server whose answer the test sets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Body = str | Callable[[], str]


@dataclass
class Serving:
    """answer: the body, or a function called per request; status and kind of its answer."""

    answer: Body = ""
    status: int = 200
    kind: str = "text/plain; version=0.0.4"
    url: str = ""
    asked: int = 0
    write: Callable[[BaseHTTPRequestHandler], None] | None = None


@contextmanager
def serving(answer: Body = "", port: int = 0) -> Iterator[Serving]:
    state = Serving(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked += 1
            if state.write is not None:
                state.write(self)
                return
            body = (state.answer() if callable(state.answer) else state.answer).encode()
            self.send_response(state.status)
            self.send_header("Content-Type", state.kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
