"""Reports as one self-contained web page: no network, no script, light and dark."""

from tuner.report.html.compare_page import render_compare_html
from tuner.report.html.run_page import render_run_html

__all__ = ["render_compare_html", "render_run_html"]
