"""What SGLang tells of itself: limits in /server_info, the pool in gauges, aborted requests."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler

import pytest

from storage.sources import RecordedSource
from tests.storage.sources.serving import serving
from tuner.diagnosis import Diagnosis, Signals, State, collect, diagnose
from tuner.diagnosis.server_info import of_sglang, server_info

START_S = 1_800_000_000.0
INFO = {
    "mem_fraction_static": 0.88, "max_running_requests": None, "chunked_prefill_size": 2048,
    "page_size": 16, "disable_radix_cache": False, "max_total_num_tokens": 40_000,
    "context_length": 4096, "version": "0.5.23",
    "internal_states": [{"effective_max_running_requests_per_dp": 48, "page_size": 16}],
}  # fmt: skip
SETTINGS = {
    "max_num_seqs": "48", "chunk_size": "2048", "block_size": "16", "num_kv_blocks": "2500",
    "enable_prefix_caching": "True",
}  # fmt: skip


def page(age_s: float, aborted: float = 0.0) -> str:
    labels = 'model_name="m",tp_rank="0"'
    told = {"num_running_reqs": 48, "num_queue_reqs": 5, "token_usage": 0.4,
            "max_total_num_tokens": 40_000, "page_size": 16,
            "realtime_tokens_total": 900 * age_s, "prompt_tokens_total": 300 * age_s,
            "num_requests_total": 2 * age_s, "num_aborted_requests_total": aborted * age_s,
            "num_retracted_requests_total": 0}  # fmt: skip
    lines = [f"sglang:{name}{{{labels}}} {value}" for name, value in told.items()]
    lines.append(lines[0].replace('tp_rank="0"', 'tp_rank="1"'))  # both ranks tell of one engine
    text = "\n".join([*lines, ""])
    return text.replace("realtime_tokens_total{", 'realtime_tokens_total{mode="decode",')


def look(info: dict[str, object], aborted: float = 0.0) -> Signals:
    pages = [(START_S + 5 * i, page(5.0 * i, aborted)) for i in range(14)]
    return collect(RecordedSource(pages), window_s=60.0, known=info, at_s=pages[-1][0])


def judged(info: dict[str, object], aborted: float = 0.0) -> Diagnosis:
    return diagnose(look(info, aborted))


def test_limits_come_by_the_trees_names() -> None:
    assert look(of_sglang(INFO)).config.items() >= SETTINGS.items()


def test_the_cap_is_judged() -> None:
    node = judged(of_sglang(INFO)).node("3a.seq_cap")
    assert node.value == 1.0
    assert judged({}).node("3a.seq_cap").state is State.CANT_TELL


def test_a_priority_is_a_part_of_the_queue() -> None:
    """--enable-priority-scheduling: the total, with priority="", and each priority's own."""
    lines = []
    for gauge, parts in (("num_running_reqs", (13, 9, 4)), ("num_queue_reqs", (9, 6, 3))):
        told = zip(("", "0", "1"), parts, strict=True)
        lines += [f'sglang:{gauge}{{model_name="m",priority="{of}"}} {n}' for of, n in told]
    seen = RecordedSource([(START_S + 5 * i, "\n".join([*lines, ""])) for i in range(14)])
    signals = collect(seen, window_s=60.0, at_s=START_S + 65.0)
    assert (signals.value("running"), signals.value("waiting")) == (13.0, 9.0)
    assert signals.value("waiting_mean") == 9.0


def test_the_pool_comes_by_gauges_alone() -> None:
    """A Prometheus has no /server_info."""
    assert look({}).config == {"num_kv_blocks": "2500", "block_size": "16"}


@pytest.mark.parametrize(
    ("changed", "gone"),
    [
        ({"chunked_prefill_size": -1}, "chunked_prefill_size"),
        ({"internal_states": [{}]}, "max_running_requests"),
        ({"internal_states": "none"}, "max_running_requests"),
        ({"internal_states": [None, 3]}, "max_running_requests"),
        ({"page_size": None}, "num_kv_blocks"),
        ({"max_total_num_tokens": "many"}, "num_kv_blocks"),
        ({"disable_radix_cache": "no"}, "enable_prefix_caching"),
    ],
)
def test_what_is_not_set_is_not_told(changed: dict[str, object], gone: str) -> None:
    assert gone in of_sglang(INFO)
    assert gone not in of_sglang(INFO | changed)


def test_the_cap_is_one_ranks() -> None:
    """--max-running-requests 96 of two data-parallel ranks."""
    ranks = [{"effective_max_running_requests_per_dp": 48}] * 2
    told = of_sglang(INFO | {"max_running_requests": 96, "internal_states": ranks})
    assert told["max_running_requests"] == 48


@pytest.mark.parametrize("route", ["/server_info", "/get_server_info"])
def test_either_route_is_asked(route: str) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        body = json.dumps(INFO).encode() if handler.path == route else b'{"error": "not found"}'
        handler.send_response(200 if handler.path == route else 404)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    with serving() as server:
        server.write = answer
        assert server_info(server.url) == of_sglang(INFO)


@pytest.mark.parametrize(
    ("aborted", "state"), [(0.0, State.OK), (0.1, State.OK), (0.5, State.WARNING)]
)
def test_aborts_are_judged_without_finished_reasons(aborted: float, state: State) -> None:
    diagnosis = judged(of_sglang(INFO), aborted)
    node = diagnosis.node("2.aborts")
    assert node.state is state
    assert node.value == pytest.approx(aborted / (aborted + 2))
    assert diagnosis.node("2.errors").state is State.CANT_TELL  # it tells no errors
    assert not state.firing or "20.0% or more" in node.summary
    assert diagnosis.node("2").state is (state if state.firing else State.OK)


def test_without_requests_no_share_of_aborts_is_told() -> None:
    pages = [(START_S + 5 * i, page(40.0)) for i in range(14)]
    seen = collect(RecordedSource(pages), window_s=60.0, at_s=pages[-1][0])
    assert diagnose(seen).node("2.aborts").state is State.NOT_APPLICABLE
