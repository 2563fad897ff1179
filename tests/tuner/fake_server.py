"""A scripted OpenAI-compatible server: exact delays, every kind of fault, no model.

    with FakeServer(lambda index, body: tokens(8, first_s=0.05)) as server:
        endpoint = Endpoint(server.url).probe()

A script gets the number of the streamed request (from 0) and its body and returns a Reply.
Speaks HTTP/1.1 from a thread of its own; connections stay open unless keep_alive is False. sent
holds, for each streamed request, the monotonic time of every write.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

TOKENS_PER_WORD = 2
TEMPLATE_TOKENS = 9


@dataclass(frozen=True)
class Step:
    """Wait, then send data; data None holds the connection open without a word, b"" only waits."""

    wait_s: float = 0.0
    data: bytes | None = b""


@dataclass(frozen=True)
class Reply:
    """What one request gets. The connection is cut without an end when cut is set; raw is sent as
    the whole body instead of steps or json."""

    steps: tuple[Step, ...] = ()
    status: int = 200
    cut: bool = False
    json: dict[str, Any] = field(default_factory=dict)
    raw: bytes = b""


Script = Callable[[int, dict[str, Any]], Reply]


def event(payload: dict[str, Any] | str, wait_s: float = 0.0) -> Step:
    """One SSE event after a wait."""
    text = payload if isinstance(payload, str) else json.dumps(payload)
    return Step(wait_s, f"data: {text}\n\n".encode())


def text(piece: str, wait_s: float = 0.0, finish: str | None = None) -> Step:
    return event({"choices": [{"index": 0, "text": piece, "finish_reason": finish}]}, wait_s)


def delta(wait_s: float = 0.0, finish: str | None = None, **fields: Any) -> Step:
    """A chat chunk: delta(role="assistant"), delta(content="x"), delta(reasoning_content="x")."""
    return event({"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}, wait_s)


def usage(completion: int, prompt: int = 8) -> Step:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion}
    return event({"choices": [], "usage": counts})


def fault(message: str, wait_s: float = 0.0) -> Step:
    return event({"error": {"message": message, "code": 500}}, wait_s)


DONE = event("[DONE]")
HANG = Step(data=None)


def tokens(
    count: int, *, first_s: float = 0.0, gap_s: float = 0.0, per_chunk: int = 1, prompt: int = 8
) -> Reply:
    """A good answer of count tokens, per_chunk of them in each piece."""
    pieces = -(-count // per_chunk)
    steps = [
        text("x " * per_chunk, first_s if i == 0 else gap_s, "length" if i == pieces - 1 else None)
        for i in range(pieces)
    ]
    return Reply((*steps, usage(count, prompt), DONE))


def answer(body: dict[str, Any], **timing: Any) -> Reply:
    """As many tokens as asked for, with a usage that matches the prompt."""
    return tokens(body["max_tokens"], prompt=count_prompt(body), **timing)


def refusal(status: int = 503, message: str = "overloaded") -> Reply:
    return Reply(status=status, json={"error": {"message": message}})


def steps(*parts: Step, cut: bool = False) -> Reply:
    return Reply(tuple(parts), cut=cut)


def count_prompt(body: dict[str, Any]) -> int:
    if "messages" in body:
        words = sum(len(m["content"].split()) for m in body["messages"])
        return TOKENS_PER_WORD * words + TEMPLATE_TOKENS
    prompt = body["prompt"]
    return len(prompt) if isinstance(prompt, list) else TOKENS_PER_WORD * len(prompt.split())


class WatchedReader(asyncio.StreamReader):
    """gone is set when the client has left."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.gone = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.gone.set()

    def set_exception(self, exc: BaseException) -> None:
        super().set_exception(exc)
        self.gone.set()


