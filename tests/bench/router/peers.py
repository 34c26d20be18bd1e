"""How the router and each peer are started for the bench. Peers that are not installed are left out."""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
MODEL = "fake-model"
KEY = "llmgw-bench-key"


@dataclass(frozen=True)
class Peer:
    """`prepare` writes what the peer reads into a folder and gives its command."""

    name: str
    what: str
    prepare: Callable[[Path, int, int], list[str]]
    present: bool = True


def _published(folder: Path, engine: int, endpoints: int = 1) -> Path:
    """A published folder: keys with all limits on, a model with an alias, the engine's own key."""
    from llmgw.serving.keys import digest_of

    where = folder / "published"
    where.mkdir(exist_ok=True)
    listed = [
        {
            "id": f"{MODEL}/{n}", "model": MODEL, "profile": "p",
            "url": f"http://127.0.0.{n % 250 + 1}:{engine + n // 250}",
            "state": "ready", "node": "n1", "spec": "s", "engine": "vllm", "max_in_flight": 100_000,
        }
        for n in range(endpoints)
    ]  # fmt: skip
    models = [{"name": MODEL, "aliases": ["fake"], "state": "ready", "default_profile": "p"}]
    file = {"format": "llmgw-endpoints/1", "generation": 1, "written": datetime.now(UTC).isoformat()}
    (where / "endpoints.json").write_text(json.dumps({**file, "models": models, "endpoints": listed}))
    key = {
        "id": "bench", "digest": digest_of(KEY), "tenant": "bench", "max_in_flight": 100_000,
        "requests_per_minute": 1_000_000_000, "tokens_per_minute": 1_000_000_000_000, "models": [MODEL],
    }  # fmt: skip
    (where / "keys.json").write_text(json.dumps({"format": "llmgw-keys/1", "keys": [key]}))
    engine_keys = {"format": "llmgw-engine-keys/1", "keys": {f"{MODEL}/{n}": "engine" for n in range(endpoints)}}
    (where / "engine-keys.json").write_text(json.dumps(engine_keys))
    return where


def llmgw(workers: int = 1) -> Callable[[Path, int, int], list[str]]:
    def prepare(folder: Path, port: int, engine: int) -> list[str]:
        main = "from llmgw.cli.router import router_command; router_command()"
        return [
            sys.executable, "-c", main, "--published", str(_published(folder, engine)),
            "--listen", f"127.0.0.1:{port}", "--metrics-listen", f"127.0.0.1:{port + 500}",
            "--usage", str(folder / "usage.sqlite"), "--workers", str(workers),
        ]  # fmt: skip

    return prepare


def _naive(_: Path, port: int, engine: int) -> list[str]:
    return [sys.executable, str(HERE / "naive.py"), str(port), str(engine)]


def _nginx(folder: Path, port: int, engine: int) -> list[str]:
    temp = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(f"""
worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log; worker_rlimit_nofile 20000;
events {{ worker_connections 8192; }}
http {{
  access_log off; client_body_temp_path {folder}/body; {temp}
  client_body_buffer_size 1m; client_max_body_size 32m; keepalive_requests 1000000; tcp_nodelay on;
  upstream engine {{ server 127.0.0.1:{engine}; keepalive 2048; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
      proxy_read_timeout 600s;
    }}
  }}
}}
""")
    return [_found("nginx"), "-c", str(folder / "nginx.conf")]


def _haproxy(folder: Path, port: int, engine: int) -> list[str]:
    (folder / "haproxy.cfg").write_text(f"""
global
  nbthread 1
  maxconn 8192
  tune.bufsize 131072
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 600s
  option http-keep-alive
  option http-no-delay
  http-reuse always
frontend clients
  bind 127.0.0.1:{port}
  option http-buffer-request
  http-request set-var(txn.model) req.body,json_query('$.model')
  use_backend engine if {{ var(txn.model) -m str {MODEL} }}
  default_backend nobody
backend engine
  server one 127.0.0.1:{engine} maxconn 8192
backend nobody
  http-request return status 404
""")
    return [_found("haproxy"), "-db", "-f", str(folder / "haproxy.cfg")]


def _vllm_router(_: Path, port: int, engine: int) -> list[str]:
    return [
        _found("vllm-router"), "--host", "127.0.0.1", "--port", str(port), "--worker-urls", f"http://127.0.0.1:{engine}",
        "--policy", "round_robin", "--prometheus-port", str(port + 700), "--log-level", "error",
    ]  # fmt: skip


def _found(name: str) -> str:
    return shutil.which(name, path=None) or shutil.which(name, path="/usr/sbin:/usr/local/sbin") or ""


PEERS = {
    peer.name: peer
    for peer in (
        Peer("llmgw", "this router: keys, limits, model routing, usage ledger and metrics on", llmgw()),
        Peer("naive", "sixty lines of aiohttp on uvloop", _naive),
        Peer("nginx", "does not read the body", _nginx, bool(_found("nginx"))),
        Peer("haproxy", "routes on the body's model", _haproxy, bool(_found("haproxy"))),
        Peer("vllm-router", "Rust", _vllm_router, bool(_found("vllm-router"))),
    )
}
