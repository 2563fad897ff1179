"""Rules follow from the SLO line, promtool accepts them, and every alert is seen to fire."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.storage.sources.serving import serving
from tests.tuner.diagnosis.engine_pages import page
from tuner.budget.buckets import boundary_of
from tuner.budget.burn import BURN_WINDOWS
from tuner.budget.counters import Counter
from tuner.budget.events import slis
from tuner.cli.main import main
from tuner.rules.groups import RuleSet
from tuner.rules.scope import Scope, matcher
from tuner.slo import parse_slos

ROOT = Path(__file__).parents[3]
DEPLOYED = ROOT / "deploy/prometheus/rules"

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


def test_a_whole_second_matches_however_it_is_written() -> None:
    found = boundary_of(1.0, [0.5, 1.0, 2.0])
    assert found is not None
    assert matcher(Counter("h_bucket", "le", found.spellings)) == r'le=~"1|1\\.0"'


def test_a_clause_without_a_rule_is_told_and_the_others_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made_at(tmp_path, "--slo", "ttft_p95<500ms, output_tps>100")
    assert "output_tps>100 is left out: a low rate may be little load" in capsys.readouterr().err
    assert "# output_tps>100 is left out" in (tmp_path / "slo.rules.yml").read_text()


def test_refused_and_aborted_requests_are_bad() -> None:
    [sli], _ = slis(parse_slos(["ttft_p95<500ms"]))
    bad = Scope({}).sum_of(sli.bad, "5m", known=sli.known)
    assert 'vllm:request_success_total{finished_reason=~"abort|error"}[5m]' in bad
    assert "vllm:admission_rejections_total[5m]" in bad


def test_an_alert_needs_as_many_events_as_the_budget_asks() -> None:
    rules = RuleSet(slis(parse_slos(["error_rate<0.1%"]))[0], Scope({}))
    assert ">= 1000" in rules.alert(rules.slis[0], BURN_WINDOWS[0])["expr"]


def test_sglangs_rules_read_what_it_exports(tmp_path: Path) -> None:
    text = json.dumps(made_at(tmp_path, "--target", "sglang", "--slo", "ttft_p95<2s"))
    used = set(re.findall(r"[a-z]+:\w+", text)) - {"slotune_slo:events", "slotune_slo:bad_events"}
    engine = {name for name in used if name.startswith(("vllm:", "sglang:", "slotune:"))}
    table = (ROOT / "fixtures/sglang-0.5.23-metrics.tsv").read_text().splitlines()[1:]
    exported = {line.split("\t")[0] for line in table}
    assert engine
    assert {re.sub("_(bucket|count|sum)$", "", name) for name in engine} <= exported


def test_the_stall_alert_reads_tokens_as_they_are_computed(tmp_path: Path) -> None:
    """sglang:generation_tokens_total grows when requests end."""
    rules = made_at(tmp_path, "--target", "sglang", "--slo", "ttft_p95<2s")["groups"][-1]["rules"]
    [stalled] = [rule for rule in rules if rule["alert"] == "EngineStalled"]
    assert "sglang:realtime_tokens_total" in stalled["expr"]


def test_what_sglang_does_not_export_is_refused_with_its_clause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--target", "sglang", "--slo", "error_rate<1%"]
    assert main(["rules", *words]) == 2
    told = capsys.readouterr().err
    assert "error_rate<1%: SGLang does not export how many requests failed or were refused" in told
    made_at(tmp_path, *words, "--slo", "e2e_p95<10s")
    assert "error_rate<1% is left out: SGLang does not" in capsys.readouterr().err


def test_a_live_sglang_is_told_from_its_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(page("sglang-0.5.23", "kv-starved")) as server:
        made = made_at(tmp_path, "--url", server.url, "--slo", "ttft_p95<5s")
        assert "sglang:time_to_first_token_seconds_bucket" in json.dumps(made)
        assert "counted at the bucket boundary 4 s" in (tmp_path / "slo.rules.yml").read_text()
        assert main(["rules", "--url", server.url, "--target", "vllm", "--slo", "itl_p95<1s"]) == 2
    assert "exports the metrics of sglang" in capsys.readouterr().err


def test_a_page_of_no_engine_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with serving("up 1\n") as server:
        assert main(["rules", "--url", server.url, "--slo", "ttft_p95<5s"]) == 2
    assert "exports no slotune:, vllm: or sglang: metric" in capsys.readouterr().err


def test_sglangs_dashboard_has_no_panel_of_what_it_does_not_export(tmp_path: Path) -> None:
    board = tmp_path / "d.json"
    made_at(tmp_path, "--target", "sglang", "--slo", "ttft_p95<2s", "--grafana", str(board))
    panels = [p for p in json.loads(board.read_text())["panels"] if p["type"] != "row"]
    assert all(panel["targets"] for panel in panels)
    titles = {panel["title"] for panel in panels}
    assert "Ended by reason" not in titles
    assert {"TTFT", "KV cache used"} <= titles
    assert "vllm:" not in board.read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--slo", "ttft<1s"], "needs a statistic"),
        (["--slo", "ttft_p95<1s", "--budget-window", "2h"], "days or weeks"),
        (["--slo", "ttft_p95<1s", "--scrape-interval", "120"], "must hold 4 scrapes"),
        (["--slo", "ttft_p95<1s", "--by", "le"], "the rules' own"),
        (["--slo", "ttft_p95<1s", "--label", "a-b=1"], "no label name"),
        (["--slo", "ttft_p95<1s", "--label", "5x=3"], "--label '5x' is no label name"),
        (["--slo", "ttft_p95<1s", "--label", "x={{"], "--label x: its value holds {{"),
        (["--slo", "ttft_p95<1s", "--job", "a\nb: c"], "--job: its value holds"),
        (["--slo", "ttft_p95<1s", "--alert-label", "a b=c"], "--alert-label 'a b' is no label"),
        (["--slo", "ttft_p95<1s", "--alert-label", "__name__=c"], "'__name__' is"),
        (["--slo", "ttft_p95<1s", "--alert-label", "x={{"], "--alert-label x: its value holds {{"),
        (["--slo", "ttft_p95<1s", "--alert-label", "x=\udcff"], "--alert-label x: its value"),
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


def test_a_full_disk_leaves_the_earlier_file(tmp_path: Path) -> None:
    """A limit on the size of files refuses as a full disk does: in the middle of one."""
    made_at(tmp_path, "--slo", "ttft_p95<300ms")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    again = [sys.executable, "-m", "tuner", "rules", "--slo", "ttft_p95<1s", "--out", str(tmp_path)]
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 4; exec "$@"', "bash", *again],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 2
    assert "slo.rules.yml cannot be written: File too large" in done.stderr
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


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
        ["--target", "sglang", "--slo", "ttft_p95<2s", "--slo", "e2e_p99<10s", "--job", "s"],
        ["--target", "sglang", "--slo", "itl_p99<60ms", "--slo", "tpot_p50<30ms", "--by", ""],
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


@promtool
def test_sglangs_unit_tests_can_fail(tmp_path: Path) -> None:
    made_at(tmp_path, "--target", "sglang", "--slo", "ttft_p95<2s")
    rules = tmp_path / "slo.rules.yml"
    text = rules.read_text()
    rules.write_text(text.replace("sglang:num_aborted_requests_total", "sglang:no_such_total"))
    assert rules.read_text() != text
    tested = run_promtool("test", "rules", "slo.test.yml", at=tmp_path)
    assert tested.returncode != 0
    assert "aborts are bad" in tested.stdout + tested.stderr


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


def test_the_dashboard_keeps_old_names_behind_or(tmp_path: Path) -> None:
    board = tmp_path / "d.json"
    made_at(tmp_path, "--slo", "ttft_p95<500ms", "--grafana", str(board))
    panels = [p for p in json.loads(board.read_text())["panels"] if p["type"] != "row"]
    itl = next(p for p in panels if p["title"] == "Inter-token latency")
    assert " or " in itl["targets"][0]["expr"]
    assert len({p["id"] for p in panels}) == len(panels)
