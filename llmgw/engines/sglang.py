"""SGLang's OpenAI server, on one node or over several.

Source: SGLang 0.5.23, python -m sglang.launch_server --help and server_args.py (PortArgs: the rendezvous takes
seven ports). There is no variable for the key, so it goes into a file for --config that only the engine reads.
Ranks above 0 answer /health on their own host and port, and ignore SIGTERM until rank 0 has gone.
"""

from llmgw.engines.environment import environment, secrets_of, visible_gpus
from llmgw.engines.launch import ENGINE_KEY, Launch, LoadProbe, Shard

LOAD = LoadProbe(
    running="sglang:num_running_reqs",
    waiting="sglang:num_queue_reqs",
    tokens="sglang:generation_tokens_total",
)
CHECKS_NAMES = False
RESERVED = frozenset(
    {
        "--model", "--model-path", "--served-model-name", "--host", "--port", "--api-key", "--config", "--tp",
        "--tp-size", "--tensor-parallel-size", "--pp-size", "--pipeline-parallel-size", "--nnodes", "--node-rank",
        "--dist-init-addr", "--nccl-init-addr", "--nccl-port", "--dist-timeout", "--enable-metrics",
        "--base-gpu-id", "--gpu-id-step",
    }
)  # fmt: skip
_RENDEZVOUS = 7
_CONFIG = "sglang.yaml"


def ports_needed(rank: int, nodes: int) -> int:
    """HTTP; then NCCL's on one node, or the rendezvous and the six after it on the head of several."""
    if nodes == 1:
        return 2
    return 1 + _RENDEZVOUS if rank == 0 else 1


def launch(shard: Shard) -> Launch:
    """The rank's start. All ranks of several nodes get the same line but for --node-rank and --host."""
    own = shard.own
    argv = [f"{shard.engine_path}/bin/python", "-m", "sglang.launch_server", "--model-path", shard.weights]
    argv += ["--served-model-name", shard.model, "--host", own.address, "--port", str(own.port)]
    argv += ["--tp-size", str(shard.profile.tensor_parallel)]
    if shard.profile.pipeline_parallel > 1:
        argv += ["--pp-size", str(shard.profile.pipeline_parallel)]
    argv += ["--enable-metrics", *_nodes(shard), "--config", f"{shard.run_folder}/{_CONFIG}"]
    return Launch(
        argv=(*argv, *shard.profile.args),
        env=environment(shard, visible_gpus(shard), _own(shard)),
        secret_env=secrets_of(shard.profile),
        secret_files={_CONFIG: ('api-key: "{secret}"\n', ENGINE_KEY)},
        port=own.port,
        ready="openai" if shard.rank == 0 else "listening",
        load=LOAD if shard.rank == 0 else None,
    )


def _nodes(shard: Shard) -> list[str]:
    if len(shard.peers) == 1:
        return ["--nccl-port", str(shard.own.port + 1)]
    argv = ["--nnodes", str(len(shard.peers)), "--node-rank", str(shard.rank)]
    return [*argv, "--dist-init-addr", shard.head.authority(1), "--dist-timeout", str(shard.start_s)]


def _own(shard: Shard) -> dict[str, str]:
    """SGLang sets NCCL_CUMEM_ENABLE, NCCL_NVLS_ENABLE and others itself where they are unset: they stay unset."""
    cache = f"{shard.run_folder}/cache/sglang-{shard.profile.version}"
    return {"SGLANG_CACHE_DIR": cache, "TRITON_CACHE_DIR": f"{cache}/triton"}
