"""A client's request as it is gathered, and the body that an engine gets of it."""

from llmgw.serving.body import Ask, for_engine, repeated_model
from llmgw.serving.faults import Fault
from llmgw.serving.keys import NOBODY
from llmgw.serving.multipart import FormModel, form_model, with_form_model
from llmgw.serving.routes import Route


class Request:
    """A client's request: its head checked, its body gathered as it comes."""

    __slots__ = (
        "body", "caller", "chunks", "headers", "http10", "is_open", "keeps", "method", "route", "target", "unsized",
    )  # fmt: skip

    def __init__(self, method: bytes, target: bytes, headers: dict[bytes, bytes]) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.chunks: list[bytes] = []
        self.body = b""
        self.caller = NOBODY
        self.route: Route | None = None
        self.http10 = False
        self.keeps = True
        self.unsized = False
        self.is_open = False

    @property
    def received(self) -> int:
        """Bytes of the body that are here."""
        return sum(map(len, self.chunks))


def read_form(request: Request) -> Ask | Fault:
    """What a multipart request asks for."""
    form = form_model(request.headers[b"content-type"], request.body)
    return Ask(form.model) if isinstance(form, FormModel) else form


def may_use(request: Request, route: Route, ask: Ask, model: str) -> bool:
    """Whether the caller's key allows the model, by the name asked for or the engines' own.

    A body that names two models could get past the list: it never may.
    """
    models = request.caller.models
    if not route.multipart and repeated_model(request.body, ask.model):
        return False
    return models is None or ask.model in models or model in models


def body_for(request: Request, route: Route, *, model: str, usage: bool) -> bytes | Fault:
    """The body as the engine has to get it; `model` and `usage` as llmgw.serving.body.for_engine takes them."""
    body = request.body
    if not route.multipart:
        return for_engine(body, model=model, usage=usage)
    form = form_model(request.headers[b"content-type"], body)
    return with_form_model(body, form, model) if isinstance(form, FormModel) else form
