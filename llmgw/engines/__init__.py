"""How each engine is started. Adding one is a module here and a line in its table."""

from llmgw.engines.launch import ENGINE_KEY, EngineModule, Launch, LoadProbe, Peer, Shard

__all__ = ["ENGINE_KEY", "EngineModule", "Launch", "LoadProbe", "Peer", "Shard"]