class FakeServer:
    """requests: bodies of streamed requests. hung_up: those whose client went before the end."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        model: str = "fake",
        api_key: str | None = None,
        token_ids: bool = True,
        forced_lengths: bool = True,
        apis: Iterable[str] = ("/v1/completions", "/v1/chat/completions"),
        max_model_len: int | None = None,
        metrics: Callable[[], str] | None = None,
        models_page: bytes = b"",
        keep_alive: bool = True,
    ) -> None:
        self.script = script or (lambda _, body: answer(body))
        self.model, self.api_key = model, api_key
        self.token_ids, self.forced_lengths = token_ids, forced_lengths
        self.apis, self.max_model_len, self.metrics = tuple(apis), max_model_len, metrics
        self.models_page = models_page  # any web page in the place of the list of models
        self.keep_alive = keep_alive
        self.requests: list[dict[str, Any]] = []
        self.sent: list[list[float]] = []
        self.connections = self.hung_up = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> FakeServer:
        self._thread.start()
        starting = self._loop.create_server(self._protocol, "127.0.0.1", 0, backlog=512)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(10)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(WatchedReader(loop=self._loop), self._serve)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        stays = True
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while stays and not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                method, path, _ = head[0].split(" ")
                await self._route(method, path, headers, body, reader, writer)
                stays = self.keep_alive and headers.get("connection") != "close"
        writer.close()

    async def _route(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        raw: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        if path == "/metrics":
            if self.metrics is None:
                return _plain(writer, 404, "no metrics")
            return _plain(writer, 200, self.metrics())
        if self.api_key and headers.get("authorization") != f"bearer {self.api_key}".lower():
            return _json(writer, 401, {"error": {"message": "wrong key"}})
        if path == "/v1/models" and self.models_page:
            return _bytes(writer, 200, self.models_page, "text/html")
        if method == "GET" and path == "/v1/models":
            entry: dict[str, Any] = {"id": self.model}
            if self.max_model_len is not None:
                entry["max_model_len"] = self.max_model_len
            return _json(writer, 200, {"data": [entry]})
        if method != "POST" or path not in self.apis:
            return _json(writer, 404, {"error": {"message": "not found"}})
        body = json.loads(raw)
        if problem := self._problem(body):
            return _json(writer, 400, {"error": {"message": problem}})
        if not body.get("stream"):
            counts = {"prompt_tokens": count_prompt(body), "completion_tokens": 1}
            return _json(writer, 200, {"choices": [{"text": "x"}], "usage": counts})
        self.requests.append(body)
        sent: list[float] = []
        self.sent.append(sent)
        await self._stream(self.script(len(self.requests) - 1, body), reader, writer, sent)
        return None

    def _problem(self, body: dict[str, Any]) -> str:
        if "ignore_eos" in body and not self.forced_lengths:
            return "unknown field ignore_eos"
        if isinstance(body.get("prompt"), list) and not self.token_ids:
            return "prompt must be a string"
        return ""

    async def _stream(
        self,
        reply: Reply,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        sent: list[float],
    ) -> None:
        if reply.raw:
            return _bytes(writer, reply.status, reply.raw, "text/plain; charset=utf-8")
        if reply.status != 200:
            return _json(writer, reply.status, reply.json)
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        assert isinstance(reader, WatchedReader)
        gone = asyncio.create_task(reader.gone.wait())
        try:
            for step in reply.steps:
                wait_s = None if step.data is None else step.wait_s
                done, _ = await asyncio.wait({gone}, timeout=wait_s)
                if done:
                    self.hung_up += 1
                    writer.close()
                    return None
                if step.data:
                    sent.append(time.monotonic())
                    writer.write(f"{len(step.data):x}\r\n".encode() + step.data + b"\r\n")
                    await writer.drain()
            if reply.cut:
                writer.transport.abort()
                return None
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        finally:
            gone.cancel()
        return None


def _json(writer: asyncio.StreamWriter, status: int, value: Any) -> None:
    _plain(writer, status, json.dumps(value), "application/json")


def _plain(
    writer: asyncio.StreamWriter, status: int, content: str, kind: str = "text/plain"
) -> None:
    _bytes(writer, status, content.encode(), kind)


def _bytes(writer: asyncio.StreamWriter, status: int, data: bytes, kind: str) -> None:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
