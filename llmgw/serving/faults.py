"""What the router itself says when a request cannot be served, in the shape that clients' libraries know."""

import json
from dataclasses import dataclass
from typing import Any

from llmgw.base import visible
from llmgw.serving.routes import Dialect


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a request was not served.

    `kind` is OpenAI's error type, `code` is ours and never changes its meaning.
    """

    status: int
    code: str
    message: str
    kind: str = "invalid_request_error"
    retry_after: int | None = None
    allow: str = ""


# Anthropic's names by status: "Errors" in the Claude API documentation.
_ANTHROPIC = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_SHOWN = 200


def shown(text: str) -> str:
    """Text of a client's, fit for a message: controls spelled out, 200 characters at most."""
    return visible(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def fault_value(fault: Fault, dialect: Dialect, request_id: str) -> dict[str, Any]:
    """The error as OpenAI's and Anthropic's APIs give it."""
    if dialect is Dialect.ANTHROPIC:
        kind = _ANTHROPIC.get(fault.status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": fault.message}, "request_id": request_id}
    error = {"message": fault.message, "type": fault.kind, "param": None, "code": fault.code}
    return {"error": {**error, "request_id": request_id}}


def fault_body(fault: Fault, dialect: Dialect, request_id: str) -> bytes:
    """The JSON that answers a request."""
    return json.dumps(fault_value(fault, dialect, request_id)).encode()


def fault_event(fault: Fault, dialect: Dialect, request_id: str) -> bytes:
    """The event that ends a stream which had begun: no `[DONE]` and no `message_stop` may follow it."""
    if dialect is Dialect.ANTHROPIC:
        return b"event: error\ndata: " + fault_body(fault, dialect, request_id) + b"\n\n"
    if dialect is Dialect.RESPONSES:
        value = {"type": "error", "code": fault.code, "message": fault.message, "param": None}
        return b"event: error\ndata: " + json.dumps(value).encode() + b"\n\n"
    return b"data: " + fault_body(fault, dialect, request_id) + b"\n\n"


BAD_JSON = Fault(400, "invalid_json", "the body is not a JSON object")
NO_MODEL = Fault(400, "model_missing", "the body has no model, or it is not a text")
NO_KEY = Fault(401, "missing_api_key", "this needs an API key: Authorization: Bearer …", "authentication_error")
BAD_KEY = Fault(401, "invalid_api_key", "the API key is not valid", "authentication_error")
NOT_FOUND = Fault(404, "not_found", "there is no such path here")
TOO_LARGE = Fault(413, "request_too_large", "the body is longer than this router takes")
ENCODED = Fault(415, "unsupported_encoding", "bodies with a Content-Encoding are not taken")
NOT_JSON = Fault(415, "unsupported_media_type", "this path takes application/json")
NOT_FORM = Fault(415, "unsupported_media_type", "this path takes multipart/form-data")
SLOW = Fault(408, "request_timeout", "the request did not arrive in time")
MALFORMED = Fault(400, "malformed_request", "this is not a well-formed HTTP/1.1 request")
HEAD_TOO_LARGE = Fault(431, "headers_too_large", "the request's headers are too many or too long")
STOPPING = Fault(503, "router_stopping", "the router is stopping", "server_error", retry_after=1)
CROWDED = Fault(
    429, "too_many_connections", "too many connections from this address", "rate_limit_error", retry_after=1
)
ENGINE_GONE = Fault(
    502, "engine_disconnected", "the engine closed the connection before it answered", "server_error"
)
ENGINE_CUT = Fault(502, "engine_disconnected", "the engine stopped before the answer was complete", "server_error")
ENGINE_BAD = Fault(502, "engine_protocol_error", "the engine's answer is not valid HTTP", "server_error")
ENGINE_WITHDRAWN = Fault(
    503,
    "engine_withdrawn",
    "the engine was withdrawn before the answer was complete",
    "server_error",
    retry_after=1,
)
ENGINE_UNREACHABLE = Fault(
    503, "engine_unreachable", "no engine of this model could be reached", "server_error", retry_after=2
)
ENGINE_SILENT = Fault(504, "engine_timeout", "the engine did not answer in time", "server_error")
ENGINE_STALLED = Fault(504, "engine_stalled", "the engine stopped sending", "server_error")
QUEUE_FULL = Fault(
    429, "queue_full", "too many requests are waiting for this model", "rate_limit_error", retry_after=2
)
QUEUE_SLOW = Fault(
    503, "queue_timeout", "no replica of this model became free in time", "server_error", retry_after=5
)
BROKEN = Fault(500, "internal_error", "the router failed to handle this request", "server_error")


def method_fault(allow: str) -> Fault:
    return Fault(405, "method_not_allowed", f"this path takes {allow}", allow=allow)


def unknown_model(name: str) -> Fault:
    """OpenAI's answer to a model that nobody serves."""
    return Fault(
        404, "model_not_found", f"The model `{shown(name)}` does not exist or you do not have access to it."
    )


def unready_model(name: str, state: str) -> Fault:
    """A model that is known and has no replica to answer now."""
    wait = {"starting": 15, "ready": 2}.get(state, 60)
    return Fault(
        503, f"model_{state}" if state != "ready" else "model_unavailable",
        f"no replica of `{shown(name)}` is ready; the model is {state}", "server_error", retry_after=wait,
    )  # fmt: skip
