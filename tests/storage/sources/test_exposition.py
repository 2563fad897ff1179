"""The line parser: as prometheus_client reads it, only faster."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from storage.sources.exposition import (
    NotAnExpositionError,
    fold,
    parse_exposition,
    series_id,
)

FIXTURES = sorted((Path(__file__).parents[3] / "fixtures").glob("*.txt"))
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def ours(text: str) -> Samples:
    parsed = parse_exposition(text, 0.0)
    found = ((series_id(key), value) for key, value in parsed.values.items())
    return {(s.name, frozenset(s.labels.items())): value for s, value in found}


def theirs(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_there_are_recordings() -> None:
    assert FIXTURES


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_recordings_read_as_by_the_reference_parser(path: Path) -> None:
    text = path.read_text()
    assert ours(text) == theirs(text)
    assert len(ours(text)) > 400


@pytest.mark.parametrize(
    "line",
    [
        'a{x="1"} 2',
        "a 2",
        "a  2",
        "a\t2",
        "a 2 1700000000000",
        'a{x="1"} 2 1700000000000',
        'a{x="1",} 2.5e-3',
        'a{ x = "1" , y = "2" } 2',
        "a{} 2",
        'a{x="a b } c"} 2',
        'a{x="say \\"hi\\" \\\\ there\\nnext"} 2',
        'a{x=""} +Inf',
        'a{x="1"} -Inf',
        'vllm:a_bucket{le="+Inf"} 3.0',
        'a{x="#1 # {"} 2',
    ],
)
def test_a_line_reads_as_by_the_reference_parser(line: str) -> None:
    assert ours(f"# TYPE a gauge\n{line}\n") == theirs(f"{line}\n")


def test_openmetrics_exemplars_time_stamps_and_end_are_passed_over() -> None:
    text = (
        "# TYPE foo counter\n# UNIT foo seconds\n"
        'foo_total{x="1"} 17.0 1520879607.789 # {trace_id="KOO5S4vxi0o"} 0.67 1520879600.1\n'
        'foo_bucket{le="0.1"} 8.0 # {} 0.054\n'
        'foo_created{x="1"} 1520430000.123\n# EOF\n'
    )
    assert ours(text) == {
        ("foo_total", frozenset({("x", "1")})): 17.0,
        ("foo_bucket", frozenset({("le", "0.1")})): 8.0,
        ("foo_created", frozenset({("x", "1")})): 1520430000.123,
    }


def test_nan_and_carriage_returns() -> None:
    parsed = parse_exposition("a NaN\r\nb 1\r\n\r\n", 0.0)
    assert math.isnan(parsed.values["a"])
    assert parsed.values["b"] == 1


@pytest.mark.parametrize("text", ["<html>hello</html>", "a 1\nb", "a one", 'a{x="1" 2', "1a 2 x"])
def test_what_is_no_exposition_is_named(text: str) -> None:
    with pytest.raises(NotAnExpositionError, match="line"):
        parse_exposition(text, 0.0)


def test_figures_of_a_snapshot() -> None:
    shot = parse_exposition('a{e="0"} 1\na{e="1"} 3\nab 9\ni_info{k="v"} 1\n', 5.0)
    assert (shot.value("a"), shot.total("a"), shot.value("a", {"e": "0"})) == (3, 4, 1)
    assert shot.value("a", {"e": "7"}) is None
    assert shot.info("i_info") == {"k": "v"}
    assert shot.names() == {"a", "ab", "i_info"}


def test_fold_passes_over_nan_as_promql_does() -> None:
    assert fold([math.nan, 2.0, 1.0], "max") == 2.0
    assert fold([math.nan, 2.0, 1.0], "min") == 1.0
    assert math.isnan(fold([math.nan], "max") or 0.0)
    assert fold([], "sum") is None


def test_much_cheaper_than_the_reference_parser() -> None:
    """A ratio, so that a busy machine slows both sides."""
    text = FIXTURES[0].read_text()

    def best_s(parse: object, runs: int) -> float:
        took = []
        for _ in range(runs):
            start_s = time.process_time()
            parse(text)  # type: ignore[operator]
            took.append(time.process_time() - start_s)
        return min(took)

    reference_s = best_s(lambda t: list(text_string_to_metric_families(t)), 3)
    assert best_s(lambda t: parse_exposition(t, 0.0), 10) < reference_s / 3
