"""A verification that gave no answer is not shown as a search that found nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dashboard.pages import Show, studies
from tests.tuner.report.stored_studies import pairs, store_verification


@pytest.mark.parametrize(
    ("state", "answer"), [("failed", "no answer"), ("running", "no answer yet")]
)
def test_a_verification_of_which_only_one_side_was_measured(
    state: str, answer: str, show: Show, tmp_path: Path
) -> None:
    store_verification(tmp_path / "v.db", pairs()[:1], None, state=state)
    text = show(studies, database="v.db")
    assert answer in text
    assert "nothing meets the SLOs" not in text
    assert ("only the present setting was measured" in text) == (state == "failed")
    assert "The baseline has no result" not in text
