"""The published documents: what a router needs and nothing else (DESIGN: endpoints.json, endpoints.status)."""

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from llmgw.base import Document, HostName, Value

Url = Annotated[str, Field(pattern=r"^https?://[A-Za-z0-9.\[\]:_-]+$", max_length=300)]


class ServedModel(Value):
    """A model of the catalogue, running or not."""

    name: str
    aliases: tuple[str, ...] = ()
    state: Literal["ready", "starting", "stopped", "failed"]
    default_profile: str


class Endpoint(Value):
    """One replica that was seen ready. The URL is what it is known by; the id is what it is called."""

    id: str
    model: str
    profile: str
    url: Url
    state: Literal["ready", "draining"]
    weight: int = Field(1, ge=1, le=1000)
    node: HostName
    spec: str
    max_in_flight: int | None = Field(None, ge=1)
    engine: str = ""


class EndpointsFile(Document):
    """endpoints.json. The generation only grows; one writer, the holder of the lock."""

    format: Literal["llmgw-endpoints/1"] = "llmgw-endpoints/1"
    generation: int = Field(ge=0)
    written: datetime
    models: tuple[ServedModel, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()

    @model_validator(mode="after")
    def _names_are_single(self) -> Self:
        for kind, names in (
            ("model", [word for model in self.models for word in (model.name, *model.aliases)]),
            ("endpoint id", [endpoint.id for endpoint in self.endpoints]),
            ("endpoint url", [endpoint.url for endpoint in self.endpoints]),
        ):
            if len(set(names)) != len(names):
                double = next(name for name in names if names.count(name) > 1)
                raise ValueError(f"the {kind} {double!r} stands twice")
        return self


class EndpointsStatus(Document):
    """endpoints.status: what one router has loaded, and the requests that it has under way by endpoint id."""

    format: Literal["llmgw-endpoints-status/1"] = "llmgw-endpoints-status/1"
    router: str
    generation: int
    loaded_at: datetime
    written_at: datetime
    in_flight: dict[str, int] = {}


class EngineKeys(Document):
    """engine-keys.json, mode 0600: the engines' own keys by endpoint id. The one secret on a router host."""

    format: Literal["llmgw-engine-keys/1"] = "llmgw-engine-keys/1"
    keys: dict[str, str] = {}


class ClientKey(Value):
    """A client's key: its digest, never itself. `digest` is the SHA-256 of the whole key, 64 hex digits."""

    id: str
    digest: str = Field(pattern=r"^[0-9a-f]{64}$")
    prefix: str = Field("", description="the key's first characters, to tell keys apart")
    tenant: str
    expires: datetime | None = None
    models: tuple[str, ...] | None = Field(None, description="models allowed; None: all")
    max_in_flight: int | None = Field(None, ge=1)
    requests_per_minute: int | None = Field(None, ge=1)
    tokens_per_minute: int | None = Field(None, ge=1)


class KeysFile(Document):
    """keys.json: the clients' keys. `required: false` lets requests without a key in, as tenant `anonymous`."""

    format: Literal["llmgw-keys/1"] = "llmgw-keys/1"
    required: bool = True
    keys: tuple[ClientKey, ...] = ()


class FleetNode(Value):
    """A node as dashboards show it."""

    name: HostName
    state: Literal["ok", "cordoned", "draining", "unreachable", "lost"]
    gpus: int
    gpus_used: int
    replicas: tuple[str, ...] = ()
    leaf: str = ""
    seen_at: datetime | None = None


class NodesFile(Document):
    """nodes.json."""

    format: Literal["llmgw-nodes/1"] = "llmgw-nodes/1"
    written: datetime
    nodes: tuple[FleetNode, ...] = ()
