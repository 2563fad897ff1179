"""The error budget of an SLO line: which events are bad, and how fast that may use up the budget.

`counters` says which counters of an engine tell how requests ended, `buckets` at which boundary a
latency is counted, `events` which events of a clause are bad, `burn` from which rate on an alert
fires, `live` what a metric source says of all that now. `tuner/rules/` writes the same as PromQL.
Invariant: nothing is interpolated; every share is of counted events.
"""
