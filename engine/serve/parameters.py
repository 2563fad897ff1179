"""Parameters of the OpenAI and vLLM APIs that this engine does not offer, with the values that
mean "off". Invariant: a parameter is either obeyed or refused by name, never ignored silently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.errors import RequestError, shown

_OFF_VALUES: dict[str, tuple[Any, ...]] = {
    "add_generation_prompt": (True,),
    "add_special_tokens": (True,),
    "allowed_token_ids": ([],),
    "audio": (),
    "bad_words": ([],),
    "best_of": (1,),
    "chat_template": (),
    "continue_final_message": (False,),
    "detokenize": (True,),
    "documents": ([],),
    "echo": (False,),
    "frequency_penalty": (0,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "include_reasoning": (True,),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "min_p": (0,),
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "presence_penalty": (0,),
    "priority": (0,),
    "prompt_embeds": (),
    "prompt_logprobs": (),
    "reasoning_effort": ("none",),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "service_tier": ("auto", "default"),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "store": (False,),
    "structured_outputs": (),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
    "web_search_options": (),
}

_LABELS = frozenset({"metadata", "prompt_cache_key", "request_id", "safety_identifier", "user"})
"""Say who asks and change no output: accepted with any value."""


def refuse_unsupported(extra: Mapping[str, Any]) -> None:
    """Raise RequestError for the first parameter that would have to be ignored."""
    for name, value in extra.items():
        if value is None or name in _LABELS:
            continue
        off = _OFF_VALUES.get(name)
        if off is None:
            raise RequestError(
                f"unknown parameter {shown(name)}", param=name, code="unknown_parameter"
            )
        if not any(_same(value, accepted) for accepted in off):
            raise RequestError(
                f"{name} is not supported by this engine; leave it out",
                param=name,
                code="unsupported_parameter",
            )


def _same(value: Any, accepted: Any) -> bool:
    # True == 1 in Python, but logprobs=0 asks for something that logprobs=false does not.
    return value == accepted and isinstance(value, bool) == isinstance(accepted, bool)
