"""Where the demo plays: a lab of hosts for root, nodes on loopback for everybody else."""

import json
import os
import shlex
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.lab import debs, llama
from tests.lab.doorway import open_door
from tests.lab.hosts import Gpu, Host, numbered
from tests.lab.kernel import LabError, wait_until
from tests.lab.lab import Lab
from tests.lab.layer import REPOSITORY
from tests.lab.loopback import LEAVES_OUT, LoopbackLab
from tests.lab.netfile import Bank, Layout
from tests.lab.simulator import Simulator
from tests.lab.site import python_shares

NODES = ("n1", "n2", "n3", "n4")
FABRICS = (
    Layout("compute", (Bank(NODES, ("mlx5_0", "mlx5_1")),), per_leaf=2, spines=2),
    Layout(
        "storage",
        (Bank(NODES, ("mlx5_2",)), Bank(("stor1", "stor2"), ("mlx5_0",))),
        rails=False,
        spines=0,
        generation="HDR",
    ),
)
SHORT_CABLE = ("n2 mlx5_1", "4xHDR")
SITE = REPOSITORY / "inventories" / "demo"
VENV = REPOSITORY / "build" / "venv"
PUBLISHED = "/var/lib/llmgw/published"
ROUTER_PORT = 8080


@dataclass(frozen=True, slots=True)
class Step:
    """A command as somebody would type it, and why."""

    why: str
    command: str


class Stage(Protocol):
    """What the demo needs of either lab."""

    about: str
    prepares: bool
    """Whether nodes have an admin who prepares them."""

    def bring_up(self) -> None: ...

    def run(self, command: str) -> int:
        """A command as the control host: its exit status."""
        ...

    def run_here(self, command: str) -> int:
        """A command on this machine, outside of the lab."""
        ...

    def start_router(self) -> str: ...

    def goodbye(self, url: str) -> str: ...

    def take_down(self) -> None: ...


def shorten(fabric: Simulator) -> None:
    """Let the demo's one cable train short."""
    part, rate = SHORT_CABLE
    fabric.train(fabric.plan.cable(part), rate)


def free_port(first: int) -> int:
    """That port of the machine's loopback, or one of the next that nobody listens on."""
    for port in range(first, first + 50):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    raise LabError(f"no free port from {first} on")


def commands_environment(folder: Path, site: Path) -> dict[str, str]:
    """What `llmgw` is typed in: its site and store, the environment's programs, the folder's own."""
    path = f"{VENV}/bin:{os.environ.get('PATH', '')}:{debs.ROOT}/usr/bin:{debs.ROOT}/usr/sbin"
    settings = {"PATH": path, "LLMGW_SITE": str(site), "LLMGW_STATE": str(folder / "state.db")}
    settings |= {
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_HOME": str(folder / "ansible"),
        "PYTHONPATH": str(REPOSITORY),
    }
    return os.environ | settings


def write_llmgw(folder: Path, environment: dict[str, str], *, before: str = "") -> None:
    """A program build/demo/llmgw, that is llmgw as the demo runs it."""
    names = ("LLMGW_SITE", "LLMGW_STATE", "PATH", "LD_LIBRARY_PATH", "GVBINDIR")
    exports = [f"export {name}={shlex.quote(environment[name])}\n" for name in names if name in environment]
    script = folder / "llmgw"
    script.write_text(f'#!/bin/sh\ncd {REPOSITORY}\n{"".join(exports)}exec {before} {VENV}/bin/llmgw "$@"\n')
    script.chmod(0o755)


def _run_here(command: str, environment: dict[str, str]) -> int:
    argv = ["bash", "-euo", "pipefail", "-c", command]
    return subprocess.run(argv, cwd=REPOSITORY, env=environment, stdin=subprocess.DEVNULL, check=False).returncode


# -- root ------------------------------------------------------------------------------------------------


