"""Planted causes are named first, their effects as symptoms, and the proposed knob clears them."""

from __future__ import annotations

import pytest

from tests.tuner.diagnosis.experiments import (
    EXPERIMENTS,
    NOTHING,
    Experiment,
    first_cause,
    looks,
    watched,
)
from tuner.diagnosis import Confidence, History

ILL = [experiment for experiment in EXPERIMENTS if experiment.node != NOTHING]
HEALTHY = [experiment for experiment in EXPERIMENTS if experiment.node == NOTHING]


@pytest.mark.parametrize("experiment", ILL, ids=lambda e: e.name)
def test_planted_cause_is_named_first_and_cleared_by_its_lever(experiment: Experiment) -> None:
    lab, history = experiment.plant(1), History()
    ill = watched(lab, experiment, experiment.for_s, history)
    assert first_cause(ill) == experiment.node, ill.headline
    node = ill.node(experiment.node)
    assert experiment.lever in [lever.title for lever in node.levers] or not experiment.lever
    assert node.confidence is not Confidence.POSSIBLE
    assert [cause.key for cause in ill.causes] == [experiment.node]
    experiment.mend(lab)
    mended = watched(lab, experiment, experiment.mended_s, history)
    assert mended.node("0").summary.startswith("fresh")
    assert not mended.node(experiment.node).firing, mended.node(experiment.node).summary
    assert first_cause(mended) == NOTHING, mended.headline


@pytest.mark.parametrize("experiment", HEALTHY, ids=lambda e: e.name)
def test_a_healthy_run_is_called_ill_at_no_look(experiment: Experiment) -> None:
    found = list(looks(experiment.plant(1), experiment, experiment.for_s, History()))
    assert [first_cause(look) for look in found] == [NOTHING] * len(found)
    assert experiment.says in found[-1].node("5").summary


def test_effects_are_symptoms() -> None:
    by_name = {experiment.name: experiment for experiment in EXPERIMENTS}
    starved = by_name["KV starvation"]
    diagnosis = watched(starved.plant(2), starved, starved.for_s, History())
    assert diagnosis.node("6").symptom_of == "3a.kv"
    capped = by_name["sequence cap"]
    diagnosis = watched(capped.plant(2), capped, capped.for_s, History())
    assert diagnosis.node("5.seq_cap").symptom_of == "3a.seq_cap"
