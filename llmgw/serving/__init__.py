"""Decisions about requests, and the published documents that they are made by."""

from typing import TYPE_CHECKING

from llmgw.base.later import words_of

if TYPE_CHECKING:
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
else:
    __getattr__ = words_of(
        __name__,
        {
            "endpoints": (
                "ClientKey Endpoint EndpointsFile EndpointsStatus EngineKeys FleetNode KeysFile NodesFile "
                "ServedModel"
            ),
        },
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
