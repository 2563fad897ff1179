"""The tokenizer that a GGUF file describes in its metadata.

Byte-level BPE ("gpt2") of the families this engine runs. `tokenizer.ggml.pre` names how text is
split before merging; the patterns are those of the models' published tokenizer.json files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from engine.errors import EngineConfigError

_CONTROL, _USER_DEFINED = 3, 4
"""GGUF token types that are matched whole, before any splitting."""

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SPLITS = {
    "llama-bpe": rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}|{_REST}",
    "qwen2": rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}|{_REST}",
}
_BYTE_LEVEL_SPLITS = ("default", "gpt-2", "smollm")
SUPPORTED_SPLITS = (*_BYTE_LEVEL_SPLITS, *_SPLITS)


def build_tokenizer(metadata: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """A `tokenizers` tokenizer from GGUF metadata; EngineConfigError for an unknown kind."""
    kind = metadata.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise EngineConfigError(
            f"the GGUF file's tokenizer is of kind {kind!r}; supported is 'gpt2' (byte-level BPE): "
            "use the model's Hugging Face folder instead"
        )
    split = str(metadata.get("tokenizer.ggml.pre", "default"))
    if split not in SUPPORTED_SPLITS:
        raise EngineConfigError(
            f"the GGUF file's tokenizer splits text by {split!r}; supported are "
            f"{', '.join(SUPPORTED_SPLITS)}"
        )
    pieces = [str(piece) for piece in metadata["tokenizer.ggml.tokens"]]
    merges = [_pair(merge) for merge in metadata["tokenizer.ggml.merges"]]
    vocabulary = {piece: token_id for token_id, piece in enumerate(pieces)}
    tokenizer = tokenizers.Tokenizer(
        models.BPE(vocabulary, merges, fuse_unk=False, ignore_merges=split == "llama-bpe")
    )
    if split == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _pre_tokenizer(split)
    tokenizer.decoder = decoders.ByteLevel()
    _add_whole_tokens(tokenizer, pieces, metadata.get("tokenizer.ggml.token_type", ()))
    return tokenizer


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = str(merge).partition(" ")
    return left, right


def _pre_tokenizer(split: str) -> pre_tokenizers.PreTokenizer:
    if split in _SPLITS:
        pattern = tokenizers.Regex(_SPLITS[split])
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(pattern, behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if split == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    return byte_level


def _add_whole_tokens(tokenizer: tokenizers.Tokenizer, pieces: list[str], token_types: Any) -> None:
    control, plain = [], []
    for piece, token_type in zip(pieces, token_types, strict=False):
        if token_type == _CONTROL:
            control.append(tokenizers.AddedToken(piece, normalized=False, special=True))
        elif token_type == _USER_DEFINED:
            plain.append(tokenizers.AddedToken(piece, normalized=False, special=False))
    tokenizer.add_special_tokens(control)
    tokenizer.add_tokens(plain)


def special_token_names(metadata: Mapping[str, Any]) -> dict[str, str]:
    """bos_token, eos_token, … as texts, for the chat template."""
    pieces = metadata["tokenizer.ggml.tokens"]
    names = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
    found = {}
    for key, name in names.items():
        token_id = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if token_id is not None and 0 <= int(token_id) < len(pieces):
            found[f"{name}_token"] = str(pieces[int(token_id)])
    return found


def adds_bos(metadata: Mapping[str, Any]) -> bool:
    """Whether a plain prompt begins with BOS; Llama 3 files leave the flag out and mean yes."""
    default = metadata.get("tokenizer.ggml.pre") == "llama-bpe"
    return bool(metadata.get("tokenizer.ggml.add_bos_token", default))
