"""vLLM's OpenAI server, on one node or over several without Ray.

Source: vLLM 0.33.0, `vllm serve --help` and vllm/envs.py. Rank 0 serves; the others run headless and listen
nowhere. SIGTERM lets running requests finish only with --shutdown-timeout.
"""

import re
from functools import lru_cache

from llmgw.engines.environment import environment, secrets_of, visible_gpus
from llmgw.engines.launch import ENGINE_KEY, Launch, LoadProbe, Shard

LOAD = LoadProbe(
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    tokens="vllm:generation_tokens_total",
)
CHECKS_NAMES = True
RESERVED = frozenset(
    {
        "--model", "--served-model-name", "--host", "--port", "--uds", "--api-key", "-tp", "--tensor-parallel-size",
        "-pp", "--pipeline-parallel-size", "--nnodes", "--node-rank", "--master-addr", "--master-port",
        "--headless", "--device-ids", "--shutdown-timeout", "--distributed-timeout-seconds",
    }
)  # fmt: skip
_DEVICE_IDS_SINCE = (0, 33)


def ports_needed(rank: int, nodes: int) -> int:
    """HTTP, and on the head of several nodes the rendezvous (--master-port) after it."""
    return 2 if nodes > 1 and rank == 0 else 1


def launch(shard: Shard) -> Launch:
    """The rank's start. The key goes in by VLLM_API_KEY."""
    head = shard.rank == 0
    argv = [f"{shard.engine_path}/bin/vllm", "serve", shard.weights]
    argv += ["--served-model-name", *shard.names]
    argv += ["--tensor-parallel-size", str(shard.profile.tensor_parallel)]
    if shard.profile.pipeline_parallel > 1:
        argv += ["--pipeline-parallel-size", str(shard.profile.pipeline_parallel)]
    if head:
        argv += ["--host", shard.own.address, "--port", str(shard.own.port)]
        argv += ["--shutdown-timeout", str(shard.drain_s)]
    argv += _nodes(shard)
    gpus = visible_gpus(shard)
    if _version(shard.profile.version) >= _DEVICE_IDS_SINCE:
        argv += ["--device-ids", gpus.pop("CUDA_VISIBLE_DEVICES")]  # keeps all GPUs visible, for GPU-NIC affinity
    return Launch(
        argv=(*argv, *shard.profile.args),
        env=environment(shard, gpus, _own(shard)),
        secret_env={**secrets_of(shard.profile), **({"VLLM_API_KEY": ENGINE_KEY} if head else {})},
        port=shard.own.port,
        ready="openai" if head else "running",
        load=LOAD if head else None,
    )


def _nodes(shard: Shard) -> list[str]:
    """What only replicas of several nodes are told."""
    if len(shard.peers) == 1:
        return []
    head = shard.head
    argv = ["--nnodes", str(len(shard.peers)), "--node-rank", str(shard.rank)]
    argv += ["--master-addr", head.address, "--master-port", str(head.port + 1)]
    argv += ["--distributed-timeout-seconds", str(shard.start_s)]
    return argv if shard.rank == 0 else [*argv, "--headless"]


def _own(shard: Shard) -> dict[str, str]:
    """vLLM's own variables. Without VLLM_HOST_IP it asks the route to 8.8.8.8, which compute nodes lack."""
    cache = f"{shard.run_folder}/cache/vllm-{shard.profile.version}"
    return {
        "VLLM_HOST_IP": shard.own.address,
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": cache,
        "TRITON_CACHE_DIR": f"{cache}/triton",
    }


@lru_cache(maxsize=64)
def _version(text: str) -> tuple[int, ...]:
    """`0.33.0` as (0, 33, 0); what is no number ends it."""
    match = re.match(r"v?([0-9]+(?:\.[0-9]+)*)", text, re.ASCII)
    return tuple(map(int, match[1].split("."))) if match else ()
