"""The recorded runs of other tools, and hand-made runs in the shape of exchange."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.tuner.runs import good, run
from tuner.exchange.run import Run, from_measurement
from tuner.records import RequestRecord
from tuner.slo import judge, parse_slos

FIXTURES = Path(__file__).parents[3] / "fixtures"


def fixture(name: str) -> Path:
    return FIXTURES / name


def document(name: str) -> Any:
    return json.loads(fixture(name).read_text())


def written(tmp_path: Path, content: Any) -> Path:
    """A file of that JSON."""
    path = tmp_path / "result.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def made(
    records: list[RequestRecord] | None = None, slo: str = "ttft_p95<1s", end_s: float = 10.0
) -> Run:
    """A run of our own, judged; by default 70 good requests over 7 s."""
    records = records or [good(i, at_s=i / 10, output=4 + i % 3) for i in range(70)]
    slos = parse_slos([slo] if slo else [])
    measured = run(records, slos, end_s=end_s)
    return from_measurement(measured, judge(slos, measured))
