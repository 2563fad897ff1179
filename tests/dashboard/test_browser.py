"""The real dashboard in a real browser: pages draw, tick, and hold in light and dark."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard import seed
from tests.dashboard.exposition_server import serving
from tests.servers import Program, running

CHROMIUM = "/usr/bin/chromium"
FIXTURES = Path(__file__).parents[2] / "fixtures"

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which(CHROMIUM) is None, reason="chromium is not installed"),
]


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """Serving a recorded vLLM that starts idle and is starved of KV, and a finished study."""
    folder = tmp_path_factory.mktemp("dashboard")
    seed.study(folder / "slotune.db")
    idle, starved = (
        (FIXTURES / f"vllm-0.32-cpu-{name}.txt").read_text() for name in ("idle", "kv-starved")
    )
    with (
        serving([idle, idle, starved]) as url,
        running(
            "dashboard", "serve", "--port", "0", "--url", url, "--refresh", "1",
            "--database", str(folder / "slotune.db"), "--slo", "ttft_p95<500ms",
            log=folder / "dashboard.log",
        ) as program,
    ):  # fmt: skip
        yield program


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(tmp_path_factory.mktemp("chromium")),
            executable_path=CHROMIUM,
            headless=True,
            args=["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"],
            viewport={"width": 1280, "height": 900},
        )
        yield context
        context.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that fails the test when its script faults."""
    opened = browser.new_page()
    faults: list[str] = []
    opened.on("pageerror", lambda fault: faults.append(str(fault)))
    yield opened
    opened.close()
    assert faults == []


def wait_for(page: Any, text: str) -> None:
    page.get_by_text(text).first.wait_for(timeout=45_000)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_overview_draws_figures_and_charts(dashboard: Program, page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(dashboard.url)
    wait_for(page, "KV cache in use")
    wait_for(page, "Token rate")
    page.locator("[data-testid=stVegaLiteChart] canvas, .vega-embed svg").first.wait_for()
    text = page.inner_text("body")
    assert "vLLM" in text
    assert "smollm2" in text
    assert page.get_by_text("Traceback").count() == 0
    back = page.evaluate("getComputedStyle(document.querySelector('.tile')).backgroundColor")
    lightness = sum(int(part) for part in back.removeprefix("rgb(").rstrip(")").split(","))
    assert (lightness > 600) == (scheme == "light"), back


def test_nothing_is_wider_than_the_window(dashboard: Program, page: Any) -> None:
    for path, word in (("", "Token rate"), ("diagnosis", "The tree"), ("studies", "History")):
        page.goto(f"{dashboard.url}/{path}")
        wait_for(page, word)
        overflow = page.evaluate(
            "() => { const m = document.querySelector('[data-testid=stMain]');"
            " return m.scrollWidth - m.clientWidth; }"
        )
        assert overflow <= 0, path


def test_diagnosis_keeps_an_open_node_open_while_it_ticks(dashboard: Program, page: Any) -> None:
    """Also over the tick at which the first cause appears above the tree."""
    page.goto(f"{dashboard.url}/diagnosis")
    wait_for(page, "Uneven replicas")
    page.get_by_text("Sequence-cap-bound").first.click()
    wait_for(page, "--set max_num_seqs=N")
    before = page.locator(".section span").first.inner_text()
    page.wait_for_function(
        "before => document.querySelector('.section span').innerText !== before",
        arg=before,
        timeout=45_000,
    )
    wait_for(page, "num_gpu_blocks_override")
    page.wait_for_timeout(1000)  # a remount would close it a moment later
    assert page.get_by_text("--set max_num_seqs=N").first.is_visible()


def test_studies_shows_history_and_best(dashboard: Program, page: Any) -> None:
    page.goto(f"{dashboard.url}/studies")
    wait_for(page, "Baseline and best")
    page.locator("[data-testid=stVegaLiteChart]").first.wait_for()
    wait_for(page, seed.OUT_OF_MEMORY)
    assert "optimize-done" in page.inner_text("body")
    page.get_by_text("All 19 measurements").click()
    wait_for(page, "baseline")


def test_sigterm_ends_the_server_at_once(tmp_path: Path) -> None:
    with running(
        "dashboard", "serve", "--port", "0", "--database", str(tmp_path / "none.db"),
        log=tmp_path / "dashboard.log",
    ) as program:  # fmt: skip
        assert "target=none" in program.output()
        os.kill(program.process.pid, signal.SIGTERM)
        assert program.process.wait(20) in (0, -signal.SIGTERM)
        assert "Traceback" not in program.output()


def test_studies_follow_a_database_that_comes_grows_and_goes(page: Any, tmp_path: Path) -> None:
    """Nobody reloads the page."""
    path = tmp_path / "later.db"
    with running(
        "dashboard", "serve", "--port", "0", "--database", str(path), log=tmp_path / "d.log"
    ) as program:
        page.goto(f"{program.url}/studies")
        wait_for(page, "No database yet")
        seed.study(path, state="running", trials=3)
        wait_for(page, "best so far")
        assert page.get_by_text("optimize-done").count() == 0
        seed.study(path)
        wait_for(page, "A better configuration is confirmed")
        for file in tmp_path.glob("later.db*"):
            file.unlink()
        wait_for(page, "No database yet")
        assert page.get_by_text("Traceback").count() == 0


def test_figures_return_with_a_target_that_went_away(page: Any, tmp_path: Path) -> None:
    idle = (FIXTURES / "vllm-0.32-cpu-idle.txt").read_text()
    with contextlib.ExitStack() as first_life:
        url = first_life.enter_context(serving([idle]))
        with running(
            "dashboard", "serve", "--port", "0", "--url", url, "--refresh", "0.5",
            "--database", str(tmp_path / "no.db"), log=tmp_path / "d.log",
        ) as program:  # fmt: skip
            page.goto(program.url)
            page.locator(".pill.good", has_text="up").wait_for(timeout=45_000)
            first_life.close()
            wait_for(page, "The target does not answer")
            with serving([idle], port=int(url.rpartition(":")[2])):
                page.locator(".pill.good", has_text="up").wait_for(timeout=45_000)
                assert page.get_by_text("The target does not answer").count() == 0


def test_the_first_page_has_an_address_of_its_own(dashboard: Program, page: Any) -> None:
    page.goto(f"{dashboard.url}/overview")
    wait_for(page, "Requests finished")
    assert page.get_by_text("Page not found").count() == 0
