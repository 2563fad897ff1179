"""Prometheus rules out of an SLO line: what `--slo` judges in a run is watched all the time.

`sli` says which events of a clause are bad, `burn` how fast that may use up the error budget,
`groups` writes the rules, `unit_tests` what promtool must find true of them, `dashboard` a Grafana
dashboard of the same names. Invariant: nothing is interpolated; every share is of counted events.
"""
