"""How each engine is started. Adding one is a module here and a line in the table."""

from typing import cast

from llmgw.engines import llama_cpp, sglang, vllm
from llmgw.engines.environment import reserved_in
from llmgw.engines.launch import ENGINE_KEY, EngineModule, Launch, LoadProbe, Peer, Shard
from llmgw.engines.network import network_environment
from llmgw.site import Engine, Model, Profile

ENGINES: dict[Engine, EngineModule] = {
    Engine.LLAMA_CPP: cast("EngineModule", llama_cpp),
    Engine.SGLANG: cast("EngineModule", sglang),
    Engine.VLLM: cast("EngineModule", vllm),
}


def complaints(profile: Profile) -> list[str]:
    """What stands against starting the profile at all, in words; empty where nothing does."""
    return [
        f"the argument {name} is llmgw's to give"
        for name in reserved_in(profile.args, ENGINES[profile.engine].RESERVED)
    ]


def served_names(name: str, model: Model, profile: str) -> tuple[str, ...]:  # noqa: ARG001
    """The names that an engine answers to: the model's alone. Routers write it in place of an alias or a profile."""
    return (name,)


__all__ = [
    "ENGINES",
    "ENGINE_KEY",
    "EngineModule",
    "Launch",
    "LoadProbe",
    "Peer",
    "Shard",
    "complaints",
    "network_environment",
    "served_names",
]
