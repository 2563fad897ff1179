"""Pages run as Streamlit runs them but without a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from dashboard import connect, settings
from dashboard.settings import Settings
from storage.sources.base import MetricSource
from tests.dashboard.pages import SLOS, URL, Draw, Show, text_of


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Draw]:
    """Run a page against a source and a database."""

    def run(
        page: Callable[[], None], source: MetricSource | None = None, database: str = "none.db"
    ) -> AppTest:
        st.cache_resource.clear()
        monkeypatch.setattr(connect, "open_source", lambda **_: source)
        settings.configure(
            Settings(
                url=URL if source is not None else None,
                database=str(tmp_path / database),
                slos=SLOS,
            )
        )
        return AppTest.from_function(page, default_timeout=30).run()

    yield run
    settings.configure(Settings())
    st.cache_resource.clear()


@pytest.fixture
def show(draw: Draw) -> Show:
    """The same; gives the page's text, tags removed."""
    return lambda *args, **options: text_of(draw(*args, **options))
