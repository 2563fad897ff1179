"""One item put to a server: choices by their likelihood, exact matches by greedy generation.

Choices are scored as lm-evaluation-harness scores them: the sum of the log-probabilities of the
tokens that follow the context's, where the context's are counted by tokenizing it alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tuner.endpoint import Endpoint
from tuner.errors import UserError
from tuner.quality.task import ExactMatch, Item, MultipleChoice
from tuner.targets.base import TargetError
from tuner.targets.http import HttpRefusalError, call

SEED = 1234
PROBE = "The sky is blue."
DEFAULT_TIMEOUT_S = 120.0


class AnswerFaultError(Exception):
    """The server answered, but not with what was asked for."""


@dataclass(frozen=True, slots=True)
class ItemResult:
    """What came of one item. right_by_length: with likelihoods divided by the choices' lengths;
    None for an exact match. failure is empty where the server answered."""

    item: Item
    right: bool
    right_by_length: bool | None = None
    said: str = ""
    failure: str = ""


def check_scoring(endpoint: Endpoint, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
    """UserError, one sentence, where the server cannot score a given text."""
    needs = "multiple-choice items need /v1/completions with echo and logprobs, which"
    try:
        _echoed(endpoint, [PROBE], timeout_s)
    except HttpRefusalError as error:
        if error.status in (401, 403):
            raise UserError(f"{endpoint.base_url} refuses the API key ({error.reason})") from error
        raise UserError(
            f"{needs} {endpoint.base_url} refuses: HTTP {error.status}, {error.reason}"
        ) from error
    except AnswerFaultError as error:
        raise UserError(f"{needs} {endpoint.base_url} does not give: {error}") from error
    except TargetError as error:
        raise UserError(error.reason) from error


def ask(endpoint: Endpoint, item: Item, timeout_s: float) -> ItemResult:
    """The item's result; every failure is in it, and counts as wrong."""
    try:
        if isinstance(item, MultipleChoice):
            return _choose(endpoint, item, timeout_s)
        return _generate(endpoint, item, timeout_s)
    except HttpRefusalError as error:
        failure = f"HTTP {error.status}: {error.reason}"
    except (AnswerFaultError, TargetError) as error:
        failure = str(error)
    by_length = False if isinstance(item, MultipleChoice) else None
    return ItemResult(item, right=False, right_by_length=by_length, failure=failure)


def _choose(endpoint: Endpoint, item: MultipleChoice, timeout_s: float) -> ItemResult:
    texts = [item.context, *(item.context + choice for choice in item.choices)]
    context, *whole = _echoed(endpoint, texts, timeout_s)
    scores = [_sum(tokens[len(context) :]) for tokens in whole]
    by_length = [
        score / len(name) for score, name in zip(scores, item.names, strict=True)
    ]  # fmt: skip
    chosen = scores.index(max(scores))
    return ItemResult(
        item,
        right=chosen == item.answer,
        right_by_length=by_length.index(max(by_length)) == item.answer,
        said=item.names[chosen],
    )


def _generate(endpoint: Endpoint, item: ExactMatch, timeout_s: float) -> ItemResult:
    body = {"prompt": item.context, "max_tokens": item.max_tokens, "stop": list(item.stop)}
    answer = _complete(endpoint, body, timeout_s)
    try:
        said = str(answer["choices"][0]["text"])
    except (KeyError, IndexError, TypeError):
        raise AnswerFaultError("the answer holds no text") from None
    targets = [target.strip() for target in item.targets]
    return ItemResult(item, right=said.strip() in targets, said=said.strip())


def _echoed(endpoint: Endpoint, prompts: list[str], timeout_s: float) -> list[list[float | None]]:
    """Log-probabilities of each prompt's tokens, None for the first.

    One token is generated, since not every server allows none, and left out again.
    """
    body = {"prompt": prompts, "max_tokens": 1, "echo": True, "logprobs": 1}
    answer = _complete(endpoint, body, timeout_s)
    try:
        choices = sorted(answer["choices"], key=lambda choice: int(choice["index"]))
        found = [list(choice["logprobs"]["token_logprobs"]) for choice in choices]
    except (KeyError, TypeError, ValueError):
        raise AnswerFaultError("the answer holds no log-probabilities") from None
    if len(found) != len(prompts):
        raise AnswerFaultError(f"{len(prompts)} prompts were sent, {len(found)} answers came")
    if any(len(tokens) < 2 or tokens[0] is not None for tokens in found):
        raise AnswerFaultError("the answer does not begin with the prompt's tokens")
    return [tokens[:-1] for tokens in found]


def _sum(tokens: list[float | None]) -> float:
    if not tokens:
        raise AnswerFaultError("a choice adds no token to its context")
    try:
        total = math.fsum(math.nan if value is None else float(value) for value in tokens)
    except (TypeError, ValueError, OverflowError):
        raise AnswerFaultError("a log-probability is no number") from None
    if math.isnan(total):
        raise AnswerFaultError("a log-probability is missing")
    return total


def _complete(endpoint: Endpoint, body: dict[str, Any], timeout_s: float) -> Any:
    shared = {"model": endpoint.model, "temperature": 0, "seed": SEED}
    return call(
        f"{endpoint.base_url}/v1/completions",
        shared | body,
        api_key=endpoint.api_key,
        timeout_s=timeout_s,
    )
