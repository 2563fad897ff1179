"""What is turned, what decides, what is predicted and on what ground."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from storage import Verification
from tests.tuner.diagnosis.cases import signals
from tuner.diagnosis.levers import FP8_KV, LARGER_CHUNK, MORE_KV, MORE_REPLICAS, MORE_SEQS
from tuner.diagnosis.model import Lever, NodeResult, State
from tuner.errors import UserError
from tuner.search.objective import Objective
from tuner.slo import parse_slos
from tuner.targets.base import KnobRange
from tuner.verify.history import records
from tuner.verify.predict import Prediction, kept, predict
from tuner.verify.proof import answered
from tuner.verify.proposal import Proposal, objective_of, of_knob, of_node, one_step

KNOBS = {
    "max_num_seqs": KnobRange(64, 1, 256, live=True),
    "chunk_size": KnobRange(512, 16, 4096, live=True),
    "gpu_memory_utilization": KnobRange(0.85, 0.1, 0.9, live=True),
}
TTFT, RATE = Objective("ttft_p95", "minimize"), Objective()


def node(*levers: Lever, key: str = "3a.seq_cap") -> NodeResult:
    return NodeResult(key, "A node", State.CRITICAL, "fires", levers=levers)


def test_a_node_proposes_its_first_lever_that_can_be_turned() -> None:
    made = of_node(node(MORE_REPLICAS, FP8_KV, MORE_SEQS), KNOBS, TTFT)
    assert (made.knob, made.direction, made.after["max_num_seqs"]) == ("max_num_seqs", "up", 128)
    assert made.before == {name: knob.value for name, knob in KNOBS.items()}
    assert made.change == "max_num_seqs 64 → 128"


@pytest.mark.parametrize(
    ("lever", "present", "value"),
    [
        (MORE_SEQS, 200, 256),
        (MORE_SEQS, 256, None),
        (replace(MORE_SEQS, direction="down"), 7, 4),
        (MORE_KV, 0.85, 0.9),
        (replace(MORE_KV, direction="down"), 0.85, 0.75),
        (LARGER_CHUNK, 512, 1024),
    ],
)
def test_one_step_stays_inside_the_bounds(
    lever: Lever, present: float, value: float | None
) -> None:
    knobs = {lever.knob: replace(KNOBS[lever.knob], value=present)}
    assert one_step(lever, knobs)[0] == value


def test_a_node_without_a_lever_to_try_says_why() -> None:
    full = {"max_num_seqs": replace(KNOBS["max_num_seqs"], value=256)}
    with pytest.raises(UserError, match="at its bound, 256"):
        of_node(node(MORE_SEQS), full, TTFT)
    with pytest.raises(UserError, match="not a knob of a server"):
        of_node(node(MORE_REPLICAS), KNOBS, TTFT)
    with pytest.raises(UserError, match="let it be started"):
        of_node(node(MORE_SEQS), {"chunk_size": KNOBS["chunk_size"]}, TTFT)


def test_a_knob_that_the_server_has_no_flag_for_is_told_from_one_whose_value_is_not_known() -> None:
    started = {"chunk_size": replace(KNOBS["chunk_size"], live=False)}
    blocks = node(replace(MORE_KV, knob="num_gpu_blocks_override"))
    with pytest.raises(UserError, match="this server has no such flag"):
        of_node(blocks, started, TTFT, "sglang")
    with pytest.raises(UserError, match="its present value is not known: name the one to try"):
        of_node(blocks, started, TTFT, "vllm")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("max_num_seqs=64", "has already"),
        ("max_num_seqs=8,16", "give one value"),
        ("max_num_seqs=999", "outside"),
        ("chunk_size=32", "must be at least max_num_seqs"),
        ("max_num_sqs=8", "max_num_seqs"),
    ],
)
def test_a_knob_that_cannot_be_tried_is_refused(text: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        of_knob(text, KNOBS, TTFT)


@pytest.mark.parametrize(
    ("where", "slos", "named", "wanted"),
    [
        ("3a.kv", ["ttft_p99<1s", "itl_p95<1s"], None, "minimize ttft_p99"),
        ("3a.kv", ["itl_p95<1s"], None, "minimize ttft_p95"),
        ("4.interference", ["tpot_p90<1s"], None, "minimize tpot_p90"),
        ("4.interference", [], None, "minimize itl_p99"),
        ("5", ["ttft_p99<1s"], None, "maximize output_tps"),
        ("", ["e2e_p90<1s"], None, "minimize e2e_p90"),
        ("", [], None, "maximize output_tps"),
        ("3a.kv", [], "goodput", "maximize goodput"),
        ("3a.kv", [], "ttft_p50", "minimize ttft_p50"),
        ("", [], "error_rate", "minimize error_rate"),
    ],
)
def test_what_decides(where: str, slos: list[str], named: str | None, wanted: str) -> None:
    assert str(objective_of(where, parse_slos(slos), named)) == wanted


def proposal(objective: Objective, **after: float) -> Proposal:
    before = {name: knob.value for name, knob in KNOBS.items()}
    return Proposal(next(iter(after)), before, before | after, objective)


def test_throughput_of_a_higher_cap_is_bounded_by_the_queue_and_the_kv() -> None:
    seen = signals(running_mean=64.0, waiting_mean=32.0, kv_usage_mean=0.4)
    found = predict(proposal(RATE, max_num_seqs=128), seen)
    assert isinstance(found, Prediction)
    assert (found.low, found.high) == (1.0, pytest.approx(1.5))  # all that wait
    seen = signals(running_mean=64.0, waiting_mean=200.0, kv_usage_mean=0.76)
    found = predict(proposal(RATE, max_num_seqs=128), seen)
    assert isinstance(found, Prediction)
    assert found.high == pytest.approx(0.95 / 0.76)  # what the KV holds
    assert "80.0 could run at once" in found.ground


def test_a_cap_that_the_server_sets_by_itself_bounds_nothing() -> None:
    seen = signals(running_mean=64.0, waiting_mean=200.0, kv_usage_mean=0.4)
    more = proposal(RATE, gpu_memory_utilization=0.9)
    found = predict(replace(more, before=more.before | {"max_num_seqs": "default"}), seen)
    assert isinstance(found, Prediction)
    assert found.high == pytest.approx(0.9 / 0.85)


def test_ttft_falls_by_what_leaves_the_queue() -> None:
    seen = signals(running_mean=64.0, waiting_mean=64.0, kv_usage_mean=0.1, queue=0.9, prefill=0.1)
    found = predict(proposal(TTFT, max_num_seqs=128), seen)
    assert isinstance(found, Prediction)
    assert (found.low, found.high) == (pytest.approx(0.1), 1.0)


def test_gaps_of_a_smaller_chunk_lose_their_share_of_the_prefill() -> None:
    seen = signals(
        itl_p50=0.02, itl_p99=0.1, prompt_tokens=512.0, step_tokens_p90=500.0, step_tokens_p99=500.0
    )
    found = predict(proposal(Objective("itl_p99", "minimize"), chunk_size=128), seen)
    assert isinstance(found, Prediction)
    assert found.low == pytest.approx((0.02 + 0.08 * 128 / 512) / 0.1)


def test_a_larger_chunk_saves_steps_of_long_prompts_only() -> None:
    seen = signals(queue=0.0, prefill=0.4, prompt_tokens=2000.0)
    found = predict(proposal(TTFT, chunk_size=1024), seen)
    assert isinstance(found, Prediction)
    assert found.low == pytest.approx(0.5)
    short = predict(proposal(TTFT, chunk_size=1024), signals(prompt_tokens=100.0))
    assert isinstance(short, str)
    assert "takes 1 step either way" in short


def test_without_its_ground_there_is_no_prediction_and_the_reason_is_told() -> None:
    assert "no metrics" in str(predict(proposal(RATE, max_num_seqs=128), None))
    assert "nothing says by how much" in str(
        predict(proposal(Objective("error_rate", "minimize"), max_num_seqs=128), signals())
    )
    missing = predict(proposal(RATE, max_num_seqs=128), signals(kv_usage_mean=None, kv_usage=None))
    assert missing == "kv_usage_mean was not measured"


def test_an_interval_beside_its_prediction() -> None:
    found = Prediction(0.5, 1.0, "")
    assert kept(found, 0.6, 0.7) == "as predicted"
    assert kept(found, 0.4, 0.6) == "as predicted"
    assert kept(found, 0.1, 0.4) == "below"
    assert kept(found, 1.1, 1.4) == "above"


@pytest.mark.parametrize(
    ("gain", "before", "after", "margin", "decided", "outcome"),
    [
        ("improved", "pass", "pass", -0.1, "improved", "holds"),
        ("improved", "fail", "fail", 0.4, "none_feasible", "holds"),
        ("improved", "pass", "fail", -0.1, "keep_baseline", "harmful"),
        ("improved", "inconclusive", "fail", -0.1, "keep_baseline", "harmful"),
        ("improved", "inconclusive", "fail", 0.1, "keep_baseline", "holds"),
        ("inconclusive", "fail", "pass", 0.4, "improved", "holds"),
        ("inconclusive", "pass", "pass", -0.1, "keep_baseline", "undecided"),
        ("no_difference", "pass", "pass", -0.1, "keep_baseline", "refuted"),
        ("worse", "pass", "pass", -0.1, "keep_baseline", "refuted"),
    ],
)
def test_the_answer_follows_from_the_figure_and_the_slos(
    gain: str, before: str, after: str, margin: float, decided: str, outcome: str
) -> None:
    proof = SimpleNamespace(
        outcomes=[], proposal=proposal(TTFT, max_num_seqs=128),
        gain=SimpleNamespace(outcome=gain),
        standing=SimpleNamespace(pooled=SimpleNamespace(verdict=SimpleNamespace(state=after))),
        decision=SimpleNamespace(
            answer=decided, reason="as decided",
            baseline=SimpleNamespace(verdict=SimpleNamespace(state=before, margins=[margin])),
        ),
    )  # fmt: skip
    assert answered(proof).outcome == outcome  # type: ignore[arg-type]


def stored(outcome: str, ratio: float | None = 1.2, knob: str = "max_num_seqs") -> Verification:
    realised = None if ratio is None else {"ratio": ratio, "prediction": "as predicted"}
    return Verification(
        1, None, 0.0, "http://a", "3a.seq_cap", knob, "up", {}, {}, None, None, "output_tps",
        {"low": 1.0, "high": 2.0, "ground": ""}, realised, None, None, None, outcome, None, False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("outcomes", "told"),
    [
        (["holds"], "too few to tell"),
        (["holds", "undecided", "undecided"], "too few to tell"),
        (["holds", "holds"], "holds up"),
        (["holds", "holds", "refuted"], "holds more often than not"),
        (["holds", "refuted"], "keeps failing"),
        (["harmful", "refuted", "undecided"], "keeps failing"),
    ],
)
def test_which_advice_holds_up(outcomes: list[str], told: str) -> None:
    (record,) = records([stored(outcome) for outcome in outcomes])
    assert record.told == told
    assert record.decided == len([o for o in outcomes if o != "undecided"])


def test_history_is_by_advice_and_takes_the_median() -> None:
    rows = [stored("holds", 1.1), stored("holds", 1.3), stored("refuted", None, "chunk_size")]
    first, second = records(rows)
    assert (first.knob, first.median_ratio, first.as_predicted) == (
        "max_num_seqs", pytest.approx(1.2), 2,
    )  # fmt: skip
    assert (second.knob, second.median_ratio) == ("chunk_size", None)
