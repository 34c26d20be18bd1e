"""The words that all other packages use. Imports nothing of llmgw."""

from llmgw.base.document import Document, Value, canonical, digest, digest_of_bytes, document_error
from llmgw.base.errors import (
    MEANING,
    DocumentError,
    ExitCode,
    LlmgwError,
    LockedError,
    Place,
    RefusedError,
    UsageError,
)
from llmgw.base.names import (
    Guid,
    HostName,
    ModelName,
    hosts_of,
    is_host_name,
    natural,
    natural_key,
    near,
    replica_name,
    replica_parts,
)
from llmgw.base.text import count, duration, moment, size, visible

__all__ = [
    "MEANING",
    "Document",
    "DocumentError",
    "ExitCode",
    "Guid",
    "HostName",
    "LlmgwError",
    "LockedError",
    "ModelName",
    "Place",
    "RefusedError",
    "UsageError",
    "Value",
    "canonical",
    "count",
    "digest",
    "digest_of_bytes",
    "document_error",
    "duration",
    "hosts_of",
    "is_host_name",
    "moment",
    "natural",
    "natural_key",
    "near",
    "replica_name",
    "replica_parts",
    "size",
    "visible",
]
