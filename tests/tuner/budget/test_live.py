"""Error budgets read from a source: the alerts' own decisions, and five absences kept apart."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from storage.sources import RecordedSource
from storage.sources.base import MetricSource, Reading
from storage.sources.prometheus import PrometheusSource
from storage.sources.scrape import ScrapeSource
from tests.storage.sources.backfill import serving_prometheus
from tests.tuner.budget.traffic import FINE_S, TTFT, PerMinute, page, pages_of, recorded
from tuner.budget.events import slis
from tuner.budget.live import Budget, Burning, Seen, Share, read_budgets
from tuner.budget.render import as_dict, render, said
from tuner.rules.groups import RuleSet, alert_name
from tuner.rules.scope import Scope
from tuner.rules.write import rules_text
from tuner.slo import parse_slos
from tuner.stats.rates import clopper_pearson

SLO = parse_slos(["ttft_p95<500ms"])


def read(source: MetricSource, *slos: str) -> Budget:
    found = read_budgets(source, parse_slos(slos) if slos else SLO)
    assert found.fault == ""
    return found.found[0]


def states(budget: Budget) -> list[Burning]:
    return [burn.state for burn in budget.burns]


def test_all_good_is_zero_and_counted() -> None:
    budget = read(recorded(PerMinute(good=100)))
    assert states(budget) == [Burning.CALM] * 4
    assert budget.left == 1.0
    hour = budget.burns[0].long
    assert (hour.value, hour.seen) == (0.0, Seen.VALUE)
    assert hour.events == pytest.approx(6000, rel=0.02)


def test_late_and_refused_and_aborted_requests_are_bad() -> None:
    budget = read(recorded(PerMinute(good=80, late=10, aborted=4, refused=6)))
    assert budget.over.value == pytest.approx(0.2)
    assert budget.left == pytest.approx(1 - 0.2 / 0.05)
    assert [burn.rate(burn.long) for burn in budget.burns] == pytest.approx([4.0] * 4)
    assert states(budget) == [Burning.CALM, Burning.CALM, Burning.FIRES, Burning.FIRES]


def test_refusals_alone_are_all_bad() -> None:
    assert read(recorded(PerMinute(refused=3))).over.value == 1.0


def test_the_error_rate_is_of_requests_that_ended_or_were_refused() -> None:
    budget = read(recorded(PerMinute(good=90, aborted=5, refused=5)), "error_rate<1%")
    assert budget.over.value == pytest.approx(0.1)


def test_no_traffic_is_neither_zero_nor_missing() -> None:
    budget = read(recorded(PerMinute()))
    assert states(budget) == [Burning.UNKNOWN] * 4
    assert {burn.long.seen for burn in budget.burns} == {Seen.NO_TRAFFIC}
    assert budget.left is None
    assert "no traffic" in render(read_budgets(recorded(PerMinute()), SLO))


def test_a_window_that_nobody_watched_for_long_enough_is_not_told() -> None:
    budget = read(recorded(PerMinute(late=100), span_s=1200.0))
    assert {burn.long.seen for burn in budget.burns} == {Seen.SHORT}
    assert budget.burns[0].short.value == 1.0
    assert states(budget) == [Burning.UNKNOWN] * 4
    assert budget.over.value == 1.0  # of what was watched, which is told
    text = render(read_budgets(recorded(PerMinute(late=100), span_s=1200.0), SLO))
    assert "14.4× over 1 h and 5 min: watched 20 min of 1 h" in text
    assert "20 min watched of 30 d" in text


def test_too_few_events_do_not_fire() -> None:
    budget = read(recorded(PerMinute(late=0.1)))
    assert budget.burns[0].state is Burning.FEW
    assert budget.burns[-1].state is Burning.FIRES
    assert "fewer than 20 events: burns 20× and 20×" in render(
        read_budgets(recorded(PerMinute(late=0.1)), SLO)
    )


def test_few_events_beside_a_window_that_was_not_watched_are_told() -> None:
    """As after a restart: coarse points reach over the gap, fine ones do not."""
    burn = read(recorded(PerMinute(late=0.1))).burns[0]
    gone = Share(Seen.SHORT, burn.short.window_s, 60.0)
    assert said(replace(burn, short=gone)).startswith("fewer than 20 events: burns 20× and not wa")


class Torn(RecordedSource):
    """Answers nothing any more about counters by a label, as a Prometheus that fails meanwhile."""

    def breakdown(self, *asked: object, **named: object) -> dict[str, Reading]:
        return {}

    def over(self, window_s: float) -> Torn:
        return self


def test_a_question_that_failed_is_no_zero_of_bad_events() -> None:
    pages = pages_of(PerMinute(good=100))
    source = Torn(pages, now_s=pages[-1][0], scrape_interval_s=FINE_S)
    budget = read(source, "error_rate<1%")
    assert {burn.state for burn in budget.burns} == {Burning.UNKNOWN}
    assert budget.over.seen is not Seen.VALUE


def test_what_is_not_exported_is_named() -> None:
    without = RecordedSource([(0.0, "vllm:num_requests_running 1\n")])
    found = read_budgets(without, SLO)
    assert found.found == ()
    assert "ttft_p95<500ms: the server exports no histogram of ttft" in found.fault


def test_a_counter_that_is_not_exported_is_no_data() -> None:
    text = page(PerMinute(good=5), 1).replace("vllm:request_success", "vllm:other")
    later = page(PerMinute(good=5), 90).replace("vllm:request_success", "vllm:other")
    source = RecordedSource([(0.0, text), (5400.0, later)], scrape_interval_s=900.0)
    found = read_budgets(source, parse_slos(["error_rate<1%"])).found[0]
    assert found.over.seen is Seen.NO_DATA
    assert "vllm:request_success_total is not exported" in found.over.reason


def test_an_unreachable_target_is_told() -> None:
    source = ScrapeSource("http://127.0.0.1:9")
    try:
        assert "refused" in read_budgets(source, SLO).fault
    finally:
        source.close()


def test_clauses_without_a_budget_are_told() -> None:
    slos = parse_slos(["ttft_p95<500ms", "output_tps>100"])
    found = read_budgets(recorded(PerMinute(good=1)), slos)
    assert len(found.found) == 1
    assert "output_tps>100 has none: a low rate may be little load" in render(found)


def test_as_json_what_is_not_known_is_null() -> None:
    [found] = as_dict(read_budgets(recorded(PerMinute()), SLO))["budgets"]
    assert found["over"]["events"] is None
    assert found["over"]["seen"] == "no_traffic"
    assert found["burns"][0]["long"]["rate"] is None


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool (Debian: prometheus) is absent")
@pytest.mark.parametrize(
    "traffic",
    [
        PerMinute(good=96, late=4),
        PerMinute(good=80, late=20),
        PerMinute(good=60, late=30, refused=10),
    ],
)
def test_prometheus_alerts_agree(tmp_path: Path, traffic: PerMinute) -> None:
    """promtool evaluates the rules over the very counters that are read here."""
    budget = read(recorded(traffic))
    found, _ = slis(SLO)
    rules = RuleSet(found, Scope({}, ()), "4d")
    (tmp_path / "rules.yml").write_text(rules_text(rules, "a test", {}))
    firing = [burn.window for burn in budget.burns if burn.state is Burning.FIRES]
    minutes = 3 * 1440 + 20
    expected = [
        {
            "exp_labels": {**rules.labels(found[0]), **rules.alert(found[0], w)["labels"]},
            "exp_annotations": rules.alert(found[0], w)["annotations"],
        }
        for w in firing
    ]
    test = {
        "interval": "1m",
        "input_series": [
            {"series": name, "values": f"0+{count}x{minutes}"}
            for name, count in traffic.counters().items()
        ],
        "alert_rule_test": [
            {"eval_time": f"{minutes}m", "alertname": alert_name(found[0]), "exp_alerts": expected}
        ],
    }
    content = {"rule_files": ["rules.yml"], "evaluation_interval": "5m", "tests": [test]}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(content))
    ran = subprocess.run(
        ["promtool", "test", "rules", "test.yml"], capture_output=True, text=True, cwd=tmp_path
    )
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-2000:]


@pytest.mark.skipif(not shutil.which("prometheus"), reason="prometheus is not installed")
def test_a_prometheus_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same samples, as far back as it has scraped."""
    traffic = PerMinute(good=80, late=10, aborted=4, refused=6)
    pages = pages_of(traffic)
    with serving_prometheus({"one": pages}, tmp_path) as url:
        monkeypatch.setattr("time.time", lambda: pages[-1][0])
        source = PrometheusSource(url, scrape_interval_s=FINE_S, labels={"instance": "one"})
        theirs = read(source)
        source.close()
    mine = read(recorded(traffic))
    assert states(mine) == states(theirs)
    assert theirs.over.watched_s == pytest.approx(mine.over.watched_s, abs=FINE_S)
    for ours, other in zip(mine.burns, theirs.burns, strict=True):
        for a, b in ((ours.long, other.long), (ours.short, other.short)):
            assert (a.seen, a.value) == (b.seen, pytest.approx(b.value))
            assert a.events == pytest.approx(b.events, rel=1e-3)


