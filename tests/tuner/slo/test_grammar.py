"""The grammar of --slo: what is read, and how each refusal points at its fault."""

from __future__ import annotations

import pytest

from tuner.errors import UserError
from tuner.slo import SloSyntaxError, parse_slos
from tuner.slo.names import METRICS


def only(text: str):
    (clause,) = parse_slos([text]).clauses
    return clause


@pytest.mark.parametrize(
    ("text", "key", "op", "bound"),
    [
        ("ttft_p95<500ms", "ttft_p95", "<", 0.5),
        ("  TTFT_P95  <=  0.5 s ", "ttft_p95", "<=", 0.5),
        ("ttft:p95<500ms", "ttft_p95", "<", 0.5),
        ("p95(ttft) ≤ 500000us", "ttft_p95", "<=", 0.5),
        ("time_to_first_token_p99.9<1m", "ttft_p99.9", "<", 60.0),
        ("ttft_p99.99999<1m", "ttft_p99.99999", "<", 60.0),
        ("inter_token_latency_p99<30ms", "itl_p99", "<", 0.03),
        ("median(e2el) < 2s", "e2e_p50", "<", 2.0),
        ("latency_max<1e3ms", "e2e_max", "<", 1.0),
        ("mean(tpot)<50000000ns", "tpot_mean", "<", 0.05),
        ("ttfat_min>1ms", "ttfat_min", ">", 0.001),
        ("queue_time_p95<100ms", "queue_p95", "<", 0.1),
        ("throughput≥100", "output_tps", ">=", 100.0),
        ("output_tps>100tok/s", "output_tps", ">", 100.0),
        ("total_tps > 1000", "total_tps", ">", 1000.0),
        ("request_rate>=2req/s", "rps", ">=", 2.0),
        ("goodput>1.5", "goodput", ">", 1.5),
        ("errors<1%", "error_rate", "<", 0.01),
        ("error_rate<0.01", "error_rate", "<", 0.01),
        ("attainment>=99%", "attainment", ">=", 0.99),
        ("cost_per_mtok<$0.50", "cost_per_mtok", "<", 0.5),
        ("cost_per_mtok<0.5$", "cost_per_mtok", "<", 0.5),
        ("accuracy>.9", "accuracy", ">", 0.9),
    ],
)
def test_one_clause_in_base_units(text: str, key: str, op: str, bound: float) -> None:
    clause = only(text)
    assert (clause.key, clause.op) == (key, op)
    assert clause.bound == pytest.approx(bound)


@pytest.mark.parametrize("joint", [" and ", ", ", ";", " AND "])
def test_clauses_are_joined(joint: str) -> None:
    slos = parse_slos([f"ttft_p95<500ms{joint}output_tps>100", "e2e_p99<20s"])
    assert [clause.key for clause in slos.clauses] == ["ttft_p95", "output_tps", "e2e_p99"]


def test_every_metric_of_the_table_is_read() -> None:
    for name, metric in METRICS.items():
        stat = "_p95" if metric.per_request else ""
        unit = "ms" if metric.unit == "s" else ""
        assert only(f"{name}{stat}<0.5{unit}").metric == name


def test_printed_set_reads_back() -> None:
    slos = parse_slos(["ttft_p95 < 500ms; p99(itl)<30ms"])
    assert parse_slos([str(slos)]) == slos


def test_range_of_two_bounds_is_no_contradiction() -> None:
    assert len(parse_slos(["rps>=2, rps<=2"]).clauses) == 2
    assert parse_slos(["ttft_p95<500ms", "ttft_p95<500ms"]).clauses


def test_tightest_bounds() -> None:
    slos = parse_slos(["ttft_p95<500ms, ttft_p99<900ms, itl_p99>1ms, output_tps>5"])
    assert slos.latency_bounds_s == {"ttft": 0.5}


# text, the character under the caret ("" = past the end), a word of the advice
FAULTS = [
    ("", "", "empty"),
    ("   ", " ", "empty"),
    ("ttft_p95", "", "quotes"),
    ("ttft_p95<500", "", "unit"),
    ("ttft_p95<500 parsec", "parsec", "ms"),
    ("output_tps>100ms", "ms", "tok/s"),
    ("tttf_p95<500ms", "tttf", "did you mean ttft"),
    ("xyzzy>3", "xyzzy", "Known"),
    ("ttft<500ms", "ttft", "ttft_p95"),
    ("ttft_p0<500ms", "ttft", "between 0 and 100"),
    ("ttft_p100<500ms", "ttft", "between 0 and 100"),
    ("p150(ttft)<500ms", "ttft", "between 0 and 100"),
    ("p95(tpott)<1s", "tpott", "did you mean tpot"),
    ("best(ttft)<1s", "best", "statistic"),
    ("ttft:worst<1s", "worst", "statistic"),
    ("output_tps_p95>100", "output_tps", "no statistic"),
    ("ttft_p95<-500ms", "-500", "≥ 0"),
    ("ttft_p95<nan ms", "nan", "≥ 0"),
    ("ttft_p95<inf s", "inf", "≥ 0"),
    ("ttft_p95<1e400s", "1e400", "≥ 0"),
    ("ttft_p95<1e308m", "1e308", "too large"),
    ("ttft_p95<ms", "ms", "no number"),
    ("ttft_p95<$5ms", "$", "price"),
    ("ttft_p95=500ms", "=", "<="),
    ("<500ms", "<", "missing"),
    ("ttft p95<500ms", "ttft p95", "no metric"),
    ("error_rate<5", "5", "100 %"),
    ("ttft_p95<500ms,", "", "missing"),
    ("ttft_p95<500ms and", "", "missing"),
    ("ttft_p95<500ms, ttft_p95<400ms", "ttft_p95<400ms", "twice"),
    ("output_tps>10, output_tps<5", "output_tps<5", "both hold"),
    ("ttft_p95<500ms, itl_p99<3", "", "unit"),
]


@pytest.mark.parametrize(("text", "under", "advice"), FAULTS)
def test_fault_has_text_caret_and_advice(text: str, under: str, advice: str) -> None:
    with pytest.raises(SloSyntaxError) as caught:
        parse_slos([text])
    message, shown, caret = str(caught.value).split("\n")
    assert advice in message
    assert shown == f"  {text}"
    assert caret.strip() == "^"
    assert shown[caret.index("^") :].startswith(under)
    if not under:
        assert caret.index("^") == len(shown)
    assert isinstance(caught.value, UserError)


def test_of_a_long_text_what_surrounds_the_fault_is_shown() -> None:
    with pytest.raises(SloSyntaxError) as caught:
        parse_slos(["ttft_p95<1s," * 500 + "ttft_p95<x" + "y" * 5_000])
    _, shown, caret = str(caught.value).split("\n")
    assert len(shown) <= 202
    assert shown[caret.index("^") :].startswith("xyyy")


def test_contradiction_across_options() -> None:
    with pytest.raises(SloSyntaxError, match="twice"):
        parse_slos(["ttft_p95<500ms", "ttft_p95<400ms"])
