"""Each fault of a dashboard is found with its place and what would be right; a sound one is not."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.tuner.diagnosis.engine_pages import page
from tuner.cli.main import main
from tuner.lint.catalogue import of_exposition, of_tables
from tuner.lint.checks import lint
from tuner.lint.model import Query

ROOT = Path(__file__).parents[3]
OURS = [ROOT / "deploy/grafana/slotune.json", ROOT / "deploy/prometheus/rules/slo.rules.yml"]
TTFT = "vllm:time_to_first_token_seconds"


def found(expr: str, unit: str = "", texts: str = "", **more: bool) -> list[tuple[str, str]]:
    """(check, right) of each fault of one query."""
    query = Query("a.json", 'panel "P", query A', expr, unit, texts, **more)
    return [(f.fault.check, f.fault.right) for f in lint([query], of_tables())]


@pytest.mark.parametrize(
    ("expr", "right"),
    [
        ("vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"),
        ("rate(vllm:time_per_output_token_seconds_sum[5m])",
         "vllm:inter_token_latency_seconds_sum"),
        ("vllm:num_request_running", "vllm:num_requests_running"),
        ("rate(vllm:generation_tokens[5m])", "vllm:generation_tokens_total"),
        ("rate(vllm:iteration_tokens_total[5m])", "vllm:iteration_tokens_total_sum"),
        ("vllm:num_requests_swapped", "leave it out"),
        ("sglang:time_per_output_token_seconds_count", "sglang:inter_token_latency_seconds_count"),
        ("slotune:kv_block", "slotune:kv_blocks"),
        ('{__name__="vllm:gpu_cache_usage_perc"}', "vllm:kv_cache_usage_perc"),
        ("vllm:nothing_like_any_name_at_all", "a name that the server exports"),
    ],
)  # fmt: skip
def test_a_dead_metric_is_named_with_the_living_one(expr: str, right: str) -> None:
    faults = dict(found(expr))
    assert right in faults["dead metric"]


@pytest.mark.parametrize(
    "expr",
    [
        "vllm:kv_cache_usage_perc or vllm:gpu_cache_usage_perc",
        'sum(rate(vllm:request_success_total{model_name=~"$model"}[$__rate_interval]))',
        "rate(node_cpu_seconds[5m])",
        "rate(DCGM_FI_DEV_POWER_VIOLATION[5m])",
        "vllm:${which}_tokens_total",
        "up{job='x'}",
        f"histogram_quantile($q, sum by (le, $by) (rate({TTFT}_bucket[$__rate_interval])))",
        f"histogram_quantile(0.9, sum without (engine) (rate({TTFT}_bucket[5m])))",
        f"histogram_quantile(0.9, rate({TTFT}_bucket[5m]))",
        "avg(vllm:num_requests_running)",
        "sum(increase(vllm:prompt_tokens_total[$__range]))",
        "topk($n, sum by ($by) (vllm:num_requests_running))",
        "max_over_time(vllm:num_requests_waiting[10s])",
    ],
)
def test_a_sound_query_passes(expr: str) -> None:
    assert found(expr) == []


def test_fallbacks_that_are_all_dead_are_told() -> None:
    faults = found("vllm:gpu_cache_usage_perc or vllm:cpu_cache_usage_perc")
    assert [check for check, _ in faults] == ["dead metric"]


@pytest.mark.parametrize(
    ("expr", "unit", "texts", "check", "right"),
    [
        ("rate(vllm:num_requests_waiting[5m])", "", "", "rate of a gauge", "avg_over_time"),
        ("increase(my_requests[5m])", "", "", "rate without _total", "my_requests_total"),
        (f"histogram_quantile(0.95, sum(rate({TTFT}_bucket[5m])))", "s", "",
         "quantile without le", "by (le)"),
        (f"histogram_quantile(0.95, avg by (le) (rate({TTFT}_bucket[5m])))", "s", "",
         "quantile of no sum", "sum by (le)"),
        (f"histogram_quantile(0.95, sum by (le) ({TTFT}_bucket))", "s", "",
         "quantile since start", "rate("),
        (f"histogram_quantile(0.95, sum by (le) (rate({TTFT}_bucket[5m])))", "ms", "",
         "seconds called ms", "the unit s"),
        (f"rate({TTFT}_sum[5m]) / rate({TTFT}_count[5m])", "", "TTFT (ms)",
         "seconds called ms", "times 1000"),
        (f"1000 * rate({TTFT}_sum[5m]) / rate({TTFT}_count[5m])", "s", "",
         "milliseconds called s", "without"),
        ("rate(vllm:request_queue_time_seconds_sum[5m])", "s", "Queue",
         "rate of a sum called time", "_count[…]"),
        ("sum(rate(vllm:request_queue_time_seconds_sum[5m]))", "", "Queue time",
         "rate of a sum called time", "_count[…]"),
        (f"avg(histogram_quantile(0.95, sum by (le, pod) (rate({TTFT}_bucket[5m]))))", "s", "",
         "average of quantiles", "over all of them"),
        (f"avg_over_time(histogram_quantile(0.9, sum by (le) (rate({TTFT}_bucket[5m])))[1h:5m])",
         "s", "", "average of quantiles", "over all of them"),
        (f"avg(rate({TTFT}_sum[5m]) / rate({TTFT}_count[5m]))", "s", "",
         "average of averages", "sum(rate("),
        (f"{TTFT}_sum / {TTFT}_count", "s", "", "average since start", "rate("),
        ("rate(vllm:prompt_tokens_total[30s])", "", "", "window too short", "60 s or more"),
        ("rate(vllm:prompt_tokens_total[$__interval])", "", "", "window too short",
         "$__rate_interval"),
        ("rate(vllm:prompt_tokens_total[5m)", "", "", "syntax", "valid PromQL"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_what_would_be_right(
    expr: str, unit: str, texts: str, check: str, right: str
) -> None:
    faults = dict(found(expr, unit, texts))
    assert list(faults) == [check]
    assert right in faults[check]


def test_an_alert_on_milliseconds_against_seconds() -> None:
    expr = f"histogram_quantile(0.95, sum by (le) (rate({TTFT}_bucket[5m]))) > 500"
    assert found(expr, texts="TTFT is above 500 ms", exact=True) == [("seconds called ms", "0.5")]
    assert found(expr.replace("500", "0.5"), texts="above 500 ms", exact=True) == []


@pytest.mark.parametrize(("unit", "factor"), [("ms", "1000 * "), ("s", ""), ("", "")])
def test_units_that_fit_are_no_fault(unit: str, factor: str) -> None:
    assert found(f"{factor}(rate({TTFT}_sum[5m]) / rate({TTFT}_count[5m]))", unit) == []


def test_a_live_server_decides_before_the_tables() -> None:
    from storage.sources.exposition import parse_exposition

    old = parse_exposition(
        "vllm:gpu_cache_usage_perc 0.5\nvllm:num_preemptions_total 1\n"
        'vllm:e2e_request_latency_seconds_bucket{le="+Inf"} 1\n'
        "vllm:e2e_request_latency_seconds_sum 1\nvllm:e2e_request_latency_seconds_count 1\n", 0.0,
    )  # fmt: skip
    catalogue = of_exposition(old, "http://h")
    assert catalogue.kind("vllm:e2e_request_latency_seconds_sum") == "counter"
    assert catalogue.kind("vllm:gpu_cache_usage_perc") == "gauge"
    queries = [Query("f", "p", name) for name in ("vllm:gpu_cache_usage_perc",
                                                  "vllm:kv_cache_usage_perc")]  # fmt: skip
    (only,) = lint(queries, catalogue)
    assert only.fault.message == "vllm:kv_cache_usage_perc is dead: http://h does not export it"


BOARD = {
    "dashboard": {
        "title": "x",
        "panels": [
            {"type": "row", "collapsed": True, "panels": [
                {"title": "Old", "type": "graph", "yaxes": [{"format": "ms"}],
                 "targets": [{"refId": "B", "expr": f"rate({TTFT}_sum[1m])/rate({TTFT}_count[1m])"},
                             {"refId": "C", "rawSql": "select 1"}]},
            ]},
        ],
        "templating": {"list": [
            {"type": "query", "name": "model",
             "query": {"query": "label_values(vllm:gpu_cache_usage_perc, model_name)"}},
            {"type": "query", "name": "job", "query": "label_values(job)"},
        ]},
        "annotations": {"list": [{"name": "swaps", "expr": "vllm:num_requests_swapped > 0"}]},
    }
}  # fmt: skip


def test_places_of_a_dashboard_rows_variables_and_notes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "board.json"
    path.write_text(json.dumps(BOARD))
    assert main(["lint", str(path)]) == 1
    told = capsys.readouterr().out
    assert f'{path}: panel "Old", query B: the value is in seconds, the panel says' in told
    assert 'variable "model": vllm:gpu_cache_usage_perc is dead' in told
    assert 'annotation "swaps": vllm:num_requests_swapped is dead' in told
    assert "3 findings in 3 queries of 1 file\n" in told


def test_a_query_without_a_letter_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "board.json"
    targets = [{"expr": "vllm:kv_cache_usage_perc"}, {"expr": "vllm:gpu_cache_usage_perc"}]
    path.write_text(json.dumps({"panels": [{"title": "P", "targets": targets}]}))
    assert main(["lint", str(path)]) == 1
    assert 'panel "P", query 2: vllm:gpu_cache_usage_perc' in capsys.readouterr().out


def test_rules_of_kubernetes_and_recorded_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rules.yml"
    path.write_text(
        "kind: PrometheusRule\nspec:\n  groups:\n  - name: g\n    rules:\n"
        "    - record: vllm:ttft:p95\n      expr: histogram_quantile(0.95, sum by (le) (rate("
        f"{TTFT}_bucket[5m])))\n"
        "    - alert: Slow\n      expr: vllm:ttft:p95 > 1\n"
        "    - alert: Gone\n      expr: vllm:ttft:p99 > 1\n"
    )
    assert main(["lint", str(path), "--json"]) == 1
    (only,) = json.loads(capsys.readouterr().out)["findings"]
    assert (only["place"], only["check"]) == ("alert Gone", "dead metric")
    assert only["right"] == "vllm:ttft:p95"


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.json", "{", "not valid JSON"),
        ("a.yml", "a: [", "not valid JSON or YAML"),
        ("a.yml", "- 1", "neither a Grafana dashboard"),
        ("a.json", '{"panels": [{"title": "\\ud800"}]}', "half a character"),
        ("a.yml", "name: 2020-99-99", "is not valid JSON or YAML: month must be in 1..12"),
        ("a.yml", "name: " + "9" * 5000, "more than 4300 digits"),
        ("a.json", '{"a": ' + "9" * 5000 + "}", "more than 4300 digits"),
        ("a.yml", "panels: &a [{panels: *a}]", "nested too deeply"),
        ("a.json", '{"a": 1}', "neither a Grafana dashboard"),
    ],
)
def test_what_is_no_dashboard_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, told: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert main(["lint", str(path)]) == 2
    assert told in capsys.readouterr().err
    assert main(["lint", str(tmp_path / "no-such-file")]) == 2


@pytest.mark.parametrize(
    "expr",
    ["(" * 3000 + "a" + ")" * 3000, "(" * 100_000, "+".join(["a"] * 5000), "-" * 9000 + "a"],
    ids=["brackets", "brackets without end", "sum", "signs"],
)
def test_a_query_too_deep_to_be_parsed_is_told(expr: str) -> None:
    assert [check for check, _ in found(expr)] == ["syntax"]


def test_a_device_is_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "/dev/zero"]) == 2
    assert "/dev/zero is a device or a pipe" in capsys.readouterr().err


@pytest.mark.parametrize("odd", [None, 3, [1, None], {"panels": None}, [{"targets": "x"}]])
def test_odd_dashboards_do_not_end_it(tmp_path: Path, odd: object) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"panels": [{"targets": odd}, {"fieldConfig": odd}], "rows": odd}))
    assert main(["lint", str(path), "--quiet"]) == 0


@pytest.mark.parametrize(("engine", "table"), [("vllm", "vllm-0.33"), ("sglang", "sglang-0.5.23")])
def test_the_tables_hold_every_metric_the_engines_define(engine: str, table: str) -> None:
    kinds = of_tables().kinds
    with (ROOT / f"fixtures/{table}-metrics.tsv").open() as file:
        for row in csv.DictReader(file, delimiter="\t"):
            name, kind = row["name"], row["type"]
            if kind == "counter" and not name.endswith("_total"):
                name += "_total"
            assert kinds.get(name) == kind, name


VLLM_0_32 = (ROOT / "fixtures/vllm-0.32-cpu-after-load.txt").read_text()


@pytest.mark.parametrize(
    "text", [VLLM_0_32, page("vllm-0.33.0", "after-load"), page("sglang-0.5.23", "after-load")],
    ids=["vLLM 0.32", "vLLM 0.33", "SGLang"],
)  # fmt: skip
def test_real_expositions_name_nothing_the_table_lacks(text: str) -> None:
    from storage.sources.exposition import parse_exposition

    alive = of_tables()
    unknown = {n for n in parse_exposition(text, 0.0).names() if not alive.alive(n)}
    assert {name for name in unknown if not name.endswith("_created")} == set()


def test_our_own_files_are_sound() -> None:
    assert main(["lint", *map(str, OURS), "--scrape-interval", "5"]) == 0
