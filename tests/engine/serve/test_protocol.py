"""Request bodies: what is accepted, what is refused, and by which name."""

import json
import time

import pytest

from engine.errors import RequestError
from engine.serve.protocol import ChatBody, CompletionBody, parse_body


def completion(**fields: object) -> CompletionBody:
    body = parse_body(CompletionBody, json.dumps({"prompt": "x", **fields}).encode())
    body.check()
    return body


def refusal(kind: type, raw: bytes | str) -> RequestError:
    with pytest.raises(RequestError) as caught:
        check(kind, raw if isinstance(raw, bytes) else raw.encode())
    return caught.value


def check(kind: type, raw: bytes) -> None:
    body = parse_body(kind, raw)
    body.check()
    body.sampling(max_tokens=body.max_tokens)
    if isinstance(body, CompletionBody):
        body.prompts()


@pytest.mark.parametrize("raw", ["", "{", "[]", '"x"', "nonsense", '{"prompt": NaN}', "\ufeff{}"])
def test_malformed_json_is_one_clear_sentence(raw: str) -> None:
    error = refusal(CompletionBody, raw)
    assert error.status == 400
    assert "JSON" in error.message
    assert "\n" not in error.message


def test_invalid_utf8_is_refused() -> None:
    assert "JSON" in refusal(CompletionBody, b'{"prompt": "\xff"}').message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", -3),
        ("max_tokens", "5"),
        ("max_tokens", 1.5),
        ("max_tokens", True),
        ("min_tokens", -1),
        ("temperature", -0.1),
        ("temperature", "hot"),
        ("top_p", 0),
        ("top_p", 1.1),
        ("top_k", -2),
        ("n", 0),
        ("n", 129),
        ("stop", ""),
        ("stop", [1]),
        ("stop", ["a"] * 1025),
        ("stop_token_ids", [-1]),
        ("stream", "yes"),
        ("seed", "a"),
        ("ignore_eos", 1),
        ("logprobs", True),
        ("logprobs", -1),
        ("logprobs", 21),
        ("echo", 1),
    ],
)
def test_a_value_out_of_range_or_of_a_wrong_type_is_named(field: str, value: object) -> None:
    error = refusal(CompletionBody, json.dumps({"prompt": "x", field: value}))
    assert error.status == 400
    assert (error.param or "").split(".")[0] == field
    assert field in error.message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("top_logprobs", 5),
        ("prompt_logprobs", 1),
        ("presence_penalty", 0.5),
        ("frequency_penalty", -0.5),
        ("repetition_penalty", 1.1),
        ("logit_bias", {"5": 1}),
        ("response_format", {"type": "json_object"}),
        ("tools", [{"type": "function"}]),
        ("best_of", 2),
        ("suffix", "x"),
        ("min_p", 0.1),
        ("no_such_parameter", 1),
    ],
)
def test_an_unsupported_parameter_is_refused_by_name(field: str, value: object) -> None:
    error = refusal(CompletionBody, json.dumps({"prompt": "x", field: value}))
    assert (error.status, error.param) == (400, field)
    assert field in error.message


@pytest.mark.parametrize(
    "fields",
    [
        {"logprobs": None, "echo": False, "presence_penalty": 0, "frequency_penalty": 0.0},
        {"logit_bias": None, "best_of": 1, "suffix": None, "user": "someone"},
        {"response_format": {"type": "text"}, "tools": None, "tool_choice": "none"},
        {"repetition_penalty": 1.0, "use_beam_search": False, "length_penalty": 1.0},
        {"max_tokens": None, "temperature": None, "n": None, "stop": None, "stream": None},
    ],
)
def test_default_values_of_unsupported_parameters_are_accepted(fields: dict[str, object]) -> None:
    completion(**fields)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("text", ["text"]),
        ("", [""]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
    ],
)
def test_prompts_of_every_form(prompt: object, expected: object) -> None:
    assert completion(prompt=prompt).prompts() == expected


@pytest.mark.parametrize("prompt", [[], [[]], [1, "a"], ["a", [1]], [1.5], 7, None, [True], {}])
def test_prompts_of_other_forms_are_refused(prompt: object) -> None:
    assert refusal(CompletionBody, json.dumps({"prompt": prompt})).param == "prompt"


def test_a_missing_prompt_and_missing_messages_are_named() -> None:
    assert refusal(CompletionBody, "{}").message == "prompt is required"
    assert refusal(ChatBody, "{}").message == "messages is required"


@pytest.mark.parametrize(
    "messages",
    [[], "hi", [{"content": "x"}], [{"role": "user", "content": 5}], [{"role": 1}], ["x"]],
)
def test_wrong_messages_are_refused(messages: object) -> None:
    error = refusal(ChatBody, json.dumps({"messages": messages}))
    assert (error.param or "").startswith("messages")


def test_message_parts_become_one_text_and_images_are_refused() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    body = parse_body(
        ChatBody, json.dumps({"messages": [{"role": "user", "content": parts}]}).encode()
    )
    assert body.messages[0].as_template_input(0) == {"role": "user", "content": "a\nb"}
    image = [{"type": "image_url", "image_url": {"url": "x"}}]
    body = parse_body(
        ChatBody, json.dumps({"messages": [{"role": "user", "content": image}]}).encode()
    )
    with pytest.raises(RequestError, match="image_url"):
        body.messages[0].as_template_input(0)


def test_stream_options_need_a_stream() -> None:
    raw = json.dumps({"prompt": "x", "stream_options": {"include_usage": True}})
    assert refusal(CompletionBody, raw).param == "stream_options"
    assert completion(stream=True, stream_options={"include_usage": True}).include_usage


def test_a_long_prompt_of_token_ids_is_checked_in_one_pass() -> None:
    """A schema of alternatives would report a fault per id; here the cost is a plain loop."""
    raw = json.dumps({"prompt": list(range(200_000))}).encode()
    started = time.process_time()
    body = parse_body(CompletionBody, raw)
    assert len(body.prompts()[0]) == 200_000
    assert time.process_time() - started < 2.0
