"""Whether a profile fits its GPUs' memory, by arithmetic on what is known before anything is loaded.

The KV cache is exact (checked by others against vLLM's and llama.cpp's own logs). What an engine takes besides
weights and cache is an estimate between a low and a high figure, never calibrated on a GPU here: so only what
does not fit even by the low figure is a no.

Sources: vLLM's profile run and --gpu-memory-utilization (vllm/config/cache.py); SGLang 0.5.23
arg_groups/memory_hook.py (512 MiB + 1.5 MiB a prefill token + tp*pp/8 GiB, at least 10 GiB on cards above
60 GiB); DeepSeek-V2 paper for the latent cache of MLA, which every tensor-parallel rank holds whole.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from llmgw.site import Engine, Profile, WeightsSource

GIB, MIB = 1 << 30, 1 << 20
_SEQUENCES = 8  # full-length ones at a time, from which on "fits" says no number
_BATCH_TOKENS = 8192
_UTILIZATION = 0.92
_CONTEXT_DEFAULT = 8192


@dataclass(frozen=True, slots=True)
class Fit:
    """no: not even one sequence of the full length. tight: only by the low estimate. fits: `sequences` of the
    full length at a time, at least. `text` shows the sum for one GPU."""

    verdict: Literal["no", "tight", "fits"]
    sequences: int
    text: str


@dataclass(frozen=True, slots=True)
class _Sum:
    """Bytes on one GPU."""

    memory: int
    budget: float
    weights: float
    low: float
    high: float
    one: int
    tokens: int


def fit(source: WeightsSource, profile: Profile, *, memory_mib: int) -> Fit | None:
    """The verdict for one GPU of so much memory; None where too little is known to say anything.

    llama.cpp is never refused: it leaves on the CPU what does not fit.
    """
    if source.bytes is None or memory_mib <= 0 or profile.engine is Engine.LLAMA_CPP:
        return None
    given = _given(profile.args)
    config = source.config or {}
    world = profile.tensor_parallel * profile.pipeline_parallel
    tokens = _whole(given, _CONTEXT_FLAGS, config.get("context", _CONTEXT_DEFAULT))
    one = kv_bytes(
        config, tokens, tp=profile.tensor_parallel, pp=profile.pipeline_parallel, element=_element(given)
    )
    ends = config.get("embedding_bytes", 0) / profile.tensor_parallel / 2 if profile.pipeline_parallel > 1 else 0
    memory = memory_mib * MIB
    low, high = _overhead(profile, config, given, memory=memory)
    budget = memory * _utilization(profile, given)
    return _verdict(_Sum(memory, budget, source.bytes / world * 1.02 + ends, low, high, one, tokens))


def kv_bytes(config: Mapping[str, int], tokens: int, *, tp: int, pp: int, element: int = 2) -> int:
    """Bytes of KV cache on one GPU for one sequence of so many tokens; 0 where the config does not say.

    Heads are copied once there are fewer than ranks; the latent of MLA is on every rank; layers with a sliding
    window hold no more than the window, layers with linear attention nothing that grows.
    """
    layers = config.get("layers", 0) - config.get("linear_layers", 0)
    if config.get("kv_lora_rank"):
        per_token = (config["kv_lora_rank"] + config.get("qk_rope_head_dim", 0)) * element
    elif config.get("kv_heads") and config.get("head_dim"):
        per_token = 2 * math.ceil(max(1, config["kv_heads"] / tp)) * config["head_dim"] * element
    else:
        return 0
    sliding = min(config.get("sliding_layers", 0), layers)
    held = (layers - sliding) * tokens + sliding * min(tokens, config.get("window", tokens))
    return math.ceil(held / pp) * per_token


def _overhead(
    profile: Profile, config: Mapping[str, int], given: Mapping[str, str], *, memory: int
) -> tuple[float, float]:
    """Low and high bytes on one GPU that are neither weights nor cache."""
    world = profile.tensor_parallel * profile.pipeline_parallel
    if profile.engine is Engine.SGLANG:
        fraction = _share(given, "--mem-fraction-static", 0.0)
        if fraction:
            return memory * (1 - fraction), memory * (1 - fraction)
        batch = _whole(given, ("--chunked-prefill-size",), _BATCH_TOKENS)
        reserve = 512 * MIB + 1.5 * MIB * max(batch, 2048) + world * GIB / 8
        reserve = max(reserve, 10 * GIB if memory > 60 * GIB else 0)
        return reserve, reserve + 2 * GIB
    batch = _whole(given, ("--max-num-batched-tokens",), _BATCH_TOKENS)
    context = 0.6 * GIB + (0.9 * GIB if world > 1 else 0)  # CUDA's own, and NCCL's buffers
    hidden = batch * config.get("hidden", 0) * 2
    logits = 256 * config.get("vocabulary", 0) * 4
    return context + 6 * hidden + logits, context + 24 * hidden + logits + 3 * GIB


def _utilization(profile: Profile, given: Mapping[str, str]) -> float:
    """The share of a GPU's memory that the engine takes. SGLang derives its own from the overhead."""
    return 1.0 if profile.engine is Engine.SGLANG else _share(given, "--gpu-memory-utilization", _UTILIZATION)


def _share(given: Mapping[str, str], flag: str, default: float) -> float:
    try:
        return float(given.get(flag, default))
    except ValueError:
        return default


def _verdict(parts: _Sum) -> Fit:
    best = parts.budget - parts.weights - parts.low
    worst = parts.budget - parts.weights - parts.high
    sequences = int(max(0, worst) // parts.one) if parts.one else _SEQUENCES
    verdict: Literal["no", "tight", "fits"] = "fits"
    if best < max(parts.one, 1):
        verdict = "no"
    elif worst < parts.one:
        verdict = "tight"
    cache = f" + {_gib(parts.one)} for one sequence of {parts.tokens:,} tokens" if parts.one else ""
    text = (
        f"each GPU needs {_gib(parts.weights)} of weights{cache} + {_gib(parts.low)} to {_gib(parts.high)} of buffers, "
        f"has {_gib(parts.budget)}"
    )
    share = round(100 * parts.budget / parts.memory)
    return Fit(verdict, sequences, text + (f" ({share} % of {_gib(parts.memory)})" if share != 100 else ""))


def _gib(amount: float) -> str:
    return f"{amount / GIB:.1f} GiB"


_CONTEXT_FLAGS = ("--max-model-len", "--context-length")


def _given(args: Sequence[str]) -> dict[str, str]:
    """The values of flags, whether written `--flag value` or `--flag=value`."""
    found: dict[str, str] = {}
    for flag, after in zip(args, (*args[1:], ""), strict=False):
        name, equals, value = flag.partition("=")
        if name.startswith("--"):
            found[name] = value if equals else after
    return found


def _whole(given: Mapping[str, str], flags: Sequence[str], default: int) -> int:
    """A whole number, vLLM's 32k and 32K with it (1,000 and 1,024); the default where it is none."""
    text = next((given[flag] for flag in flags if flag in given), "")
    scale = {"k": 1000, "K": 1024}.get(text[-1:], 1)
    digits = text[:-1] if scale > 1 else text
    return int(digits) * scale if digits.isdigit() and digits.isascii() else default


def _element(given: Mapping[str, str]) -> int:
    """Bytes of one element of the cache."""
    kind = given.get("--kv-cache-dtype", "auto")
    return 1 if kind.startswith("fp8") or kind == "int8" else 2
