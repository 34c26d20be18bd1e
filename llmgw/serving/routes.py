"""The paths that the router answers: an exact list, compared with the bytes that came, nothing decoded first."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Dialect(StrEnum):
    """Whose manners an answer has: how it streams, how it ends, what an error looks like."""

    OPENAI = "openai"
    RESPONSES = "responses"
    ANTHROPIC = "anthropic"


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """One path that is passed to engines. `operation` names it in metrics, logs and the usage ledger.

    Compared by identity, since there is one of each.

    `usage_option`: the engine tells a stream's usage only where stream_options.include_usage asks for it.
    """

    path: str
    operation: str
    dialect: Dialect = Dialect.OPENAI
    usage_option: bool = False
    multipart: bool = False
    engine_path: str = ""

    def path_at(self, engine: str) -> str:
        """Where an engine of that kind answers it; vLLM and llama.cpp have tokenize outside /v1."""
        return self.engine_path if self.engine_path and engine != "sglang" else self.path


_ALL = (
    Route("/v1/chat/completions", "chat", usage_option=True),
    Route("/v1/completions", "completions", usage_option=True),
    Route("/v1/responses", "responses", Dialect.RESPONSES),
    Route("/v1/messages", "messages", Dialect.ANTHROPIC),
    Route("/v1/embeddings", "embeddings"),
    Route("/v1/rerank", "rerank"),
    Route("/v1/score", "score"),
    Route("/v1/tokenize", "tokenize", engine_path="/tokenize"),
    Route("/v1/audio/transcriptions", "transcriptions", multipart=True),
)
ROUTES: Mapping[bytes, Route] = {route.path.encode(): route for route in _ALL}
MODELS = b"/v1/models"
HEALTH = b"/health"
READY = b"/ready"
OWN = (MODELS, HEALTH, READY)
"""What the router answers itself, by GET or HEAD."""


def path_of(target: bytes) -> bytes:
    """The request target up to its query. `http://…` and `*` stay what they are and match no route."""
    cut = target.find(b"?")
    return target if cut < 0 else target[:cut]
