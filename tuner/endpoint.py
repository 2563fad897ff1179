"""An OpenAI-compatible server as the load generator sees it, and what it turns out to support."""

from __future__ import annotations

import json
import random
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass, replace
from http.client import HTTPException
from typing import IO, Any, Literal

from tuner.deadline import opener
from tuner.errors import UserError
from tuner.printable import one_line
from tuner.workload.text import words

Api = Literal["completions", "chat"]
MODELS_TIMEOUT_S, PROBE_TIMEOUT_S = 10.0, 60.0
LOWEST_ID, HIGHEST_ID = 1_000, 30_000
"""Ids of token-id prompts: inside the usual vocabularies and above their control tokens."""

PROBE_WORDS = (20, 80)
TYPICAL_TOKENS_PER_WORD = 2.5
"""For words of two made-up syllables, where the server's usage does not tell."""

MAX_ANSWER_BYTES = 4 << 20


_OPENER = opener()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """base_url without /v1. token_ids: prompts may be token-id lists, so lengths are exact.

    forced_lengths: the server takes ignore_eos and min_tokens. tokens_per_word and template_tokens
    size text prompts. max_model_len: prompt and output tokens together; None where not told.
    """

    base_url: str
    model: str = ""
    api_key: str | None = None
    api: Api = "completions"
    token_ids: bool = False
    forced_lengths: bool = False
    tokens_per_word: float = TYPICAL_TOKENS_PER_WORD
    template_tokens: int = 0
    max_model_len: int | None = None

    @property
    def generate_url(self) -> str:
        path = "completions" if self.api == "completions" else "chat/completions"
        return f"{self.base_url}/v1/{path}"

    def headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        return headers

    def probe(self) -> Endpoint:
        """Find the model's name and what requests may hold. UserError when it is no such server."""
        check_api_key(self.api_key)
        served = self._models()
        model = self.model or next(iter(served))
        if model not in served:
            raise UserError(
                f"{self.base_url} does not serve {model!r}; it serves: "
                f"{one_line(', '.join(served))}"
            )
        if not model.isprintable():
            raise UserError(f"{self.base_url} names its model with control characters: {model!r}")
        known = replace(self, model=model, max_model_len=served[model])
        for token_ids in (True, False) if self.api == "completions" else (False,):
            for forced in (True, False):
                body = known._prompt([LOWEST_ID, HIGHEST_ID - 1] if token_ids else "Hello")
                if known._accepts(body | (_forced() if forced else {})):
                    found = replace(known, token_ids=token_ids, forced_lengths=forced)
                    return found._with_text_lengths()
        status, text = known._post(known._prompt("Hello"))
        other = "chat" if self.api == "completions" else "completions"
        hint = f"; try --api {other}" if status in (404, 405) else ""
        raise UserError(f"{self.generate_url} answers HTTP {status}: {one_line(text, 200)}{hint}")

    def _with_text_lengths(self) -> Endpoint:
        """Tokens per made-up word and of the chat template, from the usage of two prompts."""
        few, many = PROBE_WORDS
        rng = random.Random(0)
        numbers = [rng.randrange(LOWEST_ID, HIGHEST_ID) for _ in range(many)]
        counted = []
        for count in PROBE_WORDS:
            _, text = self._post(self._prompt(words(numbers, count)))
            try:
                counted.append(int(json.loads(text)["usage"]["prompt_tokens"]))
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                return self
        per_word = (counted[1] - counted[0]) / (many - few)
        if not 0.5 <= per_word <= 20:
            return self
        template = max(0, round(counted[0] - few * per_word))
        return replace(self, tokens_per_word=per_word, template_tokens=template)

    def _prompt(self, prompt: str | list[int]) -> dict[str, Any]:
        if self.api == "chat":
            return {"messages": [{"role": "user", "content": prompt}]}
        return {"prompt": prompt}

    def _models(self) -> dict[str, int | None]:
        """Served names with their context length, where the server tells it."""
        url = f"{self.base_url}/v1/models"
        try:
            request = urllib.request.Request(url, headers=self.headers())
            with _OPENER.open(request, timeout=MODELS_TIMEOUT_S) as response:
                served = {
                    str(item["id"]): int(item["max_model_len"] or 0) or None
                    if "max_model_len" in item
                    else None
                    for item in json.loads(_read(response, url))["data"]
                }
        except urllib.error.HTTPError as error:
            if error.code in (401, 403):
                raise UserError(
                    f"{url} refuses the API key (HTTP {error.code}): give --api-key"
                ) from error
            why = _redirection(error) or "is it an OpenAI-compatible server?"
            raise UserError(f"{url} answers HTTP {error.code}: {why}") from error
        except (urllib.error.URLError, OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise UserError(
                    f"{url}: the server's certificate is not trusted here "
                    f"({reason.verify_message}); name its authority in SSL_CERT_FILE"
                ) from error
            raise UserError(f"nothing answers at {url} ({reason}): is the server up?") from error
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise UserError(f"{url} is not an OpenAI-compatible list of models") from error
        if not served:
            raise UserError(f"{url} lists no model")
        return served

    def _accepts(self, body: dict[str, Any]) -> bool:
        status, text = self._post(body)
        if status in (401, 403):
            raise UserError(f"{self.base_url} refuses the API key (HTTP {status})")
        if status >= 500:
            raise UserError(
                f"{self.generate_url} fails on a one-token request, HTTP {status}: "
                f"{one_line(text, 200)}"
            )
        return status == 200

    def _post(self, body: dict[str, Any]) -> tuple[int, str]:
        payload = {"model": self.model, "max_tokens": 1, "temperature": 0, **body}
        url = self.generate_url
        request = urllib.request.Request(url, json.dumps(payload).encode(), self.headers())
        try:
            return _answer(request, url)
        except (urllib.error.URLError, OSError, HTTPException) as error:
            raise UserError(
                f"{url} does not answer a one-token request in {PROBE_TIMEOUT_S:g} s ({error})"
            ) from error


def _answer(request: urllib.request.Request, url: str) -> tuple[int, str]:
    """(status, body) of a refusal too; of a redirect, where it leads."""
    try:
        with _OPENER.open(request, timeout=PROBE_TIMEOUT_S) as response:
            return int(response.status), _read(response, url)
    except urllib.error.HTTPError as error:
        return error.code, _redirection(error) or _read(error, url)


def _read(response: IO[bytes], url: str) -> str:
    """The whole body. UserError for one that no answer to a probe is as long as."""
    body = response.read(MAX_ANSWER_BYTES + 1)
    if len(body) > MAX_ANSWER_BYTES:
        raise UserError(f"{url} answers with more than {MAX_ANSWER_BYTES >> 20} MiB")
    return body.decode(errors="replace")


def _redirection(error: urllib.error.HTTPError) -> str:
    """Where a refused redirect leads; "" for other refusals."""
    if not 300 <= error.code < 400:
        return ""
    return f"it redirects to {one_line(error.headers.get('Location', 'nowhere'))}; give its address"


def check_api_key(key: str | None) -> None:
    """UserError, without the key, for one that cannot be sent."""
    if key is not None and not (key.isascii() and key.isprintable()):
        raise UserError("--api-key holds characters that no HTTP header can carry")


def base_url(text: str) -> str:
    """`host:8000/v1/` → `http://host:8000`; UserError when it is no address."""
    from storage import address  # not above: a load generator's process needs no database

    try:
        return address.base_url(text)
    except address.UserNameError as fault:
        raise UserError(f"--url {fault}, and give a bearer token with --api-key") from None
    except ValueError as fault:
        raise UserError(f"--url {fault}") from None


def _forced() -> dict[str, Any]:
    return {"ignore_eos": True, "min_tokens": 1}
