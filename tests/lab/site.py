"""A site on lab hosts: its folder, its store, and llmgw run as an operator would run it from the lab's control host."""

import json
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.lab.hosts import Share
from tests.lab.kernel import LabError, wait_until
from tests.lab.lab import Lab
from tests.lab.layer import REPOSITORY
from tests.lab.node import Node

RUNS = "/var/lib/llmgw/runs"
PUBLISHED = "/var/lib/llmgw/published"
ROUTER_PORT = 8080
ENGINE = "/opt/llmgw/engines/llama.cpp-b10434"
SETTINGS: dict[str, Any] = {
    "format": "llmgw-site/1",
    "name": "lab",
    "fabrics": {
        "compute": {"role": "compute", "scan_from": ["n1:mlx5_0/1", "n3:mlx5_0/1"]},
        "storage": {"role": "storage", "scan_from": ["n1:mlx5_2/1", "n3:mlx5_2/1"]},
    },
    "engines": {
        "llama.cpp": {"b10434": {"path": ENGINE}},
        "vllm": {"0.33.0": {"path": "/opt/llmgw/engines/vllm-0.33.0"}},
    },
    "timeouts": {"start_s": 60, "drain_s": 60, "stop_s": 10, "connect_s": 4, "step_s": 60},
    "backoff": {"base_s": 1, "max_s": 4, "reset_s": 60},
    "unreachable_after_s": 10,
    "lost_after_s": 600,
}


def python_shares() -> tuple[Share, ...]:
    """What a router host needs to run this checkout: it, the environment, and the Python below that."""
    folders = {REPOSITORY, Path(sys.prefix), Path(sys.base_prefix)}
    outside = [folder for folder in folders if folder.parts[1] != "usr"]
    return tuple(
        Share(folder, str(folder))
        for folder in sorted(outside)
        if not any(other in folder.parents for other in outside)
    )


def llama(*args: str, gpus: int = 1, shapes: Sequence[str] = ("1x1",), **more: Any) -> dict[str, Any]:
    """A profile for llama.cpp on the CPU."""
    return {
        "engine": "llama.cpp",
        "version": "b10434",
        "shapes": list(shapes),
        "tensor_parallel": gpus,
        "args": ["--ctx-size", "8192", "--parallel", "8", "--threads", "1", "--device", "none", *args],
        **more,
    }


