"""What `dashboard serve` was told: one frozen value for the whole process.

The command line sets it before Streamlit starts; pages only read it. Without a command line
(`streamlit run dashboard/app.py`) the defaults hold: no target, the default database.
"""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_DATABASE = "slotune.db"


@dataclass(frozen=True, slots=True)
class Settings:
    """url, urls and prometheus exclude each other; none of them means that nothing live is watched.

    urls: several engines that are watched as the replicas of one target.
    labels narrow what is read; knobs are settings the server does not tell.
    keep_history: what is scraped is kept beside the database.
    """

    url: str | None = None
    prometheus: str | None = None
    database: str = DEFAULT_DATABASE
    slos: tuple[str, ...] = ()
    refresh_s: float = 2.0
    labels: tuple[tuple[str, str], ...] = ()
    knobs: tuple[tuple[str, str], ...] = ()
    keep_history: bool = True
    urls: tuple[str, ...] = ()

    @property
    def watched(self) -> tuple[str, ...]:
        """The engines that are scraped; () with a Prometheus, or without a target."""
        return (self.url,) if self.url else self.urls

    @property
    def target(self) -> str:
        return self.prometheus or ", ".join(self.watched)


_current = Settings()


def current() -> Settings:
    return _current


def configure(settings: Settings) -> None:
    global _current
    _current = settings
