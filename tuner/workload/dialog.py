"""Text rows of a file as messages: prompts, OpenAI messages and ShareGPT conversations alike.

A conversation is replayed turn by turn: what the user said comes from the file, what the assistant
said comes from the server under test.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.workload.columns import Roles, value_at

NO_TEXT = {sign + word for sign in ("", "+", "-") for word in ("inf", "infinity", "nan")}
"""Cells that a table of numbers leaves where it had none: never a prompt."""

CHARS_PER_TOKEN = 4
"""Of English text, about; only for sizes that no one has counted, and shown as estimates."""

_ROLES = {
    "human": "user", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant",
    "model": "assistant",
}  # fmt: skip
Message = dict[str, Any]


class NotADialogError(ValueError):
    """The sentence says what a row lacks."""


@dataclass(frozen=True, slots=True)
class Dialog:
    """messages as OpenAI has them. answer: the text of the answer where the row gives it apart.

    sharegpt: the one request of the row is its first question; else all up to the last question.
    """

    messages: tuple[Message, ...]
    answer: str = ""
    sharegpt: bool = False

    @property
    def turns(self) -> int:
        return max(1, sum(1 for message in self.messages if message["role"] == "user"))

    def request(self) -> list[Message]:
        """The one request of a row that is no conversation."""
        if self.sharegpt:
            return self.up_to(0)
        return list(self.messages[: self._asked()])

    def up_to(self, turn: int, answers: Sequence[str] = ()) -> list[Message]:
        """The request of a turn: the file's messages up to that question, the server's answers."""
        sent: list[Message] = []
        question = -1
        for message in self.messages:
            if message["role"] == "assistant":
                continue
            if message["role"] == "user":
                question += 1
                if 0 < question <= len(answers):
                    sent.append({"role": "assistant", "content": answers[question - 1]})
            sent.append(message)
            if question == turn:
                break
        return sent

    def answer_after(self, turn: int | None) -> str:
        """What the file has for the answer to a turn, None: to its one request; "" for nothing."""
        if self.answer and (turn is None or turn == self.turns - 1):
            return self.answer
        if turn is None and not self.sharegpt:
            rest = self.messages[self._asked() :]
            return text_of(rest[0]["content"]) if rest else ""
        question = -1
        for message in self.messages:
            question += message["role"] == "user"
            if question == (turn or 0) and message["role"] == "assistant":
                return text_of(message["content"])
        return ""

    def _asked(self) -> int:
        """Where the answers at the end begin."""
        end = len(self.messages)
        while end > 1 and self.messages[end - 1]["role"] == "assistant":
            end -= 1
        return end


def dialog_of(row: Mapping[str, Any], roles: Roles) -> Dialog:
    """Raises NotADialogError with what is wrong with the row."""
    answer = value_at(row, roles.answer) if roles.answer else ""
    answer = answer if isinstance(answer, str) else ""
    given = value_at(row, roles.messages) if roles.messages else None
    if given is not None:
        messages, sharegpt = _messages(given)
    else:
        text = value_at(row, roles.text) if roles.text else None
        if not isinstance(text, str) or not text:
            raise NotADialogError("the prompt is empty or no text")
        if text.strip().lower() in NO_TEXT:
            raise NotADialogError(f"the prompt is {text.strip()!r}: neither text nor tokens")
        messages, sharegpt = [{"role": "user", "content": text}], False
    system = value_at(row, roles.system) if roles.system else None
    if isinstance(system, str) and system:
        messages = [{"role": "system", "content": system}, *messages]
    return Dialog(tuple(messages), answer, sharegpt)


def text_of(content: Any) -> str:
    """A message's text: itself, or the text parts of a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (part.get("text", "") for part in content if isinstance(part, Mapping))
        return "".join(part for part in parts if isinstance(part, str))
    return ""


def as_text(messages: Sequence[Message], *, conversation: bool = False) -> str:
    """Messages for an endpoint without chat: one alone as it is, more with their roles.

    In a conversation each prompt begins with the one before and its answer, to the letter, so
    that a prefix cache finds them.
    """
    if len(messages) == 1 and not conversation:
        return text_of(messages[0]["content"])
    said = []
    for message in messages:
        space = "" if message["role"] == "assistant" else " "
        said.append(f"{message['role']}:{space}{text_of(message['content'])}")
    return "\n\n".join([*said, "assistant:"])


def tokens_of(text: str) -> int:
    """About how many tokens a text has; 0 for none."""
    return -(-len(text) // CHARS_PER_TOKEN)


def _messages(given: Any) -> tuple[list[Message], bool]:
    if isinstance(given, str):  # a CSV cell
        try:
            given = json.loads(given)
        except ValueError:
            raise NotADialogError("the messages are no JSON") from None
    if not isinstance(given, list) or not given:
        raise NotADialogError("the messages are no list, or an empty one")
    sharegpt = False
    messages = []
    for item in given:
        if not isinstance(item, Mapping):
            raise NotADialogError("a message is no object")
        role, content = item.get("role", item.get("from")), item.get("content", item.get("value"))
        if not isinstance(role, str) or (content is None and "tool_calls" not in item):
            raise NotADialogError("a message lacks its role and content (or from and value)")
        sharegpt |= "from" in item
        messages.append({**_rest(item), "role": _ROLES.get(role, role), "content": content})
    if not any(message["role"] == "user" for message in messages):
        raise NotADialogError("no message is the user's")
    return messages, sharegpt


def _rest(item: Mapping[str, Any]) -> Message:
    """What else a message has (tool calls, names); never another spelling of role and content."""
    known = ("role", "from", "content", "value")
    return {str(key): value for key, value in item.items() if key not in known}
