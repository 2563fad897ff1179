"""The tokenizer that the service uses: encode, decode token by token, chat prompt.

Owns where its pieces come from (GGUF metadata, or tokenizer.json and tokenizer_config.json).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from engine.errors import EngineConfigError, RequestError
from engine.tokenizer import from_gguf
from engine.tokenizer.chat_template import ChatTemplate
from engine.tokenizer.detokenizer import Alphabet, IncrementalDetokenizer, TokenBytes

_NORMALIZER_MARGIN = 4


@dataclass(frozen=True)
class Tokenizer:
    """Text ↔ token ids of one model.

    bos_token_id is put before a plain prompt where the model wants that and the backend does not
    do it itself. chat_template is None for a base model.
    """

    backend: tokenizers.Tokenizer
    token_bytes: TokenBytes
    chat_template: ChatTemplate | None
    bos_token_id: int | None = None

    @functools.cached_property
    def max_chars_per_token(self) -> int:
        """No text has fewer tokens than its length divided by this; the margin is for normalizers,
        which may shorten a text."""
        return _NORMALIZER_MARGIN * max(map(len, self.backend.get_vocab(with_added_tokens=True)))

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text, with BOS where the model wants one."""
        # As a batch: that releases the interpreter, which a long text would hold for seconds.
        (encoding,) = self.backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = encoding.ids
        if add_special_tokens and self.bos_token_id is not None:
            return [self.bos_token_id, *ids]
        return ids

    def detokenizer(self) -> IncrementalDetokenizer:
        return IncrementalDetokenizer(self.token_bytes)

    def chat_prompt(
        self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any] | None = None
    ) -> list[int]:
        """Token ids of chat_text."""
        return self.encode(self.chat_text(messages, variables), add_special_tokens=False)

    def chat_text(
        self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any] | None = None
    ) -> str:
        """A conversation up to where the assistant answers, as the model's chat template writes it;
        variables are further names that the template may read."""
        if self.chat_template is None:
            raise RequestError(
                "this model has no chat template; use /v1/completions", param="messages"
            )
        return self.chat_template.render(messages, variables or {})


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a .gguf file or of a folder with tokenizer.json."""
    if path.is_dir():
        return _from_folder(path)
    from engine.models.gguf import read_metadata

    return tokenizer_from_metadata(read_metadata(path))


def tokenizer_from_metadata(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer of a GGUF file's metadata (key → value)."""
    backend = from_gguf.build_tokenizer(metadata)
    template = metadata.get("tokenizer.chat_template")
    names = from_gguf.special_token_names(metadata)
    bos_id = metadata.get("tokenizer.ggml.bos_token_id")
    return Tokenizer(
        backend=backend,
        token_bytes=_token_bytes(backend, "byte_level"),
        chat_template=ChatTemplate(str(template), names) if template else None,
        bos_token_id=int(bos_id) if bos_id is not None and from_gguf.adds_bos(metadata) else None,
    )


def _from_folder(folder: Path) -> Tokenizer:
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise EngineConfigError(f"{folder} holds no tokenizer.json, which the engine needs")
    try:
        backend = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the Rust library raises plain Exception
        raise EngineConfigError(f"{file} is not a tokenizer that can be read: {error}") from error
    config = _read_json(folder / "tokenizer_config.json")
    template = _folder_template(folder, config)
    names = {key: text for key in config if key.endswith("_token") and (text := _text(config[key]))}
    return Tokenizer(
        backend=backend,
        token_bytes=_token_bytes(backend, _alphabet(backend, file)),
        chat_template=ChatTemplate(template, names) if template else None,
    )


def _token_bytes(backend: tokenizers.Tokenizer, alphabet: Alphabet) -> TokenBytes:
    added = backend.get_added_tokens_decoder()
    special = [token_id for token_id, token in added.items() if token.special]
    return TokenBytes(backend.id_to_token, special, alphabet)


def _alphabet(backend: tokenizers.Tokenizer, file: Path) -> Alphabet:
    description = json.loads(backend.to_str())["decoder"] or {}
    kinds = {description.get("type"), *(d["type"] for d in description.get("decoders", ()))}
    if "ByteLevel" in kinds:
        return "byte_level"
    if "ByteFallback" in kinds:
        return "byte_fallback"
    raise EngineConfigError(
        f"{file} decodes by {sorted(str(kind) for kind in kinds)}; supported are ByteLevel and "
        "ByteFallback"
    )


def _folder_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.is_file():
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise EngineConfigError(f"{file} cannot be read: {error}") from error
    template = config.get("chat_template")
    if isinstance(template, list):  # named templates: the default one
        entries = [entry for entry in template if isinstance(entry, dict)]
        named = {entry.get("name"): entry.get("template") for entry in entries}
        template = named.get("default")
    if template is not None and not isinstance(template, str):
        raise EngineConfigError(
            f"{folder / 'tokenizer_config.json'}: chat_template must be a text, is {template!r:.80}"
        )
    return template


def _read_json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise EngineConfigError(f"{file} is not valid JSON: {error}") from error
    return value if isinstance(value, dict) else {}


def _text(token: Any) -> str | None:
    return token.get("content") if isinstance(token, dict) else token
