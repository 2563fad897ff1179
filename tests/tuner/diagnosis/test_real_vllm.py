"""Causes planted in a real `vllm serve` by its flags: named first over its /metrics, cleared by a
restart with the lever that was proposed, under the same load.

    VLLM_BINARY=…/vllm VLLM_MODEL=FOLDER python -m pytest tests/tuner/diagnosis/test_real_vllm.py

Every start of vLLM takes half a minute and more, so both variables must be set; without them the
tests are skipped. The bounds are for a model of some hundred million weights on two CPU cores.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.diagnosis.real_vllm import (
    BINARY,
    MODEL,
    USUAL,
    Clients,
    Server,
    arriving,
    command_line,
    offered,
    serving,
    watching,
)
from tuner.cli.diagnose import EXIT_CODES
from tuner.cli.main import main
from tuner.diagnosis import Diagnosis
from tuner.diagnosis.thresholds import Thresholds

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not (BINARY and MODEL), reason="VLLM_BINARY and VLLM_MODEL are not set"),
]


CONTROL_S = 30.0
"""For so long at least the load goes on before a cause is said to be gone."""


@dataclass(frozen=True)
class Planted:
    """loads under which vLLM with the flags `bad` shows the cause, and with `good` does not.

    top: the node that the cause hangs under; symptoms: node → its cause; by_command: `tuner
    diagnose` must say the same.
    """

    node: str
    top: str
    slo: str
    lever: str
    loads: tuple[Clients, ...]
    bad: dict[str, str]
    good: dict[str, str]
    symptoms: dict[str, str] = field(default_factory=dict)
    by_command: bool = False


PLANTED = (
    Planted(
        "3b.long_prompt", "3", "ttft_p95<2500ms", "chunk_size up", (Clients(1, 200, 4),),
        {"max_num_seqs": "4", "max_num_batched_tokens": "4"}, {"max_num_seqs": "4"},
    ),
    Planted(
        "3a.seq_cap", "3", "ttft_p95<3s", "max_num_seqs up", (Clients(12, 20, 8),),
        {"max_num_seqs": "1"}, {}, by_command=True,
    ),
    Planted(
        "3a.kv", "3", "ttft_p95<1500ms", "num_gpu_blocks_override up", (Clients(12, 240, 40),),
        {"num_gpu_blocks_override": "16"}, {}, {"6": "3a.kv"},
    ),
    Planted(
        "4.interference", "4", "itl_p99<200ms", "chunk_size down",
        (Clients(3, 16, 200), Clients(1, 900, 1, pause_s=0.5)),
        {}, {"max_num_batched_tokens": "32"},
    ),
)  # fmt: skip


def named_first(node: str, diagnosis: Diagnosis) -> bool:
    return bool(diagnosis.causes) and diagnosis.causes[0].key == node


def sure(node: str, diagnosis: Diagnosis) -> bool:
    """Named first, by enough requests that chance is not a likely reason."""
    first = diagnosis.causes[0] if diagnosis.causes else None
    return named_first(node, diagnosis) and first is not None and first.confidence != "possible"


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.node)
def test_a_planted_cause_is_named_first_and_gone_with_its_lever(
    planted: Planted, tmp_path: Path, capsys: Any
) -> None:
    with (
        serving(tmp_path, **planted.bad) as server,
        offered(server, *planted.loads),
        watching(server, [planted.slo]) as look,
    ):
        ill = look(lambda found: sure(planted.node, found))
        if planted.by_command:
            code, told = command_line(capsys, server, planted.slo)
            assert code == EXIT_CODES[told.severity]
            assert named_first(planted.node, told), told.headline
    assert named_first(planted.node, ill), ill.headline
    assert planted.lever == ill.node(planted.node).levers[0].title
    assert ill.node(planted.top).firing
    assert {key: ill.node(key).symptom_of for key in planted.symptoms} == planted.symptoms

    def cleared(found: Diagnosis) -> bool:
        """Gone, and the latency less than half: other work on the machine may keep it long."""
        before, after = (seen.node(planted.top).value for seen in (ill, found))
        assert before is not None
        gone = not found.node(planted.node).firing
        return gone and after is not None and after < before / 2

    with (
        serving(tmp_path, **planted.good) as server,
        offered(server, *planted.loads),
        watching(server, [planted.slo]) as look,
    ):
        well = look(cleared, least_s=CONTROL_S)
    assert cleared(well), well.headline


FEW, MANY = (Clients(1, 928, 4, prefixes=n, prefix_tokens=896) for n in (4, 16))
REUSED = "ttft_p95<1s"


def thrashes(found: Diagnosis) -> bool:
    return found.node("3b.thrash").firing


def reused(server: Server, wanted: Callable[[Diagnosis], bool]) -> tuple[Diagnosis, Diagnosis]:
    """What is seen with few prefixes, then with many; wanted: what is waited for in the second."""
    with watching(server, [REUSED], window_s=15.0) as look:
        with offered(server, FEW):
            few = look(lambda found: not thrashes(found))
        with offered(server, MANY):
            return few, look(wanted, least_s=CONTROL_S)


def test_a_working_set_of_prefixes_larger_than_the_pool(tmp_path: Path) -> None:
    with serving(tmp_path, num_gpu_blocks_override="48") as server:
        few, many = reused(server, lambda found: named_first("3b.thrash", found))
    assert not thrashes(few), few.headline
    assert named_first("3b.thrash", many), many.headline
    assert many.node("3b.thrash").levers[0].title == "num_gpu_blocks_override up"
    with serving(tmp_path) as server:
        _, well = reused(server, lambda found: not thrashes(found))
    assert not thrashes(well), well.headline


def test_a_queue_that_only_grows_at_the_highest_cap_is_overload(tmp_path: Path) -> None:
    """vLLM has no highest value of its own: it is told. Ten seconds of growth are an overload."""
    soon, slo = Thresholds({"overload_growth_s": 10.0}), "ttft_p95<2s"
    highest = {"max_num_seqs_high": "2"}
    with serving(tmp_path, max_num_seqs="2") as server:
        told = Server(server.url, server.settings | highest)
        with arriving(server, 0.3, 40, 100), watching(told, [slo], soon) as look:
            ill = look(lambda found: named_first("3a.overload", found))
    assert named_first("3a.overload", ill), ill.headline
    assert ill.node("3a.seq_cap").symptom_of == "3a.overload"
    assert ill.node("3a.overload").levers[0].title.startswith("scale out or shed load")
    with serving(tmp_path, max_num_seqs="2", max_num_queued_reqs="3") as server:
        told = Server(server.url, server.settings | highest)
        with arriving(server, 0.3, 40, 100), watching(told, [slo], soon) as look:
            well = look(lambda found: not found.node("3a.overload").firing, CONTROL_S)
    assert not well.node("3a.overload").firing, well.headline


def test_too_little_load_is_no_fault(tmp_path: Path, capsys: Any) -> None:
    with serving(tmp_path) as server, offered(server, Clients(2, 50, 20, pause_s=0.5)):
        code, found = command_line(capsys, server, "ttft_p95<10s")
    assert (code, found.causes) == (0, ()), found.headline
    assert "load-limited: not a server problem" in found.node("5").summary


def test_a_lever_is_tried_by_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    for name, value in USUAL.items():
        monkeypatch.setenv(name, os.environ.get(name, value))
    args = "--max-model-len 1024 --enforce-eager --max-num-seqs 2 --max-num-batched-tokens 1024"
    code = main([
        "verify", "--target", "vllm", "--model", MODEL, "--vllm-binary", BINARY,
        f"--serve-args={args}", "--node", "3a.seq_cap", "--slo", "ttft_p95<300ms",
        "--workload", "prompt=20,output=6,concurrency=8", "--pairs", "5", "--duration", "20s",
        "--warmup", "3s", "--database", str(tmp_path / "verify.db"), "--log-dir", str(tmp_path),
        "--json", "--quiet", "--no-config",
    ])  # fmt: skip
    said = capsys.readouterr()
    assert said.out, said.err
    found = json.loads(said.out)
    assert found["outcome"] in ("holds", "undecided"), found["reason"]
    assert code == (0 if found["outcome"] == "holds" else 1)
    assert found["change"] == "max_num_seqs 2 → 4"
    assert found["node_before"] in ("warning", "critical")
