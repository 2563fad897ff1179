"""The Streamlit entry: page frame and navigation. Pages live in dashboard.views."""

from __future__ import annotations

import streamlit as st

from dashboard.theme import STYLE_SHEET
from dashboard.views import diagnosis, overview, studies

st.set_page_config(page_title="slotune", layout="wide", initial_sidebar_state="collapsed")
st.html(STYLE_SHEET)
# The default page has no path of its own: the last one answers under its name.
st.navigation(
    [
        st.Page(overview.page, title="Overview", default=True),
        st.Page(diagnosis.page, title="Diagnosis", url_path="diagnosis"),
        st.Page(studies.page, title="Studies", url_path="studies"),
        st.Page(overview.page, title="Overview", url_path="overview", visibility="hidden"),
    ],
    position="top",
).run()
