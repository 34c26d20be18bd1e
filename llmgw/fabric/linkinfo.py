r"""iblinkinfo's text: which ports are down now. ibnetdiscover cannot tell, since it lists ports with a peer only.

Forms, from infiniband-diags (rdma-core 65), blocks under a head and `-l` with one line a port:

    Switch: 0xb8cef60300bb0000 MF0;spine01:MQM8700/U1:
              3    3[  ] ==(                Down/ Polling)==>             [  ] "" ( )
              3    1[  ] ==( 4X        53.125 Gbps Active/  LinkUp)==>       1   39[  ] "leaf01" (Could be 12X )
    0xb8cef60300bb0000 "   MF0;spine01:MQM8700/U1"      3    3[  ] ==(                Down/ Polling)==> …
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from llmgw.fabric.grammar import guid16
from llmgw.fabric.scan import Problem, Trouble, Weight
from llmgw.fabric.sides import Port, ends_of
from llmgw.fabric.topology import Topology
from llmgw.fabric.warned import is_warning

_SWITCH = re.compile(r"Switch: 0x([0-9a-fA-F]+) (.*):\s*")
_ADAPTER = re.compile(r"CA: (.*):\s*")
_PORT = re.compile(
    r'\s*(?:0x(?P<guid>[0-9a-fA-F]+)\s+(?:"(?P<name>.*?)"\s+)?)?(?P<lid>\d+)\s+(?P<port>\d+)\[[\d ]*\] ==\('
    r"\s*(?P<link>.*?)\s*(?P<state>[A-Za-z]+)/\s*(?P<phys>[A-Za-z]+)\s*\)==>(?P<far>.*)"
)
_FAR = re.compile(
    r'\s*(?:0x[0-9a-fA-F]+\s+)?(?:(?P<lid>\d+)\s+(?P<port>\d+)?\[[\d ]*\] )?"(?P<name>.*)"(?P<note>.*)'
)


@dataclass(frozen=True, slots=True)
class LinkState:
    """One port as iblinkinfo shows it.

    `guid` is a switch's own, or an adapter's port GUID. `link` is the width and speed as written (`4X 53.125
    Gbps`). `silent` is a link that is up to a peer that does not answer.
    """

    guid: str
    port: int
    name: str
    state: str
    phys: str
    link: str
    peer: str
    silent: bool

    @property
    def is_down(self) -> bool:
        """Whether no link stands: the logical state is Down."""
        return self.state.lower() == "down"


def parse_linkinfo(text: str) -> tuple[list[LinkState], list[Problem]]:
    """Every port of the text, and the lines that could not be read."""
    states: list[LinkState] = []
    problems: list[Problem] = []
    guid = name = ""
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if not line.strip():
            continue
        if head := _SWITCH.fullmatch(line):
            guid, name = guid16(head[1]) or "", head[2]
        elif head := _ADAPTER.fullmatch(line):
            guid, name = "", head[1]
        elif (port := _PORT.fullmatch(line)) and (own := guid16(port["guid"]) if port["guid"] else guid):
            states.append(_state(port, own, port["name"].strip() if port["name"] is not None else name))
        elif is_warning(line):
            problems.append(Problem(number, Trouble.TOOL, Weight.PARTIAL, line[:200], line[:200]))
        else:
            problems.append(Problem(number, Trouble.UNKNOWN_LINE, Weight.NOTE, "", line[:200]))
    return states, problems


def _state(port: re.Match[str], guid: str, name: str) -> LinkState:
    far = _FAR.fullmatch(port["far"])
    peer = far["name"] if far else ""
    silent = peer == "Port not available"
    link = " ".join(port["link"].split())
    return LinkState(
        guid, int(port["port"]), name, port["state"], port["phys"], link, "" if silent else peer, silent
    )


@dataclass(frozen=True, slots=True)
class DownPort:
    """A port that is down though it had a peer, or that someone disabled. `peer` is empty for one without memory.

    GUIDs are device GUIDs.
    """

    guid: str
    port: int
    name: str
    phys: str
    peer: str = ""
    peer_port: int = 0


def down_ports(
    states: Iterable[LinkState], had: Mapping[Port, Port], *, now: Topology | None = None
) -> list[DownPort]:
    """Switch ports that are down and should not be: an empty cage and a broken cable look alike, so that it takes
    the memory of a cable that the port had, or the state Disabled.

    `had` is what ports are known to have been cabled to; `now` is the map that goes with the states: a far end that
    is cabled elsewhere in it was moved, and its old port is rightly empty.
    """
    cabled = {end for link in now.links for end in ends_of(link)} if now else set()
    found = []
    for one in states:
        peer = had.get((one.guid, one.port))
        if one.is_down and ((peer and peer not in cabled) or one.phys.lower() == "disabled"):
            far = peer if peer and peer not in cabled else ("", 0)
            found.append(DownPort(one.guid, one.port, one.name, one.phys, *far))
    return sorted(found, key=lambda one: (one.guid, one.port))
