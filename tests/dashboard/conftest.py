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
from tests.dashboard.pages import SLOS, URL, Show, text_of


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Show]:
    """Run a page against a source and a database; gives its text, tags removed."""

    def run(
        page: Callable[[], None], source: MetricSource | None = None, database: str = "none.db"
    ) -> str:
        st.cache_resource.clear()
        monkeypatch.setattr(connect, "open_source", lambda **_: source)
        settings.configure(
            Settings(
                url=URL if source is not None else None,
                database=str(tmp_path / database),
                slos=SLOS,
            )
        )
        return text_of(AppTest.from_function(page, default_timeout=30).run())

    yield run
    settings.configure(Settings())
    st.cache_resource.clear()
