"""Colours, and the flags that make Streamlit ours without touching the user's configuration.

One palette for HTML (style.css, through `light-dark()`), charts and Streamlit's own widgets.
"""

from __future__ import annotations

from pathlib import Path

STYLE_SHEET = Path(__file__).with_name("style.css")

# Distinguishable in both schemes and for the common forms of colour blindness (blue, orange,
# teal, violet); red and green are kept for verdicts.
SERIES = ("#3b82c4", "#d98324", "#2a9d8f", "#8a6fc9", "#c05a7a", "#7a8793")
GOOD, WARN, BAD, NEUTRAL = "#2f9e5b", "#d08a1d", "#d1453b", "#7a8793"

_LIGHT = {
    "primaryColor": "#2f6fae",
    "backgroundColor": "#f6f7f9",
    "secondaryBackgroundColor": "#ffffff",
    "textColor": "#1b222c",
    "borderColor": "#d9dee5",
    "linkColor": "#2f6fae",
    "grayTextColor": "#5c6672",
    "grayBackgroundColor": "#eceff2",
}
_DARK = {
    "primaryColor": "#5b9bd8",
    "backgroundColor": "#12161c",
    "secondaryBackgroundColor": "#1a2028",
    "textColor": "#dde3ea",
    "borderColor": "#2b333e",
    "linkColor": "#7ab2e8",
    "grayTextColor": "#93a0af",
    "grayBackgroundColor": "#262e38",
}


def server_flags(host: str, port: int) -> list[str]:
    """Command-line flags of `streamlit run`: they win over any config.toml the user has."""
    options = {
        "server.address": host,
        "server.port": str(port),
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "server.runOnSave": "false",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        "logger.hideWelcomeMessage": "true",
        "theme.baseRadius": "4px",
        "theme.baseFontSize": "14",
        "theme.showWidgetBorder": "true",
    }
    options |= {f"theme.light.{name}": value for name, value in _LIGHT.items()}
    options |= {f"theme.dark.{name}": value for name, value in _DARK.items()}
    return [f"--{name}={value}" for name, value in options.items()]
