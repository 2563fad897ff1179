"""The compose file and what it mounts are valid, pinned, health-checked and loopback-only."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def test_the_stack_is_whole() -> None:
    assert set(SERVICES) == {"engine", "prometheus", "postgres", "dashboard", "tuner"}


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned_to_a_version(name: str) -> None:
    tag = SERVICES[name]["image"].rpartition(":")[2]
    assert re.search(r"\d+\.\d+", tag), f"{name}: {SERVICES[name]['image']}"


@pytest.mark.parametrize("name", SERVICES)
def test_services_have_health_checks(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] in {"CMD", "CMD-SHELL"}
    assert {"interval", "timeout", "retries"} <= set(check)


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_published_on_loopback_only(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        assert port.startswith("127.0.0.1:"), port


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_refers_to_exists(name: str) -> None:
    service = SERVICES[name]
    if build := service.get("build"):
        assert (ROOT / build["dockerfile"]).is_file()
    for other in service.get("depends_on", {}):
        assert other in SERVICES
    for volume in service.get("volumes", []):
        source = volume.split(":")[0]
        assert source in COMPOSE["volumes"] or (ROOT / source).exists(), volume


@pytest.mark.parametrize("name", ["dashboard", "tuner"])
def test_the_databases_password_stands_in_no_command(name: str) -> None:
    """It would be shown with every study, and a password with an @ or / would break the URL."""
    words = " ".join(str(word) for word in SERVICES[name]["command"])
    assert "PASSWORD" not in words
    assert "postgresql+psycopg://slotune@postgres:5432/slotune" in words
    asked = SERVICES["postgres"]["environment"]["POSTGRES_PASSWORD"]
    assert SERVICES[name]["environment"]["PGPASSWORD"] == asked


@pytest.mark.parametrize("name", ["engine", "dashboard", "tuner"])
def test_commands_are_accepted_by_our_own_parsers(name: str) -> None:
    service = SERVICES[name]
    command = [str(word) for word in service["command"]]
    program = name
    help_text = subprocess.run(
        [sys.executable, "-m", program, command[0], "--help"],
        capture_output=True, text=True, cwd=ROOT,
    ).stdout  # fmt: skip
    flags = {word.split("=")[0] for word in command if word.startswith("--")}
    missing = {flag for flag in flags if flag not in help_text}
    assert missing == set(), f"{program} {command[0]} does not know {missing}"


@pytest.mark.parametrize("name", ["engine.Dockerfile", "app.Dockerfile"])
def test_dockerfiles_copy_only_what_the_context_lets_through(name: str) -> None:
    allowed = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().split()
        if line.startswith("!")
    }
    text = (ROOT / "deploy" / name).read_text()
    sources = {
        word.removeprefix("./")
        for line in text.splitlines()
        if line.startswith("COPY ")
        for word in line.split()[1:-1]
    }
    assert sources <= allowed
    assert re.search(r"^FROM \S+:\d+\.\d+", text, re.M)
    assert re.search(r"^USER (?!root)", text, re.M)


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool (Debian: prometheus) is absent")
def test_prometheus_accepts_its_configuration() -> None:
    done = subprocess.run(
        ["promtool", "check", "config", str(ROOT / "deploy/prometheus/prometheus.yml")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_scrapes_the_engine_service_port() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    targets = [
        t for job in config["scrape_configs"] for s in job["static_configs"] for t in s["targets"]
    ]
    assert targets == ["engine:8000"]
    command = SERVICES["engine"]["command"]
    assert command[command.index("--port") + 1] == "8000"
