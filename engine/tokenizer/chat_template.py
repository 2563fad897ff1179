"""Chat messages to a prompt, by the model's own Jinja template, in a sandbox.

Rendering equals transformers' `apply_chat_template` for plain text conversations.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.errors import EngineConfigError, RequestError


class ChatTemplate:
    """One compiled template with the special tokens that it may name."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise EngineConfigError(
                f"the model's chat template is not valid Jinja (line {error.lineno}: {error})"
            ) from error
        self._special_tokens = dict(special_tokens)

    def render(
        self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any] | None = None
    ) -> str:
        """The prompt text; RequestError when the template refuses the messages."""
        names: dict[str, Any] = {
            "add_generation_prompt": True,
            "tools": None,
            "documents": None,
            **self._special_tokens,
            **(variables or {}),
            "messages": messages,
        }
        try:
            return self._template.render(names)
        except (jinja2.TemplateError, TypeError) as error:
            raise RequestError(
                f"the model's chat template refused the messages: {error}", param="messages"
            ) from error


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.datetime.now().strftime(layout)


def _tojson(value: Any, indent: int | None = None, **options: Any) -> str:
    # Jinja's own filter escapes HTML, which would change the prompt.
    return json.dumps(value, ensure_ascii=False, indent=indent, **options)
