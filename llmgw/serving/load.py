"""What engines say of their load on /metrics."""

import re
from dataclasses import dataclass

# Names: vLLM 0.33 and SGLang 0.5.23 metrics documentation; llama.cpp tools/server/README.md.
_NAMES = {
    "vllm": ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"),
    "sglang": ("sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage"),
    "llama.cpp": ("llamacpp:requests_processing", "llamacpp:requests_deferred", ""),
}
_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{[^}]*\})?[ \t]+(\S+)")


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """Requests that an engine runs and holds back, and how full its key-value cache is, 0 to 1."""

    running: int
    waiting: int
    cache: float = 0.0


def metrics_names(engine: str) -> tuple[str, str, str] | None:
    """The names of running, waiting and cache use; None for an engine that is not known."""
    return _NAMES.get(engine)


def parse_load(engine: str, text: str) -> EngineLoad | None:
    """The load that a page of Prometheus text tells, summed over its series; None where it tells none."""
    names = _NAMES.get(engine)
    if names is None:
        return None
    sums = dict.fromkeys(names, 0.0)
    seen = False
    for line in text.splitlines():
        found = _LINE.match(line)
        if found and found[1] in sums and found[1]:
            try:
                sums[found[1]] += float(found[2])
            except ValueError:
                continue
            seen = True
    running, waiting, cache = (sums[name] for name in names)
    if not seen or not 0 <= running + waiting < 1e9:
        return None
    return EngineLoad(int(running), int(waiting), cache)
