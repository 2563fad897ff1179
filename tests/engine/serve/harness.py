"""A real HTTP server on a real port around the scripted model, in a thread of the test process."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import httpx

from engine.config import EngineConfig
from engine.serve import server as web
from engine.serve.app import create_app
from engine.serve.assemble import assemble
from engine.serve.options import ServeOptions
from engine.serve.service import Service
from engine.tokenizer import Tokenizer
from engine.tokenizer.detokenizer import byte_level_alphabet
from engine.tokenizer.tokenizer import tokenizer_from_metadata
from tests.engine.fake_runner import EOS, FakeRunner
from tests.engine.metrics.exposition import Page, read

MODEL = "scripted"
_TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def byte_tokenizer() -> Tokenizer:
    """One token per byte, EOS after them."""
    character_of = {byte: character for character, byte in byte_level_alphabet().items()}
    return tokenizer_from_metadata(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": [*(character_of[b] for b in range(256)), "<|end|>", "<|pad|>"],
            "tokenizer.ggml.token_type": [1] * 256 + [3, 3],
            "tokenizer.ggml.merges": [],
            "tokenizer.ggml.eos_token_id": EOS,
            "tokenizer.chat_template": _TEMPLATE,
        }
    )


@dataclass
class RunningServer:
    """What the tests need of a running server."""

    service: Service
    runner: FakeRunner
    port: int
    eos_token_id: int = EOS

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def expected(self, prompt: str, num_tokens: int) -> str:
        """What the scripted model answers: its prompt, over and over."""
        raw = prompt.encode()
        return (raw * (num_tokens // len(raw) + 1))[:num_tokens].decode(errors="replace")

    def chat_prompt(self, content: str) -> str:
        return f"user: {content}\nassistant: "

    def metrics(self) -> Page:
        return read(httpx.get(f"{self.url}/metrics").text)

    def wait_for(self, holds: Callable[[Page], bool], timeout_s: float = 20.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not holds(self.metrics()):
            assert time.monotonic() < deadline, "the server did not reach the expected state"
            time.sleep(0.01)

    def wait_idle(self) -> None:
        """Until no request is left and no block is held."""
        self.wait_for(
            lambda page: (
                page.value("vllm:num_requests_running") == 0
                and page.value("vllm:num_requests_waiting") == 0
                and page.value("slotune:kv_blocks", state="used") == 0
            )
        )

    def wait_submitted(self) -> None:
        """Until the engine has taken a request in (seen beside its loop, which may be paused)."""
        deadline = time.monotonic() + 20
        while not self.service.engine.num_streams:
            assert time.monotonic() < deadline, "no request has reached the engine"
            time.sleep(0.01)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """No step is made inside the block."""
        self.runner.gate.clear()
        try:
            yield
        finally:
            self.runner.gate.set()


@contextlib.contextmanager
def running(
    config: EngineConfig | None = None,
    options: ServeOptions | None = None,
    runner: FakeRunner | None = None,
) -> Iterator[RunningServer]:
    """A server that is up inside the block."""
    runner = runner or FakeRunner()
    config = (config or EngineConfig(max_num_seqs=8, chunk_size=64)).checked()
    config = replace(config, block_size=runner.block_size)
    service = assemble(config, options or ServeOptions(), runner, byte_tokenizer(), name=MODEL)
    listener = web.bind("127.0.0.1", 0)
    web.listen(listener)
    ready = threading.Event()
    uvicorn_server = web.Server(
        create_app(service), on_ready=ready.set, on_signal=service.engine.begin_stop
    )
    thread = threading.Thread(target=uvicorn_server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        assert ready.wait(20)
        yield RunningServer(service, runner, listener.getsockname()[1])
    finally:
        runner.gate.set()
        uvicorn_server.should_exit = True
        thread.join(20)
        listener.close()
        assert not thread.is_alive()
