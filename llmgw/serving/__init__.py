"""Decisions about requests, and the published documents that they are made by."""

from llmgw.serving.endpoints import (
    ClientKey,
    Endpoint,
    EndpointsFile,
    EndpointsStatus,
    EngineKeys,
    FleetNode,
    KeysFile,
    NodesFile,
    ServedModel,
)

__all__ = [
    "ClientKey",
    "Endpoint",
    "EndpointsFile",
    "EndpointsStatus",
    "EngineKeys",
    "FleetNode",
    "KeysFile",
    "NodesFile",
    "ServedModel",
]
