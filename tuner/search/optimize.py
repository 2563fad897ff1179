"""The joint search: baseline twice, single-variable points, Optuna, confirmation, decision.

Every stage looks at the ledger first and does what is missing, so that a study resumed after a
kill at any point ends where it would have ended. Invariant: a failed baseline ends the study.
"""

from __future__ import annotations

from tuner.search.confirm import confirm
from tuner.search.decide import Decision, decide
from tuner.search.explore import explore, measure_baseline
from tuner.search.noise import noise_of
from tuner.search.session import FAILURE_LIMIT as FAILURE_LIMIT
from tuner.search.session import Events as Events
from tuner.search.session import Search as Search


def optimize(search: Search) -> Decision:
    """Run or continue the study. Raises UserError when the baseline fails, TargetError when the
    target is gone, KeyboardInterrupt; the ledger keeps what was measured."""
    measure_baseline(search)
    noise = noise_of(search.goal, search.trials)
    search.events.note(f"    {noise.text(search.goal.objectives[0].key)}")
    explore(search)
    confirm(search)
    return decide(search.ledger.outcomes, search.baseline, search.goal)
