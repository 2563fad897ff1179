"""The whole loop with the real model: serve, tune for a minute, find the study in the database
and on the dashboard's page in a real browser."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from storage import open_database
from tests.servers import running

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(400)]

SLO = "ttft_p95<2s"


def tune(engine_url: str, database: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable, "-m", "tuner", "optimize", "--url", engine_url, "--slo", SLO,
            "--workload", "prompt=64,output=16,concurrency=8", "--budget", "60s",
            "--database", str(database), "--study", "end-to-end", "--json",
        ],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip


def test_serve_tune_and_see_the_study(tmp_path: Path) -> None:
    database = tmp_path / "slotune.db"
    with running(
        "engine", "serve", "--port", "0", "--enable-admin", log=tmp_path / "engine.log"
    ) as engine:
        done = tune(engine.url, database)
        assert done.returncode in (0, 1), done.stderr[-2000:]
        result = json.loads(done.stdout)
        assert result["baseline"]

        stored = open_database(str(database), read_only=True)
        study = stored.get_study("end-to-end")
        assert study is not None
        assert study.state == "done"
        measurements = stored.list_measurements(study_id=study.id)
        stages = {m.stage for m in measurements}
        assert "baseline" in stages
        assert len([m for m in measurements if m.stage == "baseline"]) >= 2
        records = stored.load_records(measurements[0].id)
        assert len(records["sent_s"]) > 0
        stored.close()

        with running(
            "dashboard", "serve", "--port", "0", "--url", engine.url,
            "--database", str(database), "--slo", SLO, log=tmp_path / "dashboard.log",
        ) as dashboard:  # fmt: skip
            text = browse(f"{dashboard.url}/studies", wait_for="end-to-end", profile=tmp_path)
            assert "end-to-end" in text
            assert "ttft" in text.lower()


def browse(url: str, wait_for: str, profile: Path) -> str:
    """The page's text in headless Chromium, once `wait_for` shows."""
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed: the page was not looked at")
    with sync_api.sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(profile / "chromium"),
            executable_path=chromium,
            headless=True,
            args=["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        try:
            page = context.new_page()
            page.goto(url)
            page.get_by_text(wait_for).first.wait_for(timeout=60_000)
            return str(page.inner_text("body"))
        finally:
            context.close()
