"""What a request can be refused for by its head alone, before its body is waited for."""

from typing import Any

from llmgw.router.config import Limits
from llmgw.router.request import Request
from llmgw.serving.faults import (
    ENCODED,
    MALFORMED,
    NOT_FORM,
    NOT_FOUND,
    NOT_JSON,
    TOO_LARGE,
    Fault,
    method_fault,
)
from llmgw.serving.headers import is_json
from llmgw.serving.routes import MODELS, OWN, ROUTES, Route, path_of

_UNUSUAL = frozenset((b"connection", b"transfer-encoding", b"upgrade", b"expect"))
_MODEL_PAGE = MODELS + b"/"


def check_head(parser: Any, request: Request, limits: Limits) -> Fault | None:
    """Why the request is refused, or None; sets its route and how its connection goes on.

    `parser` is llhttp by httptools, which has refused already what is not HTTP at all: two lengths, a length
    beside chunks, folded lines, bare line feeds.
    """
    headers, target = request.headers, request.target
    if parser.get_http_version() != "1.1":
        if parser.get_http_version() != "1.0" or b"transfer-encoding" in headers:
            return MALFORMED
        request.http10, request.keeps = True, False
    elif b"host" not in headers:
        return MALFORMED
    if not _UNUSUAL.isdisjoint(headers) and _is_odd(parser, request):
        return MALFORMED
    route = ROUTES.get(target) or ROUTES.get(path_of(target))
    return _check_own(request) if route is None else _check_routed(request, route, limits)


def _is_odd(parser: Any, request: Request) -> bool:
    """Headers about the connection and the body's form, which most requests do not have."""
    headers = request.headers
    if b"connection" in headers and not parser.should_keep_alive():
        request.keeps = False
    if headers.get(b"transfer-encoding", b"chunked").lower() != b"chunked" or b"upgrade" in headers:
        return True
    return headers.get(b"expect", b"100-continue").lower() != b"100-continue"


def _check_own(request: Request) -> Fault | None:
    """A request for one of the router's own pages, or for nothing that there is."""
    path = path_of(request.target)
    if path not in OWN and not path.startswith(_MODEL_PAGE):
        return NOT_FOUND if request.target.startswith(b"/") else MALFORMED
    if request.method not in (b"GET", b"HEAD"):
        return method_fault("GET")
    request.is_open = not path.startswith(MODELS)
    return None


def _check_routed(request: Request, route: Route, limits: Limits) -> Fault | None:
    """A request for an engine."""
    request.route = route
    if request.method != b"POST":
        return method_fault("POST")
    headers = request.headers
    kind = headers.get(b"content-type")
    if route.multipart:
        if kind is None or not kind[:20].lower().startswith(b"multipart/form-data;"):
            return NOT_FORM
    elif kind != b"application/json" and not is_json(kind):
        return NOT_JSON
    if b"content-encoding" in headers and headers[b"content-encoding"] != b"identity":
        return ENCODED
    length = headers.get(b"content-length")
    if length is None:
        request.unsized = True
    elif int(length) > (limits.form if route.multipart else limits.body):
        return TOO_LARGE
    return None
