"""Prometheus rules out of an SLO line: what `--slo` judges in a run is watched all the time.

Which events are bad, and how fast that may use up the error budget, stands in tuner/budget; `scope`
writes its counters as PromQL, `groups` the rules, `unit_tests` what promtool must find true of
them, `dashboard` a Grafana dashboard of the same names.
"""
