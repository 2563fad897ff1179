"""SLOs: one line of text, strictly parsed (`grammar`), honestly judged (`judge`)."""

from tuner.slo.grammar import Clause, SloSet, SloSyntaxError, parse_slos
from tuner.slo.judge import VERDICTS, ClauseVerdict, Verdict, VerdictState, judge

__all__ = [
    "VERDICTS", "Clause", "ClauseVerdict", "SloSet", "SloSyntaxError", "Verdict",
    "VerdictState", "judge", "parse_slos",
]  # fmt: skip
