"""What the engine tells Prometheus. `names` is the only place that knows a metric's name."""