def model(file: str, profile: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A model of one profile."""
    return {"source": {"path": f"/models/{file}"}, "profiles": {"cpu": dict(profile)}, **more}


@dataclass
class LabSite:
    """`site.llmgw("plan")`, then `site.llmgw("apply", "--yes")`, and so on."""

    lab: Lab
    folder: Path
    user: str = "ops"
    models: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=lambda: json.loads(json.dumps(SETTINGS)))

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    # -- its files -------------------------------------------------------------------------------------

    def write(self, nodes: Sequence[str] = ("n1", "n2", "n3", "n4")) -> "LabSite":
        """Write the three files of the site folder."""
        groups = {"gpu_nodes": list(nodes), "routers": ["r1"] if "r1" in self.lab.nodes else []}
        inventory = self.lab.inventory(self.user, groups=groups)
        self.folder.joinpath("hosts.yml").write_text(yaml.safe_dump(inventory))
        self.folder.joinpath("llmgw.yml").write_text(yaml.safe_dump(self.settings, sort_keys=False))
        self.catalogue(self.models)
        return self

    def catalogue(self, models: Mapping[str, Any]) -> None:
        """Replace the catalogue."""
        self.models = dict(models)
        text = yaml.safe_dump({"format": "llmgw-models/1", "models": self.models}, sort_keys=False)
        self.folder.joinpath("models.yml").write_text(text)

    @property
    def state(self) -> Path:
        return self.folder / "state.db"

    def prepare(self) -> None:
        """What an admin does once on every node and router host: the account's folder, the published folder."""
        for node in self.lab.nodes.values():
            if node.name == "r1":
                node.sh(f"mkdir -p {PUBLISHED} && chown {self.user} {PUBLISHED}")
            else:
                node.sh("id llmgw >/dev/null || useradd --system --no-create-home --shell /usr/sbin/nologin llmgw")
                node.sh(f"mkdir -p {RUNS} && chown llmgw:llmgw {RUNS} && chmod 2770 {RUNS}")
                node.sh(f"usermod -aG llmgw {self.user}")

    # -- llmgw -----------------------------------------------------------------------------------------

    def argv(self, *words: str) -> list[str]:
        """The command line of llmgw on this site."""
        return [sys.executable, "-m", "llmgw", "--site", str(self.folder), "--state", str(self.state), *words]

    def llmgw(self, *words: str, code: int | None = 0) -> "subprocess.CompletedProcess[str]":
        """Run a command on the lab's network. LabError where it ends with another exit code than `code`."""
        done = self.lab.run(
            self.argv(*words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            cwd=REPOSITORY,
        )
        if code is not None and done.returncode != code:
            raise LabError(f"llmgw {' '.join(words)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def popen(self, *words: str) -> "subprocess.Popen[str]":
        """Start a command on the lab's network."""
        return self.lab.popen(
            self.argv(*words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )

    def json(self, *words: str) -> Any:
        """The document that a command prints with -o json."""
        return json.loads(self.llmgw(*words, "-o", "json", code=None).stdout)

    def actions(self, *options: str) -> list[tuple[str, str]]:
        """What a plan would do now: operations and replicas."""
        body = self.json("plan", *options)["body"]
        return [(action["op"], action["replica"]) for action in body["actions"]]

    # -- what there is ---------------------------------------------------------------------------------

    def published(self) -> dict[str, Any]:
        """The endpoint file on the router host."""
        found: dict[str, Any] = json.loads(self.lab.nodes["r1"].sh(f"cat {PUBLISHED}/endpoints.json"))
        return found

    def endpoints(self) -> dict[str, str]:
        """The published endpoints and their states."""
        return {endpoint["id"]: endpoint["state"] for endpoint in self.published()["endpoints"]}

    def units(self, *nodes: str) -> dict[str, list[str]]:
        """The engines' units that run, by node."""
        command = "systemctl list-units --plain --no-legend --state=active 'llmgw-*.service' | cut -d' ' -f1"
        wanted = nodes or tuple(name for name in self.lab.nodes if name.startswith("n"))
        found = {name: self.lab.nodes[name].console(command).stdout.split() for name in wanted}
        return {name: units for name, units in found.items() if units}

    def journal_rows(self) -> int:
        """The rows of the journal so far."""
        if not self.state.exists():
            return 0
        with sqlite3.connect(f"file:{self.state}?mode=ro", uri=True) as store:
            try:
                return int(store.execute("SELECT count(*) FROM journal").fetchone()[0])
            except sqlite3.OperationalError:
                return 0

    def clear(self) -> None:
        """End every engine and forget every run, past llmgw."""
        for node in self.lab.nodes.values():
            if node.name != "r1":
                node.console("systemctl stop 'llmgw-*.service'; systemctl reset-failed 'llmgw-*.service'")
                node.console(f"pkill -9 -f ^/opt/llmgw; rm -rf {RUNS}/*")
            else:
                node.console(f"systemctl stop router; rm -rf {PUBLISHED}/*")

    # -- the router ------------------------------------------------------------------------------------

    def start_router(self, *options: str) -> None:
        """Run llmgw's router on r1, as a unit of its own."""
        argv = [
            sys.executable,
            "-m",
            "llmgw",
            "router",
            "--published",
            PUBLISHED,
            "--listen",
            f"0.0.0.0:{ROUTER_PORT}",
        ]
        words = " ".join([*argv, *options])
        r1 = self.lab.nodes["r1"]
        r1.console("systemctl reset-failed router")
        r1.sh(
            f"systemd-run --quiet --unit=router --working-directory={REPOSITORY} "
            f"--setenv=PYTHONDONTWRITEBYTECODE=1 {words}"
        )
        wait_until(
            lambda: self.get("/v1/models") is not None,
            lambda: r1.console("journalctl -u router -n 30 --no-pager").stdout,
            timeout_s=30,
        )

    @property
    def router(self) -> str:
        return f"http://{self.lab.nodes['r1'].address}:{ROUTER_PORT}"

    def get(self, path: str) -> Any:
        """The JSON that the router answers with; None where nobody answers."""
        try:
            with self.lab.entered(), urllib.request.urlopen(self.router + path, timeout=10) as answer:
                return json.load(answer)
        except OSError:
            return None

    def chat(self, name: str, *, tokens: int = 8, each: Callable[[str], None] = lambda _: None) -> "Chat":
        """A streamed chat through the router; `each` gets every piece as it comes."""
        body = {
            "model": name,
            "stream": True,
            "max_tokens": tokens,
            "messages": [{"role": "user", "content": "count, please"}],
        }
        request = urllib.request.Request(
            f"{self.router}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        found = Chat()
        with self.lab.entered(), urllib.request.urlopen(request, timeout=120) as answer:
            for line in answer:
                found.take(line.decode().strip(), each)
        return found


@dataclass
class Chat:
    """What came of a stream."""

    id: str = ""
    text: str = ""
    finish: str = ""
    done: bool = False
    errors: list[Any] = field(default_factory=list)

    def take(self, line: str, each: Callable[[str], None]) -> None:
        if not line.startswith("data: "):
            return
        if line == "data: [DONE]":
            self.done = True
            return
        event = json.loads(line[6:])
        if "error" in event:
            self.errors.append(event["error"])
            return
        self.id = event["id"]
        for choice in event["choices"]:
            piece = choice["delta"].get("content") or ""
            self.text += piece
            self.finish = choice.get("finish_reason") or self.finish
            if piece:
                each(piece)

    @property
    def whole(self) -> bool:
        """Whether it ended as a stream should."""
        return self.done and bool(self.finish) and not self.errors


def log_of(node: Node, unit: str) -> str:
    """Everything that a unit has printed."""
    return node.sh(f"journalctl --no-pager --output=cat --unit={unit}")
