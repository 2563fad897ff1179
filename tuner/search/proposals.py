"""Where to measure next: Optuna, told of every outcome, crashes included.

A failed configuration is told as a *finished* trial with a violated constraint of its own and the
worst value seen, because samplers learn nothing from failed trials. SLO margins are the other
constraints. The only module of the search that imports optuna.
"""

from __future__ import annotations

import importlib.util
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState

from tuner.search.objective import Objective
from tuner.search.space import Space
from tuner.slo import SloSet
from tuner.targets.base import Setting
from tuner.trial import Outcome

STARTUP_TRIALS = 6
MAX_REPEATS = 4
"""Proposals of a point already measured that are answered from memory, one after the other."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """number is Optuna's; swept: a planned point that varies one knob, not the sampler's choice."""

    number: int
    config: dict[str, Setting]
    swept: bool


def sampler(name: str, seed: int) -> optuna.samplers.BaseSampler:
    """auto: a Gaussian process where torch is installed, else TPE."""
    if name == "auto":
        name = "gp" if importlib.util.find_spec("torch") is not None else "tpe"
    options: dict[str, Any] = {"seed": seed, "n_startup_trials": STARTUP_TRIALS}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name == "gp":
            return optuna.samplers.GPSampler(constraints_func=_constraints, **options)
        if name == "tpe":
            return optuna.samplers.TPESampler(
                multivariate=True, constraints_func=_constraints, **options
            )
        return optuna.samplers.RandomSampler(seed=seed)


def history_name(study: str, space: Space, objective: Objective, slos: SloSet) -> str:
    """Name of Optuna's history: another one as soon as its numbers would mean something else."""
    meaning = f"{space.as_dict()['axes']} {objective} {slos}"
    return f"{study} {zlib.crc32(meaning.encode()):08x}"


class Proposer:
    """ask() → measure → tell(); storage None keeps it in memory."""

    def __init__(
        self,
        space: Space,
        objective: Objective,
        slos: SloSet,
        *,
        sampler_name: str = "auto",
        seed: int = 0,
        name: str | None = None,
        storage: optuna.storages.BaseStorage | None = None,
    ) -> None:
        self._space = space
        self._objective = objective
        self._slos = slos
        self._distributions: dict[str, BaseDistribution] = {
            axis: FloatDistribution(0.0, 1.0) for axis in space.names
        }
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._study = optuna.create_study(
                study_name=name,
                storage=storage,
                direction=objective.direction,
                load_if_exists=True,
            )
        # A resumed study must not draw its first points again.
        self._study.sampler = sampler(sampler_name, seed + len(self._study.trials))
        self._known: list[Outcome] = []

    def learn(self, outcome: Outcome) -> None:
        """Tell of a measurement that nobody asked for (a baseline)."""
        if outcome not in self._known:
            self._known.append(outcome)
        if set(self._space.names) - set(outcome.config):
            return
        self._study.add_trial(
            optuna.trial.create_trial(
                params=self._space.encode(outcome.config),
                distributions=self._distributions,
                value=self._value(outcome),
                user_attrs=self._attributes(outcome),
                system_attrs={"constraints": tuple(self._margins(outcome))},
            )
        )

    def enqueue(self, configs: Sequence[dict[str, Setting]]) -> None:
        """Points to measure before the sampler chooses."""
        for config in configs:
            self._study.enqueue_trial(
                self._space.encode(config), user_attrs={"swept": True}, skip_if_exists=True
            )

    def ask(self) -> Proposal:
        """The next point that has not been measured; repeats are answered from memory."""
        for _ in range(MAX_REPEATS):
            proposal = self._ask_once()
            before = [o for o in self._known if o.config == proposal.config]
            if not before:
                return proposal
            self._tell(proposal.number, before[-1])
        return self._ask_random()

    def tell(self, proposal: Proposal, outcome: Outcome) -> None:
        self._known.append(outcome)
        self._tell(proposal.number, outcome)

    def recover(self, outcomes: Sequence[Outcome]) -> None:
        """After a restart: finish what was asked before, from what was stored."""
        self._known = list(outcomes)
        by_number = {o.trial_number: o for o in outcomes if o.trial_number is not None}
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            stored = by_number.get(trial.number)
            if stored is not None and stored.config == self._space.decode(trial.params):
                self._tell(trial.number, stored)
            else:
                self._study.tell(trial.number, state=TrialState.FAIL)
        # A history begun under other SLOs or ranges knows nothing of the old measurements.
        fresh = not any(t.state.is_finished() for t in self._study.trials)
        told = sum(t.user_attrs.get("stage") == "baseline" for t in self._study.trials)
        baselines = [o for o in outcomes if o.stage == "baseline"]
        for outcome in outcomes if fresh else baselines[told:]:
            self.learn(outcome)

    def _ask_once(self) -> Proposal:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial = self._study.ask(self._distributions)
        return self._proposal(trial)

    def _ask_random(self) -> Proposal:
        """The sampler is stuck on known points: look elsewhere."""
        chosen, self._study.sampler = (
            self._study.sampler,
            optuna.samplers.RandomSampler(seed=len(self._study.trials)),
        )
        try:
            return self._ask_once()
        finally:
            self._study.sampler = chosen

    def _proposal(self, trial: optuna.trial.Trial) -> Proposal:
        config = self._space.decode(trial.params)
        return Proposal(trial.number, config, bool(trial.user_attrs.get("swept")))

    def _tell(self, number: int, outcome: Outcome) -> None:
        storage, trials = self._study._storage, self._study.trials
        for key, value in self._attributes(outcome).items():
            storage.set_trial_user_attr(trials[number]._trial_id, key, value)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._study.tell(number, self._value(outcome))

    def _attributes(self, outcome: Outcome) -> dict[str, Any]:
        return {
            "config": dict(outcome.config),
            "margins": self._margins(outcome),
            "stage": outcome.stage,
            "failure": outcome.failure_reason[:500],
        }

    def _margins(self, outcome: Outcome) -> list[float]:
        """A run without a finite objective violates the last constraint, as a crash does."""
        margins = outcome.margins(self._slos)
        if result_value(outcome, self._objective) is None:
            margins[-1] = 1.0
        return margins

    def _value(self, outcome: Outcome) -> float:
        value = result_value(outcome, self._objective)
        if value is not None:
            return value
        seen = [
            known for known in (result_value(o, self._objective) for o in self._known)
            if known is not None
        ]  # fmt: skip
        return (min if self._objective.higher_is_better else max)(seen, default=0.0)


def result_value(outcome: Outcome, objective: Objective) -> float | None:
    """The objective of an outcome that has a result."""
    if not outcome.ok or outcome.measurement is None:
        return None
    return objective.value(outcome.measurement.summary)


def _constraints(trial: FrozenTrial) -> Sequence[float]:
    margins: Sequence[float] = trial.user_attrs.get("margins", (1.0,))
    return margins
