"""Ready endpoints in the forms that other routers read. None of them has the engines' keys.

Sources: llm-d's file-discovery plugin (llm-d/llm-d-router, pull requests 1135 and 1927: name, address, port as text);
LiteLLM's config.yaml (model_list); vLLM router's --worker-urls; nginx's ngx_http_upstream_module.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

import yaml

from llmgw.serving.endpoints import Endpoint


def _ready(endpoints: Iterable[Endpoint]) -> list[Endpoint]:
    return [endpoint for endpoint in endpoints if endpoint.state == "ready"]


def _name(endpoint: Endpoint) -> str:
    """An id as names of hosts and upstreams may be written: `qwen2.5-72b/0` → `qwen2-5-72b-0`."""
    return "".join(char if char.isalnum() else "-" for char in endpoint.id).strip("-").lower()


def to_llm_d(endpoints: Sequence[Endpoint]) -> str:
    """endpoints.yaml of llm-d's file-discovery plugin."""
    return _yaml(
        {
            "endpoints": [
                {
                    "name": _name(endpoint),
                    "address": urlsplit(endpoint.url).hostname,
                    "port": str(urlsplit(endpoint.url).port),
                    "labels": {"llmgw/model": endpoint.model, "llmgw/node": endpoint.node},
                }
                for endpoint in _ready(endpoints)
            ]
        }
    )


def to_litellm(endpoints: Sequence[Endpoint]) -> str:
    """config.yaml of LiteLLM's proxy. Each endpoint's key is read from the environment: LLMGW_KEY_ and its name."""
    return _yaml(
        {
            "model_list": [
                {
                    "model_name": endpoint.model,
                    "litellm_params": {
                        "model": f"openai/{endpoint.model}",
                        "api_base": f"{endpoint.url}/v1",
                        "api_key": f"os.environ/LLMGW_KEY_{_name(endpoint).replace('-', '_').upper()}",
                    },
                }
                for endpoint in _ready(endpoints)
            ]
        }
    )


def to_vllm_router(endpoints: Sequence[Endpoint]) -> str:
    """Arguments of vLLM's router, a line for each model."""
    by_model: dict[str, list[str]] = {}
    for endpoint in _ready(endpoints):
        by_model.setdefault(endpoint.model, []).append(endpoint.url)
    return "".join(f"# {model}\n--worker-urls {' '.join(urls)}\n" for model, urls in by_model.items())


def to_nginx(endpoints: Sequence[Endpoint]) -> str:
    """An upstream for each model, least connections first."""
    by_model: dict[str, list[Endpoint]] = {}
    for endpoint in _ready(endpoints):
        by_model.setdefault(endpoint.model, []).append(endpoint)
    return "".join(_upstream(model, found) for model, found in by_model.items())


def _upstream(model: str, endpoints: Sequence[Endpoint]) -> str:
    servers = "".join(
        f"    server {urlsplit(endpoint.url).netloc} weight={endpoint.weight};\n" for endpoint in endpoints
    )
    name = "".join(char if char.isalnum() else "_" for char in model)
    return f"upstream llmgw_{name} {{\n    least_conn;\n{servers}    keepalive 32;\n}}\n"


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, default_flow_style=False)


EXPORTS: dict[str, Callable[[Sequence[Endpoint]], str]] = {
    "llm-d": to_llm_d,
    "litellm": to_litellm,
    "vllm-router": to_vllm_router,
    "nginx": to_nginx,
}
