"""Stop strings over token boundaries: found, and nothing of them shown."""

import pytest

from engine.tokenizer.stop import StopMatcher


def run(stops: list[str], pieces: list[str]) -> tuple[list[str], str | None]:
    matcher = StopMatcher(stops)
    shown = []
    for piece in pieces:
        shown.append(matcher.feed(piece))
        if matcher.stopped is not None:
            return shown, matcher.stopped
    shown.append(matcher.flush())
    return shown, None


@pytest.mark.parametrize("stop", ["\n\n", "END", "E", "###END###"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 50])
def test_nothing_of_a_stop_string_is_ever_shown(stop: str, size: int) -> None:
    text = f"hello ENworld {stop}tail"
    if stop == "E":
        text = "hello E tail"
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    shown, found = run([stop], pieces)
    assert found == stop
    assert "".join(shown) == text[: text.index(stop)]


def test_text_that_only_begins_like_a_stop_string_is_shown_in_the_end() -> None:
    shown, found = run(["STOP"], ["a ST", "ART", " b S"])
    assert (shown, found) == (["a ", "START", " b ", "S"], None)


def test_held_text_that_restarts_a_stop_string_is_matched() -> None:
    shown, found = run(["aab"], ["a", "a", "a", "b"])
    assert ("".join(shown), found) == ("a", "aab")


def test_the_earliest_of_several_stop_strings_wins() -> None:
    shown, found = run(["world", "lo"], ["hel", "lo wor", "ld"])
    assert ("".join(shown), found) == ("hel", "lo")


def test_without_stop_strings_everything_passes_at_once() -> None:
    assert run([], ["a", "b"]) == (["a", "b", ""], None)
