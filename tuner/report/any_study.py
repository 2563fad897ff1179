"""The report of a stored study of whatever command made it: as text, as JSON, as a page."""

from __future__ import annotations

from typing import Any

from tuner.exchange.bundle import StoredStudy
from tuner.report.recorded import kind_of
from tuner.report.study import StudyReport, study_report
from tuner.report.study_text import study_report_dict, study_report_lines
from tuner.report.sweep_study import (
    SweepReport,
    sweep_report,
    sweep_report_dict,
    sweep_report_lines,
)
from tuner.report.verify_study import (
    VerifyReport,
    verify_report,
    verify_report_dict,
    verify_report_lines,
)

Report = StudyReport | SweepReport | VerifyReport


def report_of(stored: StoredStudy) -> Report:
    """Raises UserError, StorageError."""
    kind = kind_of(stored)
    if kind == "sweep":
        return sweep_report(stored)
    return verify_report(stored) if kind == "verification" else study_report(stored)


def lines_of(report: Report) -> list[str]:
    if isinstance(report, SweepReport):
        return sweep_report_lines(report)
    if isinstance(report, VerifyReport):
        return verify_report_lines(report)
    return study_report_lines(report)


def dict_of(report: Report) -> dict[str, Any]:
    """JSON-able."""
    if isinstance(report, SweepReport):
        return sweep_report_dict(report)
    if isinstance(report, VerifyReport):
        return verify_report_dict(report)
    return study_report_dict(report)


def page_of(report: Report) -> str:
    from tuner.report.html.study_page import render_study_html
    from tuner.report.html.sweep_page import render_sweep_html
    from tuner.report.html.verify_page import render_verify_html

    if isinstance(report, SweepReport):
        return render_sweep_html(report)
    if isinstance(report, VerifyReport):
        return render_verify_html(report)
    return render_study_html(report)
