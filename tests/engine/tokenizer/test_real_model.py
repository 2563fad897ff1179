"""The packaged model's tokenizer against transformers, id for id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.models.locate import locate
from engine.tokenizer import Tokenizer, load_tokenizer

pytestmark = pytest.mark.model

TEXTS = [
    "",
    " ",
    "Hello, world!",
    "  leading and trailing  ",
    "a\n\nb\r\n\tc",
    "I'm sure they'll say it's 'fine', don't you?",
    "Prices: $3.50, 1,000 and 2024-11-30.",
    "def f(x):\n    return {k: v for k, v in x.items()}\n",
    "Größe, naïve, café, Ångström",
    "日本語のテキストと한국어, русский, العربية",
    "🏳️ emoji 👩\u200d💻 and ½ ² Ⅷ",
    "<|im_start|>user\nhi<|im_end|>",
    "<|im_start|> <|im_end|><|endoftext|>x",
    "https://example.com/a_b-c?d=e&f=%20#g",
    "\u0000\u200b\ufeff zero width",
    "word " * 300,
]
CONVERSATIONS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "And {{ 2+2 }}? <b>"},
    ],
]


@pytest.fixture(scope="module")
def ours() -> Tokenizer:
    return load_tokenizer(locate(""))


@pytest.fixture(scope="module")
def reference() -> Any:
    """transformers leaves out the file's rule that digits stand alone (`tokenizer.ggml.pre` =
    smollm); it is put back, as in the model's published tokenizer."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    file = locate("")
    loaded = transformers.AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    split = tokenizers.pre_tokenizers
    loaded.backend_tokenizer.pre_tokenizer = split.Sequence(
        [split.Digits(individual_digits=True), split.ByteLevel(add_prefix_space=False)]
    )
    return loaded


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_ids_and_texts_equal(ours: Tokenizer, reference: Any, text: str) -> None:
    ids = ours.encode(text)
    assert ids == reference.encode(text)
    detokenizer = ours.detokenizer()
    pieces = [detokenizer.append(token_id) for token_id in ids]
    whole = reference.decode(ids, skip_special_tokens=True)
    assert "".join(pieces) + detokenizer.flush() == whole


def test_arbitrary_ids_decode_alike_one_by_one(ours: Tokenizer, reference: Any) -> None:
    """Random ids split characters in ways that no encoder would."""
    state = 1
    for length in (3, 17, 400):
        ids = []
        for _ in range(length):
            state = state * 1103515245 + 12345 & 0x7FFFFFFF
            ids.append(state % 49_152)
        detokenizer = ours.detokenizer()
        text = "".join(detokenizer.append(i) for i in ids) + detokenizer.flush()
        assert text == reference.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("messages", CONVERSATIONS, ids=range(len(CONVERSATIONS)))
def test_chat_prompts_equal(
    ours: Tokenizer, reference: Any, messages: list[dict[str, str]]
) -> None:
    expected = reference.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    assert ours.chat_prompt(messages) == expected


def test_a_hugging_face_folder_gives_the_same_tokenizer(
    ours: Tokenizer, reference: Any, tmp_path: Path
) -> None:
    reference.save_pretrained(tmp_path)
    folder = load_tokenizer(tmp_path)
    for text in TEXTS:
        assert folder.encode(text) == ours.encode(text)
    for messages in CONVERSATIONS:
        assert folder.chat_prompt(messages) == ours.chat_prompt(messages)