class RootStage:
    """The lab named demo: n1 to n4 with GPUs, and r1, a router host with this checkout and its environment."""

    about = (
        "Four nodes and a router host, each with a root, systemd and sshd of its own, and two simulated fabrics."
    )
    prepares = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        engines = llama.engine_shares()
        nodes = [host.with_shares(*engines) for host in numbered(4, gpus=[Gpu()] * 4)]
        router = Host("r1", shares=python_shares())
        self.lab = Lab("demo", [*nodes, router], fabrics=FABRICS)

    def bring_up(self) -> None:
        self.lab.up(keep=True)
        shorten(self.lab.fabrics["compute"])
        network = f"{VENV}/bin/python -m tests.lab --name demo run"
        write_llmgw(self.folder, commands_environment(self.folder, SITE), before=network)

    def run(self, command: str) -> int:
        argv = ["bash", "-euo", "pipefail", "-c", command]
        environment = commands_environment(self.folder, SITE)
        return self.lab.run(argv, cwd=REPOSITORY, env=environment, stdin=subprocess.DEVNULL).returncode

    def run_here(self, command: str) -> int:
        return _run_here(command, commands_environment(self.folder, SITE))

    def start_router(self) -> str:
        """llmgw router on r1, in a unit of its own, and doors to it from this machine.

        It runs as the account that publishes there, which alone may read the engines' keys.
        """
        router = self.lab.nodes["r1"]
        router.sh(f"install -d -o ops -g ops -m 700 {PUBLISHED}")
        start = (
            f"systemd-run --unit=router --collect --uid=ops --gid=ops {VENV}/bin/llmgw router "
            f"--published {PUBLISHED} --listen 0.0.0.0:8080 --admin-listen 127.0.0.1:8081 --metrics-listen 0.0.0.0:9090"
        )
        print(f"\n# A router on r1, under systemd.\nr1$ {start}", flush=True)
        router.sh(start)
        listens = lambda: ":8080" in router.sh("ss -ltn")  # noqa: E731
        wait_until(listens, lambda: router.sh("journalctl -u router -n 30 --no-pager"), timeout_s=30)
        port = free_port(ROUTER_PORT)
        open_door(self.lab.spaces, port, (router.address, 8080))
        self.admin = free_port(port + 1)
        open_door(self.lab.spaces, self.admin, ("127.0.0.1", 8081), via=router.init_pid())
        return f"http://127.0.0.1:{port}"

    def goodbye(self, url: str) -> str:
        return f"""
# It stays up. On this machine:
#   {url}/v1        the router, an OpenAI API (models: tiny, count)
#   http://127.0.0.1:{self.admin}           its pages
#   build/demo/llmgw replicas list   llmgw as the control host; any command
#   build/demo/compute.svg           the map
# Break something, then build/demo/llmgw plan (python -m tests.lab --help says what else can be broken):
#   build/venv/bin/python -m tests.lab --name demo off n3
#   build/venv/bin/python -m tests.lab --name demo fabric compute pull "n1 mlx5_0"
# make demo-down removes every trace of it."""

    def take_down(self) -> None:
        Lab("demo", ()).down()


def root_stage(folder: Path) -> Stage:
    """The stage of root."""
    return RootStage(folder)


# -- everybody else --------------------------------------------------------------------------------------


class RootlessStage:
    """Four nodes and a router on loopback addresses."""

    about = LEAVES_OUT
    prepares = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lab = LoopbackLab("demo", numbered(4, gpus=[Gpu()] * 4), fabrics=FABRICS)
        self.published = folder / "published"

    def bring_up(self) -> None:
        llama.engine_shares()
        debs.provide_dot()
        self.lab.up(keep=True)
        shorten(self.lab.fabrics["compute"])
        write_site(self.lab, self.folder / "site", self.published)
        write_llmgw(self.folder, self._environment())

    def _environment(self) -> dict[str, str]:
        return commands_environment(self.folder, self.folder / "site") | debs.environment()

    def run(self, command: str) -> int:
        argv = ["bash", "-euo", "pipefail", "-c", command]
        return self.lab.run(argv, cwd=REPOSITORY, env=self._environment(), stdin=subprocess.DEVNULL).returncode

    def run_here(self, command: str) -> int:
        return _run_here(command, self._environment())

    def start_router(self) -> str:
        """llmgw router on this machine's loopback."""
        self.published.mkdir(parents=True, exist_ok=True)
        port = free_port(ROUTER_PORT)
        argv = [f"{VENV}/bin/llmgw", "router", "--published", str(self.published), "--listen", f"127.0.0.1:{port}"]
        print(f"\n# A router on this machine.\n$ {' '.join(argv)} &", flush=True)
        router = self.lab.ground.start(argv, log=self.folder / "router.log", mark=self.lab.folder)
        deadline = time.monotonic() + 30
        while router.poll() is None and time.monotonic() < deadline:
            with socket.socket() as probe:
                if not probe.connect_ex(("127.0.0.1", port)):
                    return f"http://127.0.0.1:{port}"
            time.sleep(0.05)
        raise LabError(f"the router did not start: {(self.folder / 'router.log').read_text()[-1000:]}")

    def goodbye(self, url: str) -> str:
        return f"""
# It stays up. On this machine:
#   {url}/v1        the router, an OpenAI API (models: tiny, count)
#   build/demo/llmgw replicas list   llmgw as the control host; any command
#   build/demo/compute.svg           the map
# make demo-down removes every trace of it."""

    def take_down(self) -> None:
        self.lab.down()


def write_site(lab: LoopbackLab, site: Path, published: Path) -> None:
    """The demo's site with this machine's paths: inventories/demo for nodes without root."""
    site.mkdir(parents=True, exist_ok=True)
    hosts = lab.inventory(groups={"gpu_nodes": list(lab.nodes)})
    router = {"ansible_host": "127.0.0.1", "ansible_connection": "local", "llmgw_published": str(published)}
    hosts["all"]["hosts"]["router"] = router
    hosts["all"]["children"]["routers"] = {"hosts": {"router": {}}}
    (site / "hosts.yml").write_text(json.dumps(hosts, indent=1))
    settings = (SITE / "llmgw.yml").read_text()
    (site / "llmgw.yml").write_text(_here(settings) + "\nscan: {sudo: false}\n")
    (site / "models.yml").write_text(_here((SITE / "models.yml").read_text()))


def _here(text: str) -> str:
    """Folders of hosts as those of this machine."""
    for source, target in llama.ON_HOSTS.items():
        text = text.replace(target, str(source))
    return text


def rootless_stage(folder: Path) -> Stage:
    """The stage of every other account."""
    return RootlessStage(folder)
