"""The http_* metrics, as vLLM's FastAPI instrumentation exports them.

Probes and scrapes (/health, /metrics, /server_info) are left out there and here.
"""

from __future__ import annotations

from engine.metrics.cells import Histogram, Summary, Value
from engine.metrics.names import (
    HTTP_DURATION,
    HTTP_DURATION_FINE,
    HTTP_METRICS,
    HTTP_REQUEST_SIZE,
    HTTP_REQUESTS,
    HTTP_RESPONSE_SIZE,
)
from engine.metrics.registry import MetricRegistry

EXCLUDED_HANDLERS = frozenset({"/health", "/metrics", "/server_info"})
UNMATCHED_HANDLER = "none"


class HttpMetrics:
    """One call per finished HTTP request; series are looked up once per label set."""

    def __init__(self, registry: MetricRegistry) -> None:
        registry.declare(HTTP_METRICS)
        self._registry = registry
        fine = registry.labelled(HTTP_DURATION_FINE.name, {})
        assert isinstance(fine, Histogram)
        self._fine = fine

    def finished(
        self,
        *,
        method: str,
        handler: str,
        status: int,
        duration_s: float,
        request_bytes: int,
        response_bytes: int,
    ) -> None:
        """Count one request; sizes are those of the Content-Length headers, 0 without one."""
        if handler in EXCLUDED_HANDLERS:
            return
        group = f"{status // 100}xx"
        by_status = {"handler": handler, "method": method, "status": group}
        requests = self._registry.labelled(HTTP_REQUESTS.name, by_status)
        assert isinstance(requests, Value)
        requests.inc()
        by_handler = {"handler": handler}
        self._summary(HTTP_REQUEST_SIZE.name, by_handler).observe(request_bytes)
        self._summary(HTTP_RESPONSE_SIZE.name, by_handler).observe(response_bytes)
        duration = self._registry.labelled(
            HTTP_DURATION.name, {"handler": handler, "method": method}
        )
        assert isinstance(duration, Histogram)
        duration.observe(duration_s)
        self._fine.observe(duration_s)

    def _summary(self, name: str, labels: dict[str, str]) -> Summary:
        return self._registry.summary(name, labels)
