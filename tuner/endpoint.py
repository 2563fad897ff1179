"""An OpenAI-compatible server as the load generator sees it, and what it turns out to support."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass, replace
from http.client import HTTPException
from typing import Any, Literal
from urllib.parse import urlsplit

from tuner.errors import UserError

Api = Literal["completions", "chat"]
PROBE_TIMEOUT_S = 60.0
PROBE_TOKENS = [1000, 1001]
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Endpoint:
    """base_url without /v1. token_ids: prompts may be token-id lists, so lengths are exact.

    forced_lengths: the server honours ignore_eos and min_tokens.
    """

    base_url: str
    model: str = ""
    api_key: str | None = None
    api: Api = "completions"
    token_ids: bool = False
    forced_lengths: bool = False

    @property
    def generate_url(self) -> str:
        return self._url(self.api)

    def _url(self, api: Api) -> str:
        path = "completions" if api == "completions" else "chat/completions"
        return f"{self.base_url}/v1/{path}"

    def headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        return headers

    def probe(self) -> Endpoint:
        """Find the model's name and what requests may hold. UserError when it is no such server."""
        served = self._models()
        model = self.model or served[0]
        if model not in served:
            raise UserError(
                f"{self.base_url} does not serve {model!r}; it serves: {', '.join(served)}"
            )
        known = replace(self, model=model)
        if self.api == "chat":
            return replace(known, forced_lengths=known._accepts(_forced(), "chat"))
        for token_ids in (True, False):
            for forced in (True, False):
                extra = _forced() if forced else {}
                prompt: Any = PROBE_TOKENS if token_ids else "Hello"
                if known._accepts({"prompt": prompt, **extra}, "completions"):
                    return replace(known, token_ids=token_ids, forced_lengths=forced)
        status, text = known._post({"prompt": "Hello"}, "completions")
        raise UserError(f"{self.base_url}/v1/completions answers HTTP {status}: {text[:200]}")

    def _models(self) -> list[str]:
        url = f"{self.base_url}/v1/models"
        try:
            request = urllib.request.Request(url, headers=self.headers())
            with _OPENER.open(request, timeout=10) as response:
                served = [str(item["id"]) for item in json.load(response)["data"]]
        except urllib.error.HTTPError as error:
            if error.code in (401, 403):
                raise UserError(
                    f"{url} refuses the API key (HTTP {error.code}): give --api-key"
                ) from error
            raise UserError(
                f"{url} answers HTTP {error.code}: is it an OpenAI-compatible server?"
            ) from error
        except (urllib.error.URLError, OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise UserError(f"nothing answers at {url} ({reason}): is the server up?") from error
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{url} is not an OpenAI-compatible list of models") from error
        if not served:
            raise UserError(f"{url} lists no model")
        return served

    def _accepts(self, body: dict[str, Any], api: Api) -> bool:
        status, text = self._post(body, api)
        if status in (401, 403):
            raise UserError(f"{self.base_url} refuses the API key (HTTP {status})")
        if status >= 500:
            raise UserError(f"{self.base_url} fails on a one-token request: {text[:200]}")
        return status == 200

    def _post(self, body: dict[str, Any], api: Api) -> tuple[int, str]:
        if api == "chat":
            body = {"messages": [{"role": "user", "content": "Hello"}], **body}
        payload = {"model": self.model, "max_tokens": 1, "temperature": 0, **body}
        url = self._url(api)
        request = urllib.request.Request(url, json.dumps(payload).encode(), self.headers())
        try:
            with _OPENER.open(request, timeout=PROBE_TIMEOUT_S) as response:
                return int(response.status), response.read().decode(errors="replace")
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")
        except (urllib.error.URLError, OSError, HTTPException) as error:
            raise UserError(
                f"{url} does not answer a one-token request in {PROBE_TIMEOUT_S:.0f} s ({error})"
            ) from error


def base_url(text: str) -> str:
    """`host:8000/v1/` → `http://host:8000`; UserError when it is no address."""
    with_scheme = text.strip() if "://" in text else f"http://{text.strip()}"
    try:
        parts = urlsplit(with_scheme)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise UserError(f"--url {text!r} is not an address; give http://HOST:PORT")
    path = parts.path.rstrip("/").removesuffix("/v1")
    return f"{parts.scheme}://{parts.netloc}{path}"


def _forced() -> dict[str, Any]:
    return {"ignore_eos": True, "min_tokens": 1}
