"""The router's own pages on the public port: /health, /ready and the models."""

import json
from typing import TYPE_CHECKING

from llmgw.router.request import Request
from llmgw.serving.catalog import EMPTY, model_listing
from llmgw.serving.faults import fault_value, unknown_model
from llmgw.serving.routes import HEALTH, MODELS, READY, Dialect, path_of

if TYPE_CHECKING:
    from llmgw.router.core import Router

_JSON = b"application/json"


def own_page(router: "Router", request: Request) -> tuple[int, bytes, bytes]:
    """Status, content type and body of /health, /ready, /v1/models and /v1/models/NAME."""
    path = path_of(request.target)
    if path == HEALTH:
        return 200, _JSON, b'{"status":"ok"}'
    if path == READY:
        return _ready(router)
    listing = model_listing(router.catalog, request.caller.models)
    if path == MODELS:
        return 200, _JSON, json.dumps({"object": "list", "data": listing}).encode()
    name = path[len(MODELS) + 1 :].decode("ascii", "replace")
    entry = next((entry for entry in listing if entry["id"] == name), None)
    if entry is None:
        return 404, _JSON, json.dumps(fault_value(unknown_model(name), Dialect.OPENAI, "")).encode()
    return 200, _JSON, json.dumps(entry).encode()


def _ready(router: "Router") -> tuple[int, bytes, bytes]:
    loaded = router.catalog is not EMPTY
    state = (
        "stopping" if router.stopping else "stale" if router.problem and loaded else "ready" if loaded else "empty"
    )
    body = {"status": state, "generation": router.catalog.generation, "problem": router.problem}
    return 200 if state in ("ready", "stale") else 503, _JSON, json.dumps(body).encode()
