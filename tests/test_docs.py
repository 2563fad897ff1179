"""The documents name what is there: every link leads somewhere, every room is described."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", document.read_text())
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (document.parent / target).exists()] == []


def test_every_room_of_the_tuner_is_described() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    rooms = [path.parent.name for path in (ROOT / "tuner").glob("*/__init__.py")]
    assert len(rooms) > 10
    assert [name for name in rooms if f"`tuner/{name}/`" not in text] == []
