"""Where to measure next: Optuna, told of every trial, crashes included.

A failed configuration is told as a *finished* trial with a violated constraint of its own and the
worst value seen, because samplers learn nothing from failed trials. SLO margins are the other
constraints. Invariant: what is RUNNING in Optuna's history belongs to a living worker; the points
of dead ones are asked again.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState
from threadpoolctl import threadpool_limits

from tuner.search.goal import Goal, Reading, is_complete, no_result
from tuner.search.samplers import make_sampler, quietly
from tuner.search.space import Space
from tuner.search.trials import Config, Trial

MAX_REPEATS = 4
"""Proposals of a point already measured that are answered from memory, one after the other."""

MAX_ELSEWHERE = 60
"""Random points that must all be known before the space counts as exhausted."""

DEFAULT_WORKER = "alone"


@dataclass(frozen=True, slots=True)
class Proposal:
    """number is Optuna's; swept: a planned point that varies one knob, not the sampler's choice.
    asked: the number under which the point was asked first, where its worker died."""

    number: int
    config: Config
    swept: bool
    asked: int | None = None


def history_name(study: str, space: Space, goal: Goal) -> str:
    """Name of Optuna's history: another one as soon as its numbers would mean something else."""
    wanted = " ".join(map(str, goal.objectives))
    loads = "" if len(goal.loads) == 1 else " ".join(map(str, goal.loads))
    meaning = f"{space.meaning} {wanted} {goal.slos}{loads}"
    return f"{study} {zlib.crc32(meaning.encode()):08x}"


