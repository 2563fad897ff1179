"""Client and server side by side: what agrees, what does not, and the cause that is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tuner.records import RequestRecord
from tuner.server_side import Check, ServerSide, crosscheck

SERVER = ServerSide(
    prompt_tokens=1000,
    generation_tokens=400,
    preemptions=0,
    prefix_hit_rate=None,
    finished=100,
    queue_mean_s=0.01,
    aborted=0,
    first_tokens=100,
    ttft_mean_s=0.1,
    e2e_mean_s=0.4,
)


def good(index: int, *, usage: bool = True) -> RequestRecord:
    sent_s = index * 0.05
    times = [sent_s + 0.1 * (i + 1) for i in range(4)]
    return RequestRecord(
        index, sent_s - 5.0, sent_s=sent_s, first_token_s=times[0], end_s=times[-1],
        chunk_times_s=times, chunk_tokens=[1] * 4, prompt_tokens=10, output_tokens=4,
        counted_by_server=usage, state="ok",
    )  # fmt: skip


RECORDS = [good(i) for i in range(100)]


def differing(records: list[RequestRecord], server: ServerSide) -> dict[str, Check]:
    return {check.name: check for check in crosscheck(records, server) if not check.agrees}


def test_all_five_figures_agree_and_time_counts_from_the_actual_send() -> None:
    checks = crosscheck(RECORDS, SERVER)
    assert [check.name for check in checks] == [
        "requests", "prompt tokens", "output tokens", "mean TTFT", "mean E2E",
    ]  # fmt: skip
    assert all(check.agrees and not check.likely_cause for check in checks)
    assert {check.unit for check in checks} == {"", "tok", "s"}


def test_no_metrics_no_check() -> None:
    assert crosscheck(RECORDS, None) == []
    assert crosscheck([], SERVER) == []
    little = replace(SERVER, generation_tokens=None, ttft_mean_s=None)
    assert len(crosscheck(RECORDS, little)) == 3


@pytest.mark.parametrize(
    ("server", "name", "cause"),
    [
        (replace(SERVER, finished=150, generation_tokens=600), "requests", "other clients"),
        (replace(SERVER, finished=150, generation_tokens=600), "output tokens", "other clients"),
        (replace(SERVER, finished=50), "requests", "one replica of several"),
        (replace(SERVER, generation_tokens=440), "output tokens", "count differently"),
        (replace(SERVER, prompt_tokens=1200, preemptions=9), "prompt tokens", "9 preemptions"),
        (replace(SERVER, ttft_mean_s=0.05), "mean TTFT", "between client and engine"),
        (replace(SERVER, ttft_mean_s=0.2), "mean TTFT", "other requests"),
    ],
)
def test_a_difference_is_told_with_its_likely_cause(
    server: ServerSide, name: str, cause: str
) -> None:
    assert cause in differing(RECORDS, server)[name].likely_cause


@pytest.mark.parametrize(
    ("server", "output_tokens", "cause"),
    [
        (replace(SERVER, generation_tokens=800), 4, "counters hold 2 times that"),
        (SERVER, 8, "usage tells 2 times that: the usage in its answers is wrong"),
        (replace(SERVER, generation_tokens=800), 12, "count differently"),
    ],
)
def test_what_was_asked_for_tells_which_side_miscounts(
    server: ServerSide, output_tokens: int, cause: str
) -> None:
    records = [replace(r, wanted_output_tokens=4, output_tokens=output_tokens) for r in RECORDS]
    assert cause in differing(records, server)["output tokens"].likely_cause


def test_own_probes_are_no_other_clients() -> None:
    """Prometheus's last scrape before a run is older than the probes."""
    server = replace(SERVER, finished=23, source="Prometheus at http://p, scraped every 2 s")
    assert "own probes" in differing(RECORDS[:20], server)["requests"].likely_cause
    many = replace(server, finished=40)
    assert "other clients" in differing(RECORDS[:20], many)["requests"].likely_cause


def test_the_tolerance_is_five_percent() -> None:
    assert not differing(RECORDS, replace(SERVER, generation_tokens=400 / 1.049))
    assert differing(RECORDS, replace(SERVER, generation_tokens=400 / 1.051))


def test_latencies_within_a_millisecond_agree() -> None:
    assert not differing(RECORDS, replace(SERVER, ttft_mean_s=0.1 - 0.0009))
    fast = replace(SERVER, ttft_mean_s=0.0005)
    early = [replace(r, first_token_s=r.sent_s + 0.0014) for r in RECORDS]
    assert "mean TTFT" not in differing(early, fast)


def test_answers_without_usage() -> None:
    records = [good(i, usage=False) for i in range(100)]
    check = differing(records, replace(SERVER, generation_tokens=800))["output tokens"]
    assert check.difference == pytest.approx(-0.5)
    assert "100 answers came without usage" in check.likely_cause


def test_tokens_of_requests_that_were_cut_off() -> None:
    cut = [
        replace(r, state="censored", chunk_times_s=r.chunk_times_s[:1], chunk_tokens=[1],
                output_tokens=0)
        for r in RECORDS[:20]
    ]  # fmt: skip
    server = replace(SERVER, finished=80, aborted=20)
    check = differing([*cut, *RECORDS[20:]], server)["output tokens"]
    assert check.client == 340
    assert "20 unfinished" in check.likely_cause


def test_tokens_that_the_server_never_counted() -> None:
    endless = replace(RECORDS[0], state="failed", chunk_tokens=[1] * 100, output_tokens=0)
    check = differing([endless, *RECORDS[1:]], SERVER)["output tokens"]
    assert check.client > check.server
    assert "does not count the tokens of answers that do not end" in check.likely_cause


def test_failed_here_but_finished_there() -> None:
    lost = [replace(r, state="failed", error="connection reset") for r in RECORDS[:10]]
    check = differing([*lost, *RECORDS[10:]], SERVER)["requests"]
    assert "10 failed" in check.likely_cause


def test_nothing_counted_by_a_server_that_exports_zero() -> None:
    check = differing(RECORDS, replace(SERVER, generation_tokens=0))["output tokens"]
    assert check.as_dict()["difference"] == float("inf")


def test_longer_means_of_the_server_are_blamed_on_requests_that_were_cut_off() -> None:
    """100 answers of 0.4 s here; the server saw five more go on for 5 s each."""
    cut = [RequestRecord(100 + i, 0.0, sent_s=0.0) for i in range(5)]
    busy = replace(SERVER, aborted=5.0, e2e_mean_s=0.62)
    cause = differing([*RECORDS, *cut], busy)["mean E2E"].likely_cause
    assert cause.startswith("5 requests that this client cut off or that failed: the server's")
    assert "other requests" not in cause
    alone = differing(RECORDS, replace(SERVER, e2e_mean_s=0.62))["mean E2E"].likely_cause
    assert "other requests" in alone