def test_one_question_gives_a_histograms_events_and_those_within_its_bound() -> None:
    """A scrape between two questions would make its events look late."""
    source = recorded(PerMinute(good=100))
    asked: list[str] = []
    increase = source.increase

    def counted(name: str, window_s: float, labels: object = None) -> object:
        asked.append(name)
        return increase(name, window_s)

    source.increase = counted  # type: ignore[method-assign, assignment]
    read(source)
    assert f"{TTFT}_count" not in asked


def test_a_share_has_its_interval_and_digits_that_say_something() -> None:
    budgets = read_budgets(recorded(PerMinute(good=1, late=1), span_s=7200.0), SLO)
    [budget] = budgets.found
    low, high = budget.interval or (0.0, 0.0)
    assert low < 0.5 < high
    assert (low, high) == pytest.approx(clopper_pearson(120.0, 240.0), abs=0.01)
    text = " ".join(render(budgets).split())
    assert re.search(r"attained 50\.0 % \[4\d\.\d %, 5\d\.\d %\] of 2\d\d requests over 2 h", text)
    assert "10 times what 2 h allow, not of the budget of 30 d" in text
    told = as_dict(budgets)["budgets"][0]["over"]
    assert told["interval"] == budget.interval
    assert told["allowed"] == pytest.approx(told["events"] * 0.05)


def test_seconds_of_a_month_are_not_a_burnt_month() -> None:
    budgets = read_budgets(recorded(PerMinute(late=100), span_s=1200.0), SLO)
    [budget] = budgets.found
    assert budget.left is None
    text = " ".join(render(budgets).split())
    assert "too short to tell what is left of the budget of 30 d (from 1 h on)" in text
    assert "2,000 bad where 100 may be" in text
    assert not re.search(r"-\d", text.partition("Error budgets")[2])
    assert as_dict(budgets)["budgets"][0]["left"] is None


def test_gaps_of_a_request_hang_together_and_have_no_interval() -> None:
    counters = {
        f'vllm:inter_token_latency_seconds_{end}': count
        for end, count in (('bucket{le="0.05"}', 90.0), ('bucket{le="+Inf"}', 100.0),
                           ("count", 100.0))
    }  # fmt: skip
    budgets = read_budgets(recorded(PerMinute(good=1, more=counters)), parse_slos(["itl_p95<50ms"]))
    assert budgets.found[0].over.value == pytest.approx(0.1)
    assert budgets.found[0].interval is None
    assert "attained 90.0 % of " in " ".join(render(budgets).split())
