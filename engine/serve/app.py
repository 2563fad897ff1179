"""Puts the FastAPI application together: routes, refusals, API key, http_* metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

import engine
from engine.serve import errors, operations, routes
from engine.serve.middleware import ApiKeyMiddleware, HttpMetricsMiddleware
from engine.serve.service import Service


def create_app(service: Service) -> FastAPI:
    """The ASGI application; its lifespan starts and stops the engine thread."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.engine.start()
        try:
            yield
        finally:
            service.engine.stop()

    app = FastAPI(title="slotune engine", version=engine.__version__, lifespan=lifespan)
    operations.install(app, service)
    routes.install(app, service)
    errors.install(app)
    if service.api_key is not None:
        app.add_middleware(ApiKeyMiddleware, api_key=service.api_key)
    app.add_middleware(HttpMetricsMiddleware, metrics=service.http_metrics)
    return app
