"""The running diagnosis of this process: one history, evaluated at most once per beat.

Hysteresis counts evaluations, so they must not come faster because two browser tabs ask; and a
history that nobody continued for a while says nothing about now, so it is begun anew.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from storage.sources.base import MetricSource, Reading
from tuner.diagnosis import Diagnosis, History, asked_quantiles, collect, diagnose
from tuner.slo import parse_slos

BEAT_S = 5.0
FORGET_AFTER_S = 60.0
WINDOW_S = 60.0


class Evaluator:
    """Thread-safe. info_by_instance gives what each server tells of itself, settings what they do
    not, by knob name; client what a kept run's clients saw."""

    def __init__(
        self,
        source: MetricSource,
        *,
        target: str,
        slos: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        info_by_instance: Callable[[], Mapping[str, Mapping[str, Any]]] = dict,
        client: Callable[[], Mapping[str, Reading]] = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._target = target
        self._slos = parse_slos(slos)
        self._settings = dict(settings or {})
        self._info_by_instance = info_by_instance
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._history = History()
        self._latest: Diagnosis | None = None
        self._at_s = -FORGET_AFTER_S

    def latest(self) -> Diagnosis:
        """The newest diagnosis; a new one where the last is a beat old."""
        with self._lock:
            age_s = self._clock() - self._at_s
            if self._latest is None or age_s >= BEAT_S:
                if age_s >= FORGET_AFTER_S:
                    self._history = History()
                self._latest = self._evaluate()
                self._at_s = self._clock()
            return self._latest

    def _evaluate(self) -> Diagnosis:
        signals = collect(
            self._source,
            window_s=WINDOW_S,
            known=self._settings,
            info_by_instance=self._info_by_instance(),
            quantiles=asked_quantiles(self._slos.clauses),
            target=self._target,
            client=self._client(),
        )
        return diagnose(signals, self._slos, self._history)
