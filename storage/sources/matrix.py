"""What a query of Prometheus gives, as plain Python."""

from __future__ import annotations

from typing import TypeAlias

Vector: TypeAlias = list[tuple[dict[str, str], float]]
"""(labels, value) per series."""

Matrix: TypeAlias = list[tuple[dict[str, str], list[tuple[float, float]]]]
"""(labels, [(Unix seconds, value)]) per series."""
