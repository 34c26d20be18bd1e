"""Small texts of ibnetdiscover, put together line by line: what a test is about stands in the test."""

from datetime import UTC, datetime

_HEADER = """#
# Topology file: generated on Wed Aug  6 16:11:23 2025
#
# Initiated from node 0c42a10300000001 port 0c42a10300000001
"""


NOW = datetime(2026, 12, 1, 8, 47, 56, tzinfo=UTC)


def guid(number: int, kind: str = "H") -> str:
    """The GUID of a made-up adapter or switch."""
    return f"{'b8cef603' if kind == 'S' else '0c42a103'}{number:08x}"


def header(node: int = 1) -> str:
    """What stands above the blocks, with the adapter that scanned."""
    return _HEADER.replace("00000001", f"{node:08x}")


def switch(
    number: int, name: str, *ports: str, size: int = 41, model: int = 0xD2F0, lid: int = 0, ids: str = ""
) -> str:
    """A switch's block. `ids` stands in place of the sysimgguid line."""
    own = guid(number, "S")
    short = f"{int(own, 16):x}"
    system = ids or f"sysimgguid=0x{short}\n"
    head = f'Switch\t{size} "S-{own}"\t\t# "{name}" enhanced port 0 lid {lid or number} lmc 0\n'
    return f"vendid=0x2c9\ndevid=0x{model:x}\n{system}switchguid=0x{short}({short})\n{head}" + "".join(ports)


def adapter(number: int, name: str, *ports: str, size: int = 1, model: int = 0x101B, ids: str = "") -> str:
    """An adapter's block."""
    short = f"{int(guid(number), 16):x}"
    system = ids or f"sysimgguid=0x{short}\n"
    head = f'Ca\t{size} "H-{guid(number)}"\t\t# "{name}"\n'
    return f"vendid=0x2c9\ndevid=0x{model:x}\n{system}caguid=0x{short}\n{head}" + "".join(ports)


def to_adapter(port: int, number: int, name: str, *, rate: str = "4xHDR", peer_port: int = 1, lid: int = 0) -> str:
    """A switch's line towards an adapter, whose LID is a hundred more than its number."""
    short = f"{int(guid(number), 16):x}"
    return f'[{port}]\t"H-{guid(number)}"[{peer_port}]({short}) \t\t# "{name}" lid {lid or 100 + number} {rate}\n'


def to_switch(port: int, number: int, name: str, peer_port: int, *, rate: str = "4xHDR", lid: int = 0) -> str:
    """A switch's line towards a switch."""
    return f'[{port}]\t"S-{guid(number, "S")}"[{peer_port}]\t\t# "{name}" lid {lid or number} {rate}\n'


def from_adapter(
    number: int, leaf: int, name: str, leaf_port: int, *, rate: str = "4xHDR", port: int = 1, lid: int = 0
) -> str:
    """An adapter's line towards its switch."""
    own = f"{int(guid(number), 16):x}"
    tail = f'"{name}" lid {leaf} {rate}\n'
    return f'[{port}]({own}) \t"S-{guid(leaf, "S")}"[{leaf_port}]\t\t# lid {lid or 100 + number} lmc 0 {tail}'


def text(*blocks: str, node: int = 1) -> str:
    """A whole output of these blocks."""
    return header(node) + "".join("\n" + block for block in blocks)


def one_leaf(*names: str, switch_name: str = "leaf", rate: str = "4xHDR") -> str:
    """A fabric of one switch, number 1, with an adapter of each description on its ports from 1."""
    ports = [to_adapter(n, n, name, rate=rate) for n, name in enumerate(names, 1)]
    cards = [adapter(n, name, from_adapter(n, 1, switch_name, n, rate=rate)) for n, name in enumerate(names, 1)]
    return text(switch(1, switch_name, *ports), *cards)
