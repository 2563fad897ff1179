"""What the routes share: the engine, the tokenizer, and the way from a request to a Generation."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from engine.async_engine import AsyncEngine
from engine.config import EngineConfig
from engine.errors import RequestError
from engine.metrics.http import HttpMetrics
from engine.metrics.registry import MetricRegistry
from engine.sampling_params import SamplingParams
from engine.sequence import Sequence as EngineSequence
from engine.serve.admin import LiveKnobs
from engine.serve.choices import Choice, Echo
from engine.serve.generation import Generation
from engine.serve.logprobs import TokenLog, prompt_text
from engine.serve.protocol import GenerationBody
from engine.tokenizer import Tokenizer

Result = TypeVar("Result")

_LONG_TEXT_CHARS = 16_384
"""Texts from here on are tokenized beside the event loop, which must keep streaming."""


_TEMPLATE_CHARS = 64
"""About what a chat template writes around each message."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids, and the text they were given as, if they were."""

    token_ids: list[int]
    text: str | None = None


@dataclass
class Service:
    """One served model. facts are the constant fields of /server_info."""

    config: EngineConfig
    engine: AsyncEngine
    tokenizer: Tokenizer
    registry: MetricRegistry
    http_metrics: HttpMetrics
    knobs: LiveKnobs
    served_model_name: str
    max_model_len: int
    vocab_size: int
    facts: dict[str, Any] = field(default_factory=dict)
    api_key: str | None = None
    enable_admin: bool = False
    started_unix_s: float = field(default_factory=time.time)
    instance_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def check_model(self, name: str | None) -> None:
        """Refuse a request for another model."""
        if name is not None and name != self.served_model_name:
            raise RequestError(
                f"the model {name[:200]!r} is not served here; this server has "
                f"{self.served_model_name!r}",
                param="model",
                code="model_not_found",
                status=404,
            )

    async def prompts(self, given: Sequence[str | list[int]]) -> list[Prompt]:
        """The plain prompts of one request, texts or token ids. Raises RequestError."""
        for prompt in given:
            if isinstance(prompt, str):
                self._check_chars(len(prompt), "prompt")
            else:
                self.check_token_ids(prompt)

        def encoded() -> list[Prompt]:
            return [
                Prompt(self.tokenizer.encode(prompt), prompt)
                if isinstance(prompt, str)
                else Prompt(prompt)
                for prompt in given
            ]

        num_chars = sum(len(prompt) for prompt in given if isinstance(prompt, str))
        return await _beside(encoded, num_chars=num_chars)

    async def encode_chat(
        self, messages: list[dict[str, Any]], variables: dict[str, Any]
    ) -> list[int]:
        """Token ids of a conversation."""
        num_chars = sum(len(message["content"]) for message in messages)
        self._check_chars(num_chars, "messages")

        def encoded() -> list[int]:
            text = self.tokenizer.chat_text(messages, variables)
            self._check_chars(len(text), "messages")
            return self.tokenizer.encode(text, add_special_tokens=False)

        around = sum(len(message["role"]) + _TEMPLATE_CHARS for message in messages)
        return await _beside(encoded, num_chars=num_chars + around)

    def room_after(self, prompt_tokens: int) -> int:
        """Tokens that may follow a prompt, in the model's context and in the KV pool; at least 1,
        so that the engine itself says what does not fit."""
        pool_tokens = self.knobs.kv_blocks_cap * self.config.block_size
        return max(1, min(self.max_model_len - prompt_tokens, pool_tokens - prompt_tokens + 1))

    def _check_chars(self, num_chars: int, param: str) -> None:
        """Refuse what can never fit max_model_len before seconds are spent on its tokens."""
        if num_chars > self.max_model_len * self.tokenizer.max_chars_per_token:
            raise RequestError(
                f"this model's maximum context length is {self.max_model_len} tokens, which cannot "
                f"hold {num_chars} characters",
                param=param,
                code="context_length_exceeded",
            )

    def check_token_ids(self, token_ids: Sequence[int]) -> None:
        """Refuse ids outside the vocabulary."""
        lowest, highest = min(token_ids), max(token_ids)
        if lowest < 0 or highest >= self.vocab_size:
            wrong = lowest if lowest < 0 else highest
            raise RequestError(
                f"prompt has the token id {wrong}, outside 0 to {self.vocab_size - 1}",
                param="prompt",
            )

    def _check_stop_token_ids(self, token_ids: Sequence[int]) -> None:
        """Refuse what the sampler cannot forbid before min_tokens: ids that are none, and so many
        that hardly a token is left."""
        highest = max(token_ids, default=0)
        if highest >= self.vocab_size:
            raise RequestError(
                f"stop_token_ids has {highest}, outside 0 to {self.vocab_size - 1}",
                param="stop_token_ids",
            )
        if 2 * len(set(token_ids)) > self.vocab_size:
            raise RequestError(
                f"stop_token_ids may name at most half of the {self.vocab_size} tokens, "
                f"got {len(set(token_ids))}",
                param="stop_token_ids",
            )

    def check_length(self, prompt_tokens: int, max_tokens: int | None, param: str) -> None:
        """Refuse what can never fit max_model_len."""
        wanted = prompt_tokens + (1 if max_tokens is None else max_tokens)
        if wanted > self.max_model_len:
            raise RequestError(
                f"this model's maximum context length is {self.max_model_len} tokens, but the "
                f"request has {prompt_tokens} in the prompt and asks for "
                f"{'at least 1' if max_tokens is None else max_tokens} more",
                param=param,
                code="context_length_exceeded",
            )

    async def start(
        self,
        response_id: str,
        prompts: Sequence[Prompt],
        sampling: SamplingParams,
        body: GenerationBody,
        *,
        arrival_s: float,
    ) -> Generation:
        """Queue every choice of every prompt; RequestError when the engine refuses one."""
        self._check_stop_token_ids(sampling.stop_token_ids)
        per_prompt = body.num_choices_per_prompt
        choices: list[Choice] = []
        sequences: list[EngineSequence] = []
        for prompt in prompts:
            for number in range(per_prompt):
                index = len(choices)
                own = _own_seed(sampling, number)
                request_id = f"{response_id}-{index}"
                choices.append(self._choice(index, request_id, own, prompt, body))
                sequences.append(
                    EngineSequence(
                        request_id, prompt.token_ids, own, arrival_s,
                        cache_salt=body.cache_salt or "",
                    )
                )  # fmt: skip
        stream = await self.engine.submit(sequences)
        return Generation(
            self.engine,
            stream,
            choices,
            num_prompt_tokens=sum(len(prompt.token_ids) for prompt in prompts),
            choices_per_prompt=per_prompt,
        )

    def _choice(
        self,
        index: int,
        request_id: str,
        sampling: SamplingParams,
        prompt: Prompt,
        body: GenerationBody,
    ) -> Choice:
        choice = Choice(index, request_id, sampling, self.tokenizer.detokenizer())
        if body.num_logprobs is not None:
            choice.log = TokenLog(self.tokenizer.token_bytes)
        if body.echoes:
            text = prompt.text
            if text is None:
                text = prompt_text(self.tokenizer.token_bytes, prompt.token_ids)
            choice.echo = Echo(prompt.token_ids, text, alone=body.only_echoes)
        return choice


async def _beside(work: Callable[[], Result], *, num_chars: int) -> Result:
    """The work's result; where its text is long, done beside the event loop."""
    return work() if num_chars < _LONG_TEXT_CHARS else await asyncio.to_thread(work)


def _own_seed(sampling: SamplingParams, number: int) -> SamplingParams:
    """The n outputs of a seeded request differ, and each is reproducible."""
    if number == 0 or sampling.seed is None:
        return sampling
    return replace(sampling, seed=sampling.seed + number)
