"""A fabric that runs: ibsim on the lab's network, and faults of its cables, switches and adapters.

Recipes for ibsim 0.10 and infiniband-diags 44: a cable is pulled and plugged on ibsim's console; it trains
short when ibportstate sets what its switch port may do. ibsim's clients are the real tools, on hosts by
stand_ins/ibtool.
"""

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.lab.hardware import AdapterPort
from tests.lab.kernel import LabError, wait_until
from tests.lab.netfile import Adapter, Cable, Plan, Switch

# ibportstate's arguments: LinkWidthEnabled and LinkSpeedExtEnabled of InfiniBand's PortInfo.
WIDTHS = {"1": "1", "2": "16", "4": "3"}
SPEEDS = {"FDR": "1", "EDR": "2", "HDR": "7"}
FULL = ("4", "HDR")


@dataclass(frozen=True, slots=True)
class Meeting:
    """How the tools find one simulator: ibsim's flags and environment, and those of its clients."""

    flags: str
    server_env: Mapping[str, str]
    client_env: Mapping[str, str]
    server: str  # in the words of stand_ins/ibtool
    udp_port: int


class Ground(Protocol):
    """Where simulators run: a lab's namespaces, or the machine itself."""

    fabrics: Path
    """The folder of the simulators' files, as this process sees it…"""
    fabrics_inside: str
    """…and as they see it."""
    tools_path: str
    umad2sim: str

    def meeting(self, fabric: str, number: int) -> Meeting: ...

    def inside(self, *argv: str, may_fail: bool = False, tools: bool = False) -> str: ...

    def start_inside(
        self, argv: Sequence[str], *, log: str, tools: bool = False, stdin: int = subprocess.DEVNULL
    ) -> None: ...

    def read_log(self, name: str) -> str: ...


@dataclass
class Faults:
    """What is wrong with a fabric just now, by the names of its parts. Kept in a file for any process to read."""

    pulled: set[str] = field(default_factory=set)
    trained: dict[str, str] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)


