"""The generating routes: /v1/completions and /v1/chat/completions."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import Response

from engine.serve import errors
from engine.serve.bodies import UsageOptions, Writer
from engine.serve.generation import Generation, StreamResponse, whole_response
from engine.serve.intake import read_body
from engine.serve.protocol import (
    COMPLETION_DEFAULT_MAX_TOKENS,
    ChatBody,
    CompletionBody,
    GenerationBody,
    parse_body,
)
from engine.serve.service import Prompt, Service

Body = TypeVar("Body", bound=GenerationBody)


def install(app: FastAPI, service: Service) -> None:
    """Add the routes that generate text."""

    @app.post("/v1/completions", openapi_extra=_schema(CompletionBody))
    async def completions(request: Request) -> Response:
        arrival_s = service.engine.clock()
        body = await _checked(CompletionBody, request, service)
        response_id = f"cmpl-{uuid.uuid4().hex}"
        generation = await _start_completion(service, response_id, body, arrival_s)
        writer = Writer("completion", response_id, service.served_model_name, _usage_options(body))
        return await _respond(request, body, generation, writer)

    @app.post("/v1/chat/completions", openapi_extra=_schema(ChatBody))
    async def chat_completions(request: Request) -> Response:
        arrival_s = service.engine.clock()
        body = await _checked(ChatBody, request, service)
        response_id = f"chatcmpl-{uuid.uuid4().hex}"
        generation = await _start_chat(service, response_id, body, arrival_s)
        writer = Writer("chat", response_id, service.served_model_name, _usage_options(body))
        return await _respond(request, body, generation, writer)


async def _checked(kind: type[Body], request: Request, service: Service) -> Body:
    body = parse_body(kind, await read_body(request))
    body.check()
    service.check_model(body.model)
    return body


async def _start_completion(
    service: Service, response_id: str, body: CompletionBody, arrival_s: float
) -> Generation:
    # The engine always computes a token: of an echo alone, one that is not shown.
    given = 1 if body.only_echoes else body.max_tokens
    limit = COMPLETION_DEFAULT_MAX_TOKENS if given is None else given
    sampling = body.sampling(max_tokens=limit)
    prompts = await service.prompts(body.prompts())
    at_fault = "prompt" if given is None or body.only_echoes else "max_tokens"
    for prompt in prompts:
        service.check_length(len(prompt.token_ids), given, at_fault)
    if given is None:  # a default must not refuse a prompt that leaves room for fewer tokens
        room = service.room_after(max(len(prompt.token_ids) for prompt in prompts))
        sampling = replace(sampling, max_tokens=min(limit, room))
    return await service.start(response_id, prompts, sampling, body, arrival_s=arrival_s)


async def _start_chat(
    service: Service, response_id: str, body: ChatBody, arrival_s: float
) -> Generation:
    limit = body.token_limit()
    sampling = body.sampling(max_tokens=limit)
    messages = [message.as_template_input(i) for i, message in enumerate(body.messages)]
    prompt = await service.encode_chat(messages, body.chat_template_kwargs or {})
    param = "messages" if limit is None else "max_tokens"
    service.check_length(len(prompt), limit, param)
    return await service.start(response_id, [Prompt(prompt)], sampling, body, arrival_s=arrival_s)


async def _respond(
    request: Request, body: GenerationBody, generation: Generation, writer: Writer
) -> Response:
    if body.stream:
        return StreamResponse(generation, writer, errors.from_exception)
    return await whole_response(generation, writer, request.receive)


def _usage_options(body: GenerationBody) -> UsageOptions:
    return UsageOptions(body.include_usage, body.continuous_usage)


def _schema(kind: type[GenerationBody]) -> dict[str, object]:
    """The request schema for /docs; bodies are parsed by hand for speed and clear refusals."""
    content = {"application/json": {"schema": kind.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}
