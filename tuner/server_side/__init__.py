"""What the server itself says of a run: its counters before and after, its state meanwhile, and
whether both agree with what the load generator saw."""

from tuner.server_side.crosscheck import Check, crosscheck
from tuner.server_side.increases import ServerSide, together
from tuner.server_side.series import Series
from tuner.server_side.watch import PrometheusTarget, Watch, observe, prometheus_problem, watching

__all__ = [
    "Check", "PrometheusTarget", "Series", "ServerSide", "Watch", "crosscheck", "observe",
    "prometheus_problem", "together", "watching",
]  # fmt: skip
