"""Rules follow from the SLO line, promtool accepts them, and every alert is seen to fire."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from storage.sources.exposition import parse_exposition
from tuner.cli.main import main
from tuner.errors import UserError
from tuner.rules.buckets import boundaries_of, boundary_of
from tuner.rules.burn import BURN_WINDOWS, fewest_events
from tuner.rules.groups import RuleSet
from tuner.rules.sli import Scope, slis
from tuner.slo import parse_slos

ROOT = Path(__file__).parents[3]
DEPLOYED = ROOT / "deploy/prometheus/rules"
RECORDED = (ROOT / "fixtures/vllm-0.32-cpu-after-load.txt").read_text()

promtool = pytest.mark.skipif(
    not shutil.which("promtool"), reason="promtool (Debian: prometheus) is absent"
)


def made_at(folder: Path, *words: str) -> dict[str, Any]:
    """What `tuner rules` writes, read back."""
    assert main(["rules", *words, "--out", str(folder), "--quiet"]) == 0
    content: dict[str, Any] = yaml.safe_load((folder / "slo.rules.yml").read_text())
    return content


def run_promtool(*words: str, at: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *words], capture_output=True, text=True, cwd=at)


@pytest.mark.parametrize(
    ("bound", "le", "told"),
    [
        (0.5, 0.5, "at the bucket boundary 0.5 s"),
        (0.3, 0.25, "what lies between 0.25 s and the bound of 0.3 s counts as bad"),
        (0.0005, 0.001, "the lowest bucket boundary"),
        (9000, 2560, "the next one is +Inf"),
    ],
)
def test_a_share_is_read_off_a_boundary_never_between(bound: float, le: float, told: str) -> None:
    found = boundary_of(bound, boundaries_of("vllm:time_to_first_token_seconds", None))
    assert found is not None
    assert found.le == le
    assert told in found.told


def test_a_whole_second_matches_however_it_is_written() -> None:
    found = boundary_of(1.0, [0.5, 1.0, 2.0])
    assert found is not None
    assert found.matcher == r'le=~"1|1\\.0"'


def test_a_live_servers_boundaries_count_instead_of_the_table() -> None:
    text = 'vllm:time_to_first_token_seconds_bucket{le="0.3"} 1\n' + (
        'vllm:time_to_first_token_seconds_bucket{le="+Inf"} 1\n'
    )
    found, _ = slis(parse_slos(["ttft_p95<300ms"]), parse_exposition(text, 0.0))
    assert found[0].boundary is not None
    assert found[0].boundary.exact


def test_the_table_is_what_vllm_exports() -> None:
    seen = parse_exposition(RECORDED, 0.0)
    for name in ("vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds",
                 "vllm:request_time_per_output_token_seconds", "vllm:e2e_request_latency_seconds",
                 "vllm:request_queue_time_seconds"):  # fmt: skip
        assert boundaries_of(name, seen) == boundaries_of(name, None)


@pytest.mark.parametrize(
    ("slo", "why"),
    [
        ("output_tps>100", "no error budget"),
        ("mean(ttft)<1s", "give a percentile, ttft_p95"),
        ("attainment>99%", "ttft_p95<500ms"),
        ("ttft_p95>1s", "upper bound"),
        ("error_rate<0%", "between 0 and 100 %"),
    ],
)
def test_what_no_rule_can_watch_is_refused_with_its_reason(slo: str, why: str) -> None:
    with pytest.raises(UserError, match="no SLO that a rule can watch") as refused:
        slis(parse_slos([slo]))
    assert why in str(refused.value)


def test_a_clause_without_a_rule_is_told_and_the_others_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made_at(tmp_path, "--slo", "ttft_p95<500ms, output_tps>100")
    assert "output_tps>100 is left out: a low rate may be little load" in capsys.readouterr().err
    assert "# output_tps>100 is left out" in (tmp_path / "slo.rules.yml").read_text()


def test_refused_and_aborted_requests_are_bad() -> None:
    found, _ = slis(parse_slos(["ttft_p95<500ms"]))
    bad = found[0].bad(Scope({}), "5m")
    assert 'vllm:request_success_total{finished_reason=~"abort|error"}[5m]' in bad
    assert "vllm:admission_rejections_total[5m]" in bad


def test_the_windows_are_those_of_the_workbook() -> None:
    assert [(w.factor, w.long, w.short) for w in BURN_WINDOWS] == [
        (14.4, "1h", "5m"), (6, "6h", "30m"), (3, "1d", "2h"), (1, "3d", "6h"),
    ]  # fmt: skip
    assert [w.severity for w in BURN_WINDOWS] == ["page", "page", "ticket", "ticket"]


def test_an_alert_can_always_fire() -> None:
    """14.4 times the budget of a median would be more than all requests."""
    assert all(window.limit(0.5) < 1 for window in BURN_WINDOWS)
    assert BURN_WINDOWS[0].limit(0.01) == pytest.approx(0.144)


def test_one_bad_event_is_never_the_whole_budget() -> None:
    assert fewest_events(0.01) == 100
    assert fewest_events(0.5) == 20
    rules = RuleSet(slis(parse_slos(["error_rate<0.1%"]))[0], Scope({}))
    assert ">= 1000" in rules.alert(rules.slis[0], BURN_WINDOWS[0])["expr"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--slo", "ttft<1s"], "needs a statistic"),
        (["--slo", "ttft_p95<1s", "--budget-window", "2h"], "days or weeks"),
        (["--slo", "ttft_p95<1s", "--scrape-interval", "120"], "must hold 4 scrapes"),
        (["--slo", "ttft_p95<1s", "--by", "le"], "the rules' own"),
        (["--slo", "ttft_p95<1s", "--label", "a-b=1"], "no label name"),
        (["--slo", "ttft_p95<1s", "--min-events", "0"], "at least 1"),
        (["--slo", "ttft_p95<1s", "--out", "/proc/nowhere"], "cannot be written"),
        (["--slo", "ttft_p95<1s", "--url", "http://127.0.0.1:9"], "connection refused"),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rules", *words]) == 2
    assert told in capsys.readouterr().err


def test_json_holds_the_groups_and_what_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "--slo", "ttft_p95<500ms, rps>3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["left_out"]) == ["rps>3"]
    assert [group["name"] for group in found["groups"]] == [
        "slotune-slo-ttft_p95", "slotune-slo-blind",
    ]  # fmt: skip


@promtool
@pytest.mark.parametrize(
    "words",
    [
        ["--slo", "ttft_p95<300ms", "--slo", "error_rate<1%", "--job", "engine"],
        ["--slo", "itl_p50<60ms", "--by", "", "--label", "team=a b"],
        ["--slo", "e2e_p99.9<2s", "--by", "model_name,instance", "--min-events", "7"],
        ["--slo", "tpot_p90<1s", "--alert-label", "team=x"],
    ],
)
def test_promtool_accepts_the_rules_and_sees_each_alert_fire(
    tmp_path: Path, words: list[str]
) -> None:
    made_at(tmp_path, *words)
    checked = run_promtool("check", "rules", "slo.rules.yml", at=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    tested = run_promtool("test", "rules", "slo.test.yml", at=tmp_path)
    assert tested.returncode == 0, (tested.stdout + tested.stderr)[-3000:]


@promtool
def test_the_unit_tests_can_fail(tmp_path: Path) -> None:
    """Rules that forget refusals do not pass the tests generated beside them."""
    made_at(tmp_path, "--slo", "error_rate<1%")
    rules = tmp_path / "slo.rules.yml"
    text = rules.read_text()
    rules.write_text(text.replace("vllm:admission_rejections_total", "vllm:no_such_total"))
    assert rules.read_text() != text
    tested = run_promtool("test", "rules", "slo.test.yml", at=tmp_path)
    assert tested.returncode != 0
    assert "refusals are bad" in tested.stdout + tested.stderr


def test_deployed_rules_and_dashboard_are_what_the_generator_writes(tmp_path: Path) -> None:
    head = (DEPLOYED / "slo.rules.yml").read_text().splitlines()[0]
    words = head.removeprefix("# Made by: tuner rules ")
    board = tmp_path / "board.json"
    made_at(tmp_path, *shlex.split(words), "--grafana", str(board))
    for name in ("slo.rules.yml", "slo.test.yml"):
        assert (DEPLOYED / name).read_text() == (tmp_path / name).read_text(), name
    assert (ROOT / "deploy/grafana/slotune.json").read_text() == board.read_text()


def test_deployed_rules_watch_the_default_slo_and_are_loaded() -> None:
    head = (DEPLOYED / "slo.rules.yml").read_text().splitlines()[0]
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    flag = next(w for w in compose["services"]["tuner"]["command"] if w.startswith("--slo="))
    assert flag.removeprefix("--slo=") in head
    loaded = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())["rule_files"]
    assert any((DEPLOYED / "slo.rules.yml") in DEPLOYED.parent.glob(p) for p in loaded)
    assert not any((DEPLOYED / "slo.test.yml") in DEPLOYED.parent.glob(p) for p in loaded)


@promtool
def test_promtool_accepts_what_is_deployed() -> None:
    tested = run_promtool("test", "rules", "slo.test.yml", at=DEPLOYED)
    assert tested.returncode == 0, (tested.stdout + tested.stderr)[-3000:]
    config = run_promtool("check", "config", "prometheus.yml", at=DEPLOYED.parent)
    assert config.returncode == 0, config.stdout + config.stderr


def test_the_dashboard_names_units_and_keeps_old_names_behind_or(tmp_path: Path) -> None:
    board = tmp_path / "d.json"
    made_at(tmp_path, "--slo", "ttft_p95<500ms", "--grafana", str(board))
    panels = [p for p in json.loads(board.read_text())["panels"] if p["type"] != "row"]
    units = {p["title"]: p["fieldConfig"]["defaults"]["unit"] for p in panels}
    assert units["TTFT"] == "s"
    assert units["KV cache used"] == "percentunit"
    itl = next(p for p in panels if p["title"] == "Inter-token latency")
    assert " or " in itl["targets"][0]["expr"]
    assert len({p["id"] for p in panels}) == len(panels)
