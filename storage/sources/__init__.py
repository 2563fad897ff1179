"""Where metrics come from: a target's own /metrics, Prometheus, a recording."""
