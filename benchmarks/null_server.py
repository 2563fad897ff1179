"""A server that computes nothing: what a load generator can do at most shows against it.

    python benchmarks/null_server.py --port 8000 [--flush] [--cpu 0]

Every streamed request gets the same 16 tokens: in one write, or with --flush each in a write of its
own, one token of every answer per round like an engine's steps. Speaks HTTP/1.1 with keep-alive.
One thread on epoll, no parsing beyond the length of the body: faster than what it measures.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import socket

TOKENS = 16
MODEL = "null-model"


def event(payload: str) -> bytes:
    data = f"data: {payload}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


def token(text: str, finish: str | None = None) -> bytes:
    """As vLLM writes one, byte for byte but for the text."""
    choice = {
        "index": 0, "text": text, "logprobs": None, "finish_reason": finish, "stop_reason": None,
        "token_ids": None, "prompt_logprobs": None, "prompt_token_ids": None,
    }  # fmt: skip
    message = {
        "id": "cmpl-8e5f0a1b2c3d4e5f", "object": "text_completion", "created": 1760000000,
        "model": MODEL, "choices": [choice], "usage": None,
    }  # fmt: skip
    return event(json.dumps(message, separators=(",", ":")))


def chat_token(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": finish}
    message = {
        "id": "chatcmpl-8e5f0a1b2c3d4e5f", "object": "chat.completion.chunk",
        "created": 1760000000, "model": MODEL, "choices": [choice],
    }  # fmt: skip
    return event(json.dumps(message, separators=(",", ":")))


def plain(body: dict[str, object] | list[object]) -> bytes:
    data = json.dumps(body).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        len(data),
        data,
    )


HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
USAGE = {"prompt_tokens": 16, "completion_tokens": TOKENS, "total_tokens": 16 + TOKENS}
TAIL = (
    event(json.dumps({"id": "cmpl-8e5f0a1b2c3d4e5f", "object": "text_completion",
                      "created": 1760000000, "model": MODEL, "choices": [], "usage": USAGE}))
    + event("[DONE]") + b"0\r\n\r\n"
)  # fmt: skip
CHOICE = {"index": 0, "text": "x", "finish_reason": "length",
          "message": {"role": "assistant", "content": "x"}}  # fmt: skip
WHOLE = plain({"choices": [CHOICE], "usage": USAGE})
MODELS = plain({"object": "list", "data": [{"id": MODEL, "object": "model"}]})


def parts(kind: bytes) -> list[bytes]:
    """One answer as what is written at a time."""
    write = chat_token if b"/chat/" in kind else token
    last = TOKENS - 1
    events = [write(f" token{i}", "length" if i == last else None) for i in range(TOKENS)]
    return [HEAD + events[0], *events[1:-1], events[-1] + TAIL]


class Server:
    """flush: each token in a write of its own."""

    def __init__(self, port: int, flush: bool) -> None:
        self.listener = socket.create_server(("127.0.0.1", port), backlog=4096)
        self.listener.setblocking(False)
        self.flush = flush
        self.epoll = select.epoll()
        self.epoll.register(self.listener, select.EPOLLIN)
        self.sockets: dict[int, socket.socket] = {}
        self.pending: dict[int, bytes] = {}
        self.answering: dict[int, tuple[list[bytes], int]] = {}
        pieces = {kind: parts(kind) for kind in (b"/v1/completions", b"/v1/chat/completions")}
        self.pieces = {
            kind: answer if flush else [b"".join(answer)] for kind, answer in pieces.items()
        }

    def run(self) -> None:
        listener = self.listener.fileno()
        while True:
            for fd, _ in self.epoll.poll(0 if self.answering else None):
                if fd == listener:
                    self.accept()
                else:
                    self.read(fd)
            if self.answering:
                self.step()

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except BlockingIOError:
                return
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sockets[connection.fileno()] = connection
            self.epoll.register(connection, select.EPOLLIN)

    def close(self, fd: int) -> None:
        self.pending.pop(fd, None)
        self.answering.pop(fd, None)
        self.epoll.unregister(fd)
        self.sockets.pop(fd).close()

    def read(self, fd: int) -> None:
        try:
            data = self.sockets[fd].recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            return self.close(fd)
        data = self.pending.pop(fd, b"") + data
        head, blank, body = data.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if not blank or len(body) < int(length or 0):
            self.pending[fd] = data
            return None
        return self.answer(fd, head, body)

    def answer(self, fd: int, head: bytes, body: bytes) -> None:
        kind = head.split(b" ", 2)[1]
        if b'"stream":true' in body or b'"stream": true' in body:
            pieces = self.pieces[kind]
            self.write(fd, pieces[0])
            if len(pieces) > 1:
                self.answering[fd] = (pieces, 1)
        else:
            self.write(fd, MODELS if b"models" in kind else WHOLE)

    def write(self, fd: int, data: bytes) -> None:
        """Answers are small: a socket that does not take one whole has a client that is gone."""
        try:
            self.sockets[fd].send(data)
        except OSError:
            self.close(fd)

    def step(self) -> None:
        """The next token of every answer under way."""
        for fd, (pieces, at) in list(self.answering.items()):
            if at + 1 == len(pieces):
                del self.answering[fd]
            else:
                self.answering[fd] = (pieces, at + 1)
            self.write(fd, pieces[at])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--flush", action="store_true", help="each token in a write of its own")
    parser.add_argument("--cpu", type=int, help="run on this core only")
    options = parser.parse_args()
    if options.cpu is not None:
        os.sched_setaffinity(0, {options.cpu})
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    Server(options.port, options.flush).run()


if __name__ == "__main__":
    main()