class Simulator:
    """One simulated fabric of a lab."""

    def __init__(self, ground: Ground, plan: Plan, number: int, *, changed: Callable[[], None]) -> None:
        """The fabric of that plan, one of several by its number; `changed` is told after every fault."""
        self.ground = ground
        self.plan = plan
        self.changed = changed
        self.meeting = ground.meeting(plan.name, number)

    @property
    def name(self) -> str:
        return self.plan.name

    def _file(self, kind: str) -> Path:
        return self.ground.fabrics / f"{self.name}.{kind}"

    # -- its life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Load the fabric and let a subnet manager sweep it once, so that ports are active and have their LIDs."""
        self._file("net").write_text(self.plan.net())
        self._file("sm").mkdir()
        self._save(Faults())
        os.mkfifo(self._file("in"))
        console = os.open(self._file("in"), os.O_RDWR)
        try:
            self.ground.start_inside(
                ["bash", "-c", self._command()], log=f"ibsim-{self.name}", tools=True, stdin=console
            )
        finally:
            os.close(console)
        wait_until(lambda: self._prompts(), self._why, timeout_s=20)
        self.sweep()

    def _command(self) -> str:
        """ibsim, its PID in a file: sizes with room for every part and for ports that nothing is plugged into."""
        switch_ports = self.plan.generation.switch_ports + 1
        parts = len(self.plan.switches) + len(self.plan.adapters)
        ports = len(self.plan.switches) * switch_ports + 2 * len(self.plan.adapters)
        base = f"{self.ground.fabrics_inside}/{self.name}"
        settings = "".join(f"{name}={value} " for name, value in self.meeting.server_env.items())
        return (
            f"echo $$ >{base}.pid; {settings}PATH={self.ground.tools_path} exec ibsim -s {self.meeting.flags}"
            f" -f {base}.log -N {parts + 10} -S {len(self.plan.switches) + 10} -P {ports + 100} {base}.net"
        )

    def _why(self) -> str:
        return self.ground.read_log(f"ibsim-{self.name}")[-1500:]

    def _prompts(self) -> int:
        log = self._file("log")
        return log.read_text(errors="replace").count("sim> ") if log.exists() else 0

    def say(self, command: str) -> str:
        """Give ibsim's console a command and wait for its next prompt; what it printed between the two."""
        before, start = self._prompts(), self._file("log").stat().st_size
        with self._file("in").open("w") as console:
            console.write(f"{command}\n")
        wait_until(lambda: self._prompts() > before, lambda: f"ibsim does not answer {command!r}", timeout_s=10)
        printed = self._file("log").read_bytes()[start:].decode(errors="replace").removesuffix("sim> ")
        if printed.startswith("#"):
            raise LabError(f"ibsim: {command}: {printed.strip()}")
        return printed

    def run(self, tool: str, *args: str, at: Switch | Adapter | None = None) -> str:
        """What a fabric tool printed, attached to a part of the fabric; to the first adapter where none is given.

        The subnet manager's folder is of its own for each fabric: it keeps there which LID a GUID has.
        """
        part = at or self.plan.adapters[0]
        manager = f"{self.ground.fabrics_inside}/{self.name}.sm"
        environment = {
            "SIM_HOST": part.id,
            "LD_PRELOAD": self.ground.umad2sim,
            "OSM_TMP_DIR": manager,
            "OSM_CACHE_DIR": manager,
            **self.meeting.client_env,
        }
        start = f'cd {manager} && PATH={self.ground.tools_path}; export PATH; exec timeout 30 "$@"'
        settings = [f"{name}={value}" for name, value in environment.items()]
        return self.ground.inside("sh", "-c", start, "sh", "env", *settings, tool, *args, tools=True)

    def sweep(self) -> None:
        """One sweep of a subnet manager: ports that came up get active."""
        self.run("opensm", "-o", "-f", f"{self.ground.fabrics_inside}/{self.name}.sm/log")
        for words, rate in self.faults().trained.items():
            self._set(self._cable(words), rate)

    # -- faults ----------------------------------------------------------------------------------------

    def faults(self) -> Faults:
        """What was done to it and not undone."""
        kept: dict[str, Any] = json.loads(self._file("json").read_text())
        return Faults(set(kept["pulled"]), dict(kept["trained"]), set(kept["silent"]))

    def _save(self, faults: Faults) -> None:
        kept = {"pulled": sorted(faults.pulled), "trained": faults.trained, "silent": sorted(faults.silent)}
        self._file("json").write_text(json.dumps(kept, indent=1))

    def _change(self, change: Callable[[Faults], None]) -> None:
        faults = self.faults()
        change(faults)
        self._save(faults)
        self.changed()

    def _cable(self, words: str) -> Cable:
        return next(cable for cable in self.plan.cables if str(cable) == words)

    def pull(self, cable: Cable) -> None:
        """Pull a cable out: both of its ports are down."""
        self.say(f'Unlink "{cable.a.id}"[{cable.a_port}]')
        self._change(lambda faults: faults.pulled.add(str(cable)))

    def plug(self, cable: Cable) -> None:
        """Plug it in again where it was."""
        self.say(f'ReLink "{cable.a.id}"[{cable.a_port}]')
        self._change(lambda faults: faults.pulled.discard(str(cable)))
        self.sweep()

    def train(self, cable: Cable, rate: str) -> None:
        """Let a cable train at less than it could ("4xEDR", "1xNDR"), or again at the full rate of the plan."""
        self._set(cable, rate)

        def change(faults: Faults) -> None:
            faults.trained.pop(str(cable), None)
            if rate != self.plan.rate:
                faults.trained[str(cable)] = rate

        self._change(change)

    def _set(self, cable: Cable, rate: str) -> None:
        width, speed = self.plan.native(rate)
        for word, value in (("width", WIDTHS[width]), ("espeed", SPEEDS[speed])):
            self.run("ibportstate", "-D", "0", str(cable.a_port), word, value, at=cable.a)

    def silence(self, part: Switch | Adapter) -> None:
        """It answers no management packet any more, though its cables are up."""
        self.say(f'Error "{part.id}" 100')
        self._change(lambda faults: faults.silent.add(part.name))

    def hear(self, part: Switch | Adapter) -> None:
        """Undo silence."""
        self.say(f'Error "{part.id}" 0')
        self._change(lambda faults: faults.silent.discard(part.name))

    def hang(self) -> None:
        """Nothing on the fabric answers, not even by an error: a fabric tool waits for ever."""
        self._signal("STOP")

    def go_on(self) -> None:
        """Undo hang."""
        self._signal("CONT")

    def _signal(self, name: str) -> None:
        self.ground.inside("bash", "-c", f"kill -{name} {self._file('pid').read_text().strip()}")

    def forget_clients(self) -> None:
        """Free the places of tools that were killed: ibsim has ten, and does not notice."""
        for line in self.say("Attached").splitlines():
            if line.startswith("Client "):
                self.say(f"X {line.split()[1].rstrip(':')}")

    def restore(self) -> None:
        """Every cable in, at its full rate, everything answering."""
        self.go_on()
        self.forget_clients()
        faults = self.faults()
        for words in faults.pulled:
            self.plug(self._cable(words))
        for words in faults.trained:
            self.train(self._cable(words), self.plan.rate)
        for name in faults.silent:
            self.hear(self.plan.by_name[name])

    # -- as hosts see it -------------------------------------------------------------------------------

    def ports(self, host: str) -> list[AdapterPort]:
        """The host's adapters on this fabric, as they are just now."""
        faults = self.faults() if self._file("json").exists() else Faults()
        return [self._port(adapter, faults) for adapter in self.plan.adapters if adapter.host == host]

    def _port(self, adapter: Adapter, faults: Faults) -> AdapterPort:
        cable = str(self.plan.cable(adapter.name))
        rate = "" if cable in faults.pulled else faults.trained.get(cable, self.plan.rate)
        return AdapterPort(
            *(adapter.device, adapter.guid, adapter.port_guid, adapter.lid, rate),
            *(self.meeting.server, self.meeting.udp_port, adapter.id, self.plan.generation.speed),
        )
