"""A page as its reader sees it."""

from __future__ import annotations

import re

from tests.tuner.report.test_html import drawings, numbers


def text_of(page: str) -> str:
    """What a reader sees, tags left out."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page[page.index("<body>") :]))


def whole(page: str, *, charts: int) -> str:
    """So many charts, drawable and self-contained, whatever was in it; the text."""
    assert len(drawings(page)) == charts
    assert all(-80 < number < 1200 for number in numbers(page))
    assert not re.search(r"<script|<link|<img|<iframe|src=|@import|url\(", page)
    assert "prefers-color-scheme: dark" in page
    return text_of(page)
