"""The routes for those who run the server: health, metrics, identity, models, admin."""

from __future__ import annotations

import os
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.responses import Response

import engine
from engine.errors import EngineDeadError, RequestError
from engine.metrics.registry import CONTENT_TYPE
from engine.serve.intake import read_body
from engine.serve.service import Service


def install(app: FastAPI, service: Service) -> None:
    """Add the operational routes."""

    @app.get("/health")
    async def health() -> Response:
        if not service.engine.healthy:
            reason = service.engine.error
            raise EngineDeadError(f"the engine has stopped: {reason}", status=503)
        return Response(status_code=200)

    @app.get("/metrics")
    async def metrics() -> Response:
        service.engine.before_scrape()
        return Response(service.registry.exposition(), headers={"content-type": CONTENT_TYPE})

    @app.get("/v1/models")
    async def models() -> Response:
        return _json({"object": "list", "data": [_model_card(service)]})

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        service.check_model(name)
        return _json(_model_card(service))

    @app.get("/version")
    async def version() -> Response:
        return _json({"version": engine.__version__, "engine": "slotune"})

    @app.get("/server_info")
    async def server_info() -> Response:
        return _json(_server_info(service))

    @app.get("/admin/config")
    async def read_config() -> Response:
        _require_admin(service)
        return _json({"knobs": service.knobs.describe()})

    @app.post("/admin/config")
    async def change_config(request: Request) -> Response:
        _require_admin(service)
        change = _json_object(await read_body(request))

        def apply() -> dict[str, Any]:
            service.knobs.apply(service.knobs.checked(change))
            return service.knobs.describe()

        return _json({"knobs": await service.engine.call(apply)})

    @app.post("/reset_prefix_cache")
    async def reset_prefix_cache() -> Response:
        _require_admin(service)
        await service.engine.reset_prefix_cache()
        return Response(status_code=200)


def _require_admin(service: Service) -> None:
    if not service.enable_admin:
        raise RequestError(
            "the admin endpoint is off; start the engine with --enable-admin",
            code="admin_disabled",
            status=404,
        )


def _json_object(raw: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise RequestError(
            f"the request body is not valid JSON: {error}", code="invalid_json"
        ) from None
    if not isinstance(value, dict):
        raise RequestError("the request body must be a JSON object", code="invalid_json")
    return value


def _model_card(service: Service) -> dict[str, Any]:
    return {
        "id": service.served_model_name,
        "object": "model",
        "created": int(service.started_unix_s),
        "owned_by": "slotune",
        "root": service.config.model,
        "parent": None,
        "max_model_len": service.max_model_len,
    }


def _server_info(service: Service) -> dict[str, Any]:
    return {
        "engine": "slotune",
        "version": engine.__version__,
        "instance_id": service.instance_id,
        "pid": os.getpid(),
        "started_unix_s": service.started_unix_s,
        "model": service.config.model,
        "served_model_name": service.served_model_name,
        "max_model_len": service.max_model_len,
        "block_size": service.config.block_size,
        "kv_blocks_cap": service.knobs.kv_blocks_cap,
        "enable_prefix_caching": service.config.enable_prefix_caching,
        "admin": service.enable_admin,
        **service.facts,
        "knobs": service.knobs.describe(),
    }


def _json(value: Any) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")
