"""A site folder whose nodes are nobody: a port of this machine that counts who knocks. For what must happen before,
or without, any SSH."""

import io
import threading
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from socket import create_server, socket
from typing import Any

import yaml

from llmgw.cli.main import run
from llmgw.store import open_state
from llmgw.store.nodes import save_facts
from tests.fakes.worlds import NOW, World

ROOT = Path(__file__).parent.parent.parent
ENGINES = {"vllm": {"0.33.0": {"path": "/opt/llmgw/engines/vllm-0.33.0"}}}


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


@dataclass
class PaperSite:
    """`site.llmgw("plan", "--no-refresh", "--out", FILE)`; `knocks` counts connections to its nodes."""

    folder: Path
    nodes: tuple[str, ...] = ("a1", "a2")
    knocks: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    _door: socket = field(default_factory=lambda: create_server(("127.0.0.1", 0)))

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        own = {
            "format": "llmgw-site/1",
            "name": "paper",
            "engines": ENGINES,
            "ports": "8000-8099",
            **self.settings,
        }
        self.folder.joinpath("llmgw.yml").write_text(yaml.safe_dump(own))
        self.inventory()
        self.models(m={"replicas": 1})
        world = World.of({"leaf-a": list(self.nodes)}).model("m", shapes=["1x8"])
        state = open_state(self.state)
        save_facts(state, world.facts().nodes, [], now=NOW)
        state.close()
        threading.Thread(target=self._count, daemon=True).start()

    @property
    def state(self) -> Path:
        return self.folder / "state.db"

    def inventory(self, **variables: Any) -> None:
        """Write hosts.yml, with these variables for every node."""
        reached = {"ansible_host": "127.0.0.1", "ansible_port": self._door.getsockname()[1], **variables}
        group = {"hosts": {name: dict(reached) for name in self.nodes}}
        self.folder.joinpath("hosts.yml").write_text(yaml.safe_dump({"all": {"children": {"gpu_nodes": group}}}))

    def models(self, **models: dict[str, Any]) -> None:
        """Write models.yml: each on eight GPUs of one node, with these keys."""
        profile = {"engine": "vllm", "version": "0.33.0", "tensor_parallel": 8, "shapes": ["1x8"]}
        made = {
            name: {"source": {"path": "/models/m"}, "profiles": {"main": profile}, **more}
            for name, more in models.items()
        }
        self.folder.joinpath("models.yml").write_text(yaml.safe_dump({"format": "llmgw-models/1", "models": made}))

    def llmgw(self, *words: str, state: Path | None = None) -> Done:
        """Run a command, in this process."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = run(["--site", str(self.folder), "--state", str(state or self.state), *words])
        return Done(code, out.getvalue(), err.getvalue())

    def saved(self, name: str = "plan.json") -> Path:
        """A plan of what is known now, saved."""
        file = self.folder.parent / name
        done = self.llmgw("plan", "--no-refresh", "--out", str(file))
        assert done.returncode == 0, done.stderr
        return file

    def close(self) -> None:
        self._door.close()

    def _count(self) -> None:
        while True:
            try:
                self._door.accept()[0].close()
            except OSError:
                return
            self.knocks += 1
