"""Names that the command line offers; here, because what they name is heavy to import."""

from __future__ import annotations

SAMPLERS = ("auto", "gp", "tpe", "nsga2", "grid", "random")