class Proposer:
    """ask() → measure → tell(); storage None keeps it in memory.

    rules_out says which configurations cannot work; worker and alive, whose a running point is.
    given: how many points this process has been told to measure.
    """

    def __init__(
        self,
        space: Space,
        goal: Goal,
        *,
        sampler_name: str = "auto",
        seed: int = 0,
        name: str | None = None,
        storage: optuna.storages.BaseStorage | None = None,
        rules_out: Callable[[Config], bool] = lambda config: False,
        worker: str = DEFAULT_WORKER,
        alive: Callable[[str], bool] = lambda worker: worker == DEFAULT_WORKER,
    ) -> None:
        self._space, self._goal = space, goal
        self._rules_out, self._worker, self._alive = rules_out, worker, alive
        self._distributions: dict[str, BaseDistribution] = {
            axis: FloatDistribution(0.0, 1.0) for axis in space.names
        }
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with quietly():
            self._study = optuna.create_study(
                study_name=name,
                storage=storage,
                directions=[objective.direction for objective in goal.objectives],
                load_if_exists=True,
            )
        self._study.sampler = make_sampler(
            sampler_name,
            seed + len(self._study.trials),  # a resumed study must not draw its first points again
            space,
            len(goal.objectives),
        )
        self._trials: list[Trial] = []
        self.given = 0

    def learn(self, trial: Trial) -> None:
        """Tell of a trial that nobody asked for (a baseline, or one under other SLOs)."""
        if trial not in self._trials:
            self._trials.append(trial)
        if set(self._space.names) - set(trial.config):
            return
        reading = self._goal.read(trial, self._trials)
        attributes = self._attributes(trial, reading)
        if any(_same(told, attributes) for told in self._study.trials):
            return
        self._study.add_trial(
            optuna.trial.create_trial(
                params=self._space.encode(trial.config),
                distributions=self._distributions,
                values=self._values(reading),
                user_attrs=attributes,
                system_attrs={"constraints": tuple(reading.margins)},
            )
        )

    def enqueue(self, configs: Sequence[Config]) -> None:
        """Points to measure before the sampler chooses."""
        for config in configs:
            if not self._rules_out(config):
                self._study.enqueue_trial(
                    self._space.encode(config), user_attrs={"swept": True}, skip_if_exists=True
                )

    def sync(self, trials: Sequence[Trial]) -> None:
        """What is known now, by whomever it was measured; mends what a dead worker left."""
        self._trials = list(trials)
        by_number = {t.number: t for t in trials if t.number is not None}
        for asked in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            worker = asked.user_attrs.get("worker", "")
            if worker == self._worker or self._alive(worker):
                continue
            stored = by_number.get(asked.user_attrs.get("asked", asked.number))
            begun = stored is not None and stored.config == self._decoded(asked)
            if stored is not None and begun and is_complete(self._goal, stored):
                self._tell(asked.number, stored)
            else:
                self._ask_again(asked, begun=begun)

    def recover(self, trials: Sequence[Trial]) -> None:
        """At the start of a sitting: sync, and teach a history that was begun under other SLOs,
        objectives or ranges what was measured before."""
        self.sync(trials)
        told = [t for t in self._study.trials if t.state.is_finished()]
        for trial in trials:
            if is_complete(self._goal, trial) and (not told or trial.stage == "baseline"):
                self.learn(trial)

    def running(self) -> list[Config]:
        """Points that other workers, alive, are measuring."""
        return [self._decoded(trial) for trial in self._running_elsewhere()]

    def ask(self) -> Proposal | None:
        """The next point that nobody has measured or is measuring; repeats are answered from
        memory, impossible points by arithmetic. None when no other is found."""
        repeats = 0
        for _ in range(MAX_ELSEWHERE):
            proposal = self._ask_once(elsewhere=repeats >= MAX_REPEATS)
            if proposal is None:
                return None
            if self._rules_out(proposal.config):
                self._finish(proposal.number, no_result(self._goal.objectives, self._goal.slos))
                continue
            before = [t for t in self._trials if t.config == proposal.config]
            complete = [t for t in before if is_complete(self._goal, t)]
            if complete:
                self._tell(proposal.number, complete[-1], remembered=True)
            elif any(config == proposal.config for config in self.running()):
                self._forget(proposal.number)
            else:
                self.given += 1
                return proposal
            repeats += 1
        return None

    def ask_begun(self) -> Proposal | None:
        """A point of which a worker that is no more has measured a part; those that wait before it
        wait on."""
        if not any(waiting.user_attrs.get("begun") for waiting in self._waiting()):
            return None
        for _ in self._waiting():
            proposal = self._ask_once(elsewhere=False)
            assert proposal is not None  # only a grid ends, and never while points wait
            asked = self._study.trials[proposal.number]
            if asked.user_attrs.get("begun"):
                self.given += 1
                return proposal
            self._ask_again(asked)
        return None

    @property
    def measured(self) -> int:
        """Points that were measured for this history, in all sittings and by all workers: not
        those that it was taught or that were answered from memory."""
        return sum(
            {"worker", "seed"} <= told.user_attrs.keys() and "remembered" not in told.user_attrs
            for told in self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        )

    def tell(self, proposal: Proposal, trial: Trial) -> None:
        if trial not in self._trials:
            self._trials.append(trial)
        self._tell(proposal.number, trial)

    def _ask_once(self, *, elsewhere: bool) -> Proposal | None:
        """elsewhere: the sampler is stuck on known points; look at random."""
        chosen = self._study.sampler
        if isinstance(chosen, optuna.samplers.GridSampler):
            if chosen.is_exhausted(self._study) and not self._waiting():
                return None
        elif elsewhere:
            self._study.sampler = optuna.samplers.RandomSampler(seed=len(self._study.trials))
        try:
            with quietly(), threadpool_limits(1):  # its matrices are small: threads only wait
                asked = self._study.ask(self._distributions)
        finally:
            self._study.sampler = chosen
        asked.set_user_attr("worker", self._worker)
        attributes = asked.user_attrs
        return Proposal(
            asked.number,
            self._space.decode(asked.params),
            bool(attributes.get("swept")),
            attributes.get("asked"),
        )

    def _waiting(self) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,))

    def _running_elsewhere(self) -> list[FrozenTrial]:
        return [
            trial
            for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            if trial.user_attrs.get("worker", "") != self._worker
            and self._alive(trial.user_attrs.get("worker", ""))
        ]

    def _ask_again(self, asked: FrozenTrial, *, begun: bool = False) -> None:
        """Put a point back among those that wait. What was measured of it stays its own; begun:
        whether anything was."""
        self._forget(asked.number)
        if set(asked.params) != set(self._space.names):
            return
        attributes: dict[str, Any] = {"swept": bool(asked.user_attrs.get("swept"))}
        attributes["asked"] = asked.user_attrs.get("asked", asked.number)
        attributes["begun"] = begun
        self._study.enqueue_trial(dict(asked.params), user_attrs=attributes)

    def _forget(self, number: int) -> None:
        with quietly(), contextlib.suppress(ValueError, RuntimeError):
            self._study.tell(number, state=TrialState.FAIL)

    def _decoded(self, trial: FrozenTrial) -> Config:
        if set(trial.params) != set(self._space.names):
            return {}
        return self._space.decode(trial.params)

    def _tell(self, number: int, trial: Trial, *, remembered: bool = False) -> None:
        reading = self._goal.read(trial, self._trials)
        known = {"remembered": True} if remembered else {}
        self._finish(number, reading, self._attributes(trial, reading) | known)

    def _finish(
        self, number: int, reading: Reading, attributes: dict[str, Any] | None = None
    ) -> None:
        storage, trials = self._study._storage, self._study.trials
        for key, value in (attributes or {"margins": list(reading.margins)}).items():
            storage.set_trial_user_attr(trials[number]._trial_id, key, value)
        with quietly():
            self._study.tell(number, self._values(reading))

    def _attributes(self, trial: Trial, reading: Reading) -> dict[str, Any]:
        return {
            "config": dict(trial.config),
            "margins": list(reading.margins),
            "stage": trial.stage,
            "seed": trial.seed,
            "failure": trial.failure_reason[:500],
        }

    def _values(self, reading: Reading) -> list[float]:
        return [
            value if value is not None else self._worst(place)
            for place, value in enumerate(reading.values)
        ]

    def _worst(self, place: int) -> float:
        """Of all values seen of one objective: no result is never better than a bad one."""
        objective = self._goal.objectives[place]
        seen = [self._goal.read(trial, self._trials).values[place] for trial in self._trials]
        known = [value for value in seen if value is not None]
        return objective.worst(known) if known else 0.0


def _same(told: FrozenTrial, attributes: dict[str, Any]) -> bool:
    """Whether a trial has been told before, by another worker or in an earlier sitting."""
    keys = ("config", "stage", "seed")
    return all(told.user_attrs.get(key) == attributes[key] for key in keys)
