"""The pages as functions that Streamlit's test runner takes, and what a run shows as text."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape

from streamlit.testing.v1 import AppTest

URL = "http://127.0.0.1:8000"
SLOS = ("ttft_p95<500ms", "output_tps>100")
Draw = Callable[..., AppTest]
Show = Callable[..., str]


def html_of(app: AppTest) -> str:
    assert not app.exception, app.exception
    return " ".join(element.proto.body for element in app.get("html"))


def text_of(app: AppTest) -> str:
    pieces = [unescape(re.sub(r"<[^>]+>", " ", html_of(app)))]
    pieces += [element.label for element in app.expander]
    pieces += [element.value for element in app.code]
    return re.sub(r"\s+", " ", " ".join(pieces))


def overview() -> None:
    from dashboard.views import overview

    overview.page()


def diagnosis() -> None:
    from dashboard.views import diagnosis

    diagnosis.page()


def studies() -> None:
    from dashboard.views import studies

    studies.page()
