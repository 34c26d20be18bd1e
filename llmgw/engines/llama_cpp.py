"""llama.cpp's llama-server; over several nodes, rank 0 serves and uses the others through rpc-server.

Source: llama.cpp tools/server/README.md and tools/rpc/README.md (b10434). The RPC server has no access control
of its own: it listens on the engine network, which has to be closed to others.
"""

from llmgw.engines.environment import environment, secrets_of, visible_gpus
from llmgw.engines.launch import ENGINE_KEY, Launch, LoadProbe, Shard

LOAD = LoadProbe(
    running="llamacpp:requests_processing",
    waiting="llamacpp:requests_deferred",
    tokens="llamacpp:tokens_predicted_total",
)
CHECKS_NAMES = False
RESERVED = frozenset(
    {
        "-m", "--model", "-a", "--alias", "--host", "--port", "--rpc", "--api-key", "--api-key-file", "--metrics",
    }
)  # fmt: skip


def ports_needed(rank: int, nodes: int) -> int:  # noqa: ARG001
    """One for each rank: HTTP on the first, RPC on the others."""
    return 1


def launch(shard: Shard) -> Launch:
    """The rank's start. The key goes in by LLAMA_API_KEY; /metrics needs it too."""
    return _head(shard) if shard.rank == 0 else _worker(shard)


def _head(shard: Shard) -> Launch:
    own = shard.own
    argv = [f"{shard.engine_path}/bin/llama-server", "--model", shard.weights]
    argv += ["--alias", ",".join(shard.names)]
    argv += ["--host", own.address, "--port", str(own.port), "--metrics"]
    if len(shard.peers) > 1:
        argv += ["--rpc", ",".join(peer.authority() for peer in shard.peers[1:])]
    return Launch(
        argv=(*argv, *shard.profile.args),
        env=environment(shard, visible_gpus(shard)),
        secret_env={**secrets_of(shard.profile), "LLAMA_API_KEY": ENGINE_KEY},
        port=own.port,
        ready="openai",
        load=LOAD,
    )


def _worker(shard: Shard) -> Launch:
    own = shard.own
    argv = (f"{shard.engine_path}/bin/rpc-server", "--host", own.address, "--port", str(own.port))
    return Launch(
        argv=argv,
        env=environment(shard, visible_gpus(shard)),
        secret_env=secrets_of(shard.profile),
        port=own.port,
        ready="listening",
    )
