"""One HTTP request's generation: prompts in, texts out, streamed or whole.

Shared by completions and chat. Invariant: when the answer ends, for whatever reason, no sequence of
the request is left in the engine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine.async_engine import AsyncEngine
from engine.core import TokenEvent
from engine.errors import EngineDeadError
from engine.output_stream import OutputStream
from engine.serve.bodies import DONE, Writer
from engine.serve.choices import Choice, Usage
from engine.serve.disconnect import ClientDisconnectedError, until_disconnect
from engine.serve.errors import error_body

_SSE_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Generation:
    """The choices of one request and the stream that feeds them."""

    def __init__(
        self,
        engine: AsyncEngine,
        stream: OutputStream,
        choices: Sequence[Choice],
        *,
        num_prompt_tokens: int,
        choices_per_prompt: int,
    ) -> None:
        self.choices = list(choices)
        self.usage = Usage(prompt_tokens=num_prompt_tokens)
        self._engine = engine
        self._stream = stream
        self._by_request = {choice.request_id: choice for choice in choices}
        self._choices_per_prompt = choices_per_prompt
        self._num_open = len(self.choices)

    @property
    def finished(self) -> bool:
        return self._num_open == 0

    async def next_texts(self) -> list[tuple[Choice, str]]:
        """New text per choice, of all tokens that have arrived; may be empty."""
        texts: dict[int, str] = {}
        for event in await self._stream.next():
            choice = self._by_request[event.request_id]
            text = self._take(choice, event)
            if text or choice.finish_reason is not None:
                texts[choice.index] = texts.get(choice.index, "") + text
        return [(self.choices[index], text) for index, text in texts.items()]

    def _take(self, choice: Choice, event: TokenEvent) -> str:
        if choice.finish_reason is not None:
            return ""
        if choice.num_tokens == 0 and choice.index % self._choices_per_prompt == 0:
            self.usage.cached_tokens += event.num_cached_tokens
        before = choice.num_tokens
        text = choice.take(event)
        self.usage.completion_tokens += choice.num_tokens - before
        if choice.finish_reason is not None:
            self._num_open -= 1
            if event.finish_reason is None:
                self._engine.finish(self._stream, choice.request_id)
        return text

    async def complete(self) -> None:
        """Run to the end; the texts are then in the choices' pieces."""
        while not self.finished:
            for choice, text in await self.next_texts():
                choice.pieces.append(text)

    def close(self) -> None:
        """Abort what still runs; to be called once, when the answer has ended."""
        self._stream.close()
        for start in range(0, len(self.choices), self._choices_per_prompt):
            outputs = self.choices[start : start + self._choices_per_prompt]
            self._engine.metrics.on_request_end([choice.num_tokens for choice in outputs])


async def chunks(generation: Generation, write: Writer) -> AsyncIterator[bytes]:
    """The server-sent events of a generation, without the closing [DONE]."""
    while not generation.finished:
        parts = []
        for choice, text in await generation.next_texts():
            if not choice.started:
                choice.started = True
                parts.append(write.opening(choice))
            parts.append(write.delta(choice, text, generation.usage))
        if parts:
            yield b"".join(parts)
    if write.options.include_usage:
        yield write.usage(generation.usage)


async def whole_response(generation: Generation, write: Writer, receive: Receive) -> Response:
    """The response of a request that is not streamed."""
    try:
        await until_disconnect(receive, generation.complete())
    except ClientDisconnectedError:
        return Response(status_code=499)
    finally:
        generation.close()
    body = write.whole(generation.choices, generation.usage)
    return Response(body, media_type="application/json")


class StreamResponse(Response):
    """Server-sent events. Headers wait for the first token, so that a failure before it has its
    own HTTP status; `on_failure` turns an exception into that response."""

    def __init__(
        self,
        generation: Generation,
        write: Writer,
        on_failure: Callable[[Exception], Response],
    ) -> None:
        super().__init__()
        self._generation = generation
        self._write = write
        self._on_failure = on_failure
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_disconnect(receive, self._send_all(send))
        except ClientDisconnectedError:
            if not self._started:  # nobody reads it, but the http_* metrics count it
                await Response(status_code=499)(scope, receive, send)
        except EngineDeadError as error:
            if self._started:
                body = error_body(error.message, status=error.status, code=error.code)
                await _send_body(send, self._write.error(body) + DONE, more=False)
            else:
                await self._on_failure(error)(scope, receive, send)
        finally:
            self._generation.close()

    async def _send_all(self, send: Send) -> None:
        async for part in chunks(self._generation, self._write):
            if not self._started:
                self._started = True
                await send({"type": "http.response.start", "status": 200, "headers": _SSE_HEADERS})
            await _send_body(send, part, more=True)
        await _send_body(send, DONE, more=False)


async def _send_body(send: Send, body: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})
