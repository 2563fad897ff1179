"""The request bodies of the API and their translation into SamplingParams.

Owns the JSON schema of what is accepted; everything else is refused with the field's name.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.errors import RequestError, shown
from engine.logprobs import MAX_TOP_LOGPROBS
from engine.sampling_params import SamplingParams
from engine.serve.errors import from_validation
from engine.serve.parameters import refuse_unsupported

MAX_CHOICES = 1024
"""Prompts × n of one HTTP request."""

COMPLETION_DEFAULT_MAX_TOKENS = 16
"""OpenAI's and vLLM's limit for /v1/completions when the request names none."""

TokenIds = list[Annotated[int, Field(ge=0)]]
NumTop = Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)]


class StreamOptions(BaseModel):
    """include_usage adds a last chunk with the token counts; continuous_usage_stats (vLLM's)
    adds them to every chunk."""

    model_config = ConfigDict(strict=True, extra="forbid")

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class GenerationBody(BaseModel):
    """What /v1/completions and /v1/chat/completions share."""

    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: TokenIds | None = None
    ignore_eos: bool | None = None
    cache_salt: str | None = None

    @property
    def num_choices_per_prompt(self) -> int:
        return self.n or 1

    @property
    def include_usage(self) -> bool:
        options = self.stream_options
        return options is not None and bool(options.include_usage)

    @property
    def continuous_usage(self) -> bool:
        options = self.stream_options
        return options is not None and bool(options.continuous_usage_stats)

    @property
    def num_logprobs(self) -> int | None:
        """How many of the likeliest tokens to tell beside each token; None: no log-probability."""
        return None

    @property
    def echoes(self) -> bool:
        """Whether the answer begins with the prompt."""
        return False

    @property
    def only_echoes(self) -> bool:
        """Whether nothing is to be generated."""
        return False

    def check(self) -> None:
        """Raise RequestError for what the schema alone cannot see."""
        refuse_unsupported(self.model_extra or {})
        if self.stream_options is not None and not self.stream:
            raise RequestError(
                "stream_options may be given only with stream=true", param="stream_options"
            )

    def sampling(self, *, max_tokens: int | None) -> SamplingParams:
        """The checked sampling parameters; nulls become the API's defaults."""
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        params = SamplingParams(
            max_tokens=max_tokens,
            min_tokens=self.min_tokens or 0,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_k=self.top_k or 0,
            top_p=1.0 if self.top_p is None else self.top_p,
            seed=self.seed,
            stop=tuple(stop),
            stop_token_ids=tuple(self.stop_token_ids or ()),
            ignore_eos=bool(self.ignore_eos),
            logprobs=None if self.only_echoes else self.num_logprobs,
            prompt_logprobs=self.num_logprobs if self.echoes else None,
        )
        params.check()
        return params


class CompletionBody(GenerationBody):
    """POST /v1/completions: prompts are texts or token ids, one or several."""

    # Checked by hand below: a schema of four alternatives walks a long list of ids four times.
    prompt: Any
    echo: bool | None = None
    logprobs: NumTop | None = None

    @property
    def num_logprobs(self) -> int | None:
        return self.logprobs

    @property
    def echoes(self) -> bool:
        return bool(self.echo)

    @property
    def only_echoes(self) -> bool:
        return self.echoes and self.max_tokens == 0

    def prompts(self) -> list[str | list[int]]:
        """The prompts as a list of texts or of token id lists."""
        value = self.prompt
        if isinstance(value, str) or _is_token_ids(value):
            return [value]
        if isinstance(value, list) and value:
            self._check_choices(len(value))
            if all(isinstance(item, str) for item in value):
                return list(value)
            if all(_is_token_ids(item) for item in value):
                return list(value)
        raise RequestError(
            "prompt must be a string, a list of strings, a list of token ids, or a list of lists "
            "of token ids, and not empty",
            param="prompt",
            code="invalid_type",
        )

    def _check_choices(self, num_prompts: int) -> None:
        """Before a prompt is tokenized."""
        num_choices = num_prompts * self.num_choices_per_prompt
        if num_choices > MAX_CHOICES:
            raise RequestError(
                f"a request may have at most {MAX_CHOICES} outputs (prompts × n), got "
                f"{num_choices}",
                param="n",
            )


def _is_token_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int for item in value)


class ChatMessage(BaseModel):
    """One turn; content is text, or parts of which only {"type": "text"} is supported."""

    model_config = ConfigDict(strict=True, extra="allow")

    role: str
    content: str | list[dict[str, Any]] | None = None

    def as_template_input(self, index: int) -> dict[str, Any]:
        """The dictionary that chat templates expect, with content as one string."""
        extra = {key: value for key, value in (self.model_extra or {}).items() if value}
        for name in ("tool_calls", "function_call", "audio"):
            if name in extra:
                raise RequestError(
                    f"messages[{index}].{name} is not supported by this engine",
                    param=f"messages.{index}.{name}",
                    code="unsupported_parameter",
                )
        return {**extra, "role": self.role, "content": self._text(index)}

    def _text(self, index: int) -> str:
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        texts = []
        for number, part in enumerate(self.content):
            kind, text = part.get("type"), part.get("text")
            if kind not in ("text", "input_text") or not isinstance(text, str):
                raise RequestError(
                    f"messages[{index}].content[{number}] is of type {shown(kind)}; this model "
                    'reads only {"type": "text", "text": "..."}',
                    param=f"messages.{index}.content",
                    code="unsupported_parameter",
                )
            texts.append(text)
        return "\n".join(texts)


class ChatBody(GenerationBody):
    """POST /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: int | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: NumTop | None = None

    @property
    def num_logprobs(self) -> int | None:
        return self.top_logprobs or 0 if self.logprobs else None

    def check(self) -> None:
        super().check()
        if self.top_logprobs and not self.logprobs:
            raise RequestError("top_logprobs needs logprobs=true", param="top_logprobs")

    def token_limit(self) -> int | None:
        """max_completion_tokens, or its older name max_tokens."""
        if self.max_completion_tokens is None:
            return self.max_tokens
        return self.max_completion_tokens


Body = TypeVar("Body", bound=BaseModel)


def parse_body(kind: type[Body], raw: bytes) -> Body:
    """The request body as `kind`, or RequestError with one sentence."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise RequestError(
            f"the request body is not valid JSON: {error}", code="invalid_json"
        ) from None
    if not isinstance(value, dict):
        raise RequestError(
            f"the request body must be a JSON object, got {type(value).__name__}",
            code="invalid_json",
        )
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise from_validation(error) from None
