"""What a server says of itself beside its metrics: knobs with their bounds, device, cache settings.

Only slotune's engine has the route. Without it the tree says which setting it lacks.
"""

from __future__ import annotations

from typing import Any

from tuner.endpoint import base_url
from tuner.errors import UserError
from tuner.targets import TargetError, http

TIMEOUT_S = 3.0


def server_info(url: str) -> dict[str, Any]:
    """The server's /server_info; {} where it has none, or answers otherwise or not at all."""
    try:
        info = http.call(f"{base_url(url)}/server_info", timeout_s=TIMEOUT_S)
    except (http.HttpRefusalError, TargetError, UserError):
        return {}
    return info if isinstance(info, dict) else {}
