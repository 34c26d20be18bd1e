"""From what the facts module brought back, as the node wrote it, to NodeFacts. What cannot be read is a problem."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from llmgw.observed.facts import (
    Adapter,
    Disk,
    Gpu,
    GpuProcess,
    InstalledEngine,
    NodeFacts,
    Orphan,
    Rights,
    Run,
    Weights,
)

_GUID_TEXT = re.compile(r"(?:[0-9a-f]{4}:){3}[0-9a-f]{4}", re.ASCII)
_RUN_STATES = ("running", "stopping", "exited")


def parse_facts(node: Mapping[str, Any], *, seen_at: datetime) -> NodeFacts:
    """NodeFacts of the `node` value of one llmgw_facts answer, which arrived at `seen_at` by our own clock."""
    problems = [str(problem) for problem in node.get("problems", ())]
    runs, orphans = _runs(node.get("runs", ()), problems)
    orphans += _strays(node.get("strays", ()), {pid for orphan in orphans for pid in orphan.pids})
    return NodeFacts(
        seen_at=seen_at.replace(microsecond=0),
        hostname=str(node.get("hostname", "")),
        boot_id=str(node.get("boot_id", "")),
        python=str(node.get("python", "")),
        clock_skew_s=int(node.get("time", 0)) - int(seen_at.timestamp()),
        supervisor=node["supervisor"],
        cpus=int(node.get("cpus", 0)),
        memory_mib=_kib(str(node.get("memory", ""))) // 1024,
        gpus=parse_gpus(
            str(node.get("gpus", "")), str(node.get("apps", "")), str(node.get("topology", "")), problems=problems
        ),
        adapters=_adapters(node.get("adapters", ()), problems),
        listen_ports=tuple(sorted(int(port) for port in node.get("listen_ports", ()))),
        ephemeral_ports=_port_pair(str(node.get("ephemeral_ports", ""))),
        runs=runs,
        orphans=orphans,
        engines=tuple(_engine(one) for one in node.get("engines", ())),
        weights=tuple(Weights(**one) for one in node.get("weights", ())),
        disks=tuple(
            Disk(path=one["path"], free_bytes=one["free"], total_bytes=one["total"])
            for one in node.get("disks", ())
        ),
        rights=Rights(**node.get("rights", {})),
        slurm=parse_slurm_state(str(node.get("slurm", "")), problems=problems),
        problems=tuple(problems),
    )


def _kib(meminfo: str) -> int:
    match = re.search(r"([0-9]+) kB", meminfo)
    return int(match[1]) if match else 0


def _port_pair(text: str) -> tuple[int, int]:
    words = text.split()
    return (int(words[0]), int(words[1])) if len(words) == 2 and all(map(str.isdigit, words)) else (32768, 60999)


def _engine(one: Mapping[str, Any]) -> InstalledEngine:
    return InstalledEngine(
        engine=one["engine"], version=one["version"], path=one["path"], runnable=bool(one["runnable"])
    )


def parse_gpus(listing: str, apps: str, topology: str, *, problems: list[str]) -> tuple[Gpu, ...]:
    """GPUs of nvidia-smi's two CSV listings and its `topo -m` matrix; lines of no known form go to `problems`.

    Columns: index, uuid, name, memory.total (MiB), pci.bus_id; and gpu_uuid, pid, used_memory, process_name.
    """
    holders: dict[str, list[GpuProcess]] = {}
    for line in filter(str.strip, apps.splitlines()):
        fields = [field.strip() for field in line.split(",", 3)]
        if len(fields) == 4 and fields[1].isdigit():
            memory = int(fields[2]) if fields[2].isdigit() else 0
            holders.setdefault(fields[0], []).append(
                GpuProcess(pid=int(fields[1]), name=fields[3], memory_mib=memory)
            )
        else:
            problems.append(f"nvidia-smi: no process: {line.strip()[:100]}")
    links, numa = parse_topology(topology)
    found = []
    for line in filter(str.strip, listing.splitlines()):
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 5 or not fields[0].isdigit() or not fields[3].isdigit():
            problems.append(f"nvidia-smi: no GPU: {line.strip()[:100]}")
            continue
        index = int(fields[0])
        found.append(
            Gpu(
                index=index,
                uuid=fields[1],
                model=fields[2],
                memory_mib=int(fields[3]),
                pci=_pci(fields[4]),
                numa=numa.get(index),
                nvlink=links.get(index, ()),
                processes=tuple(holders.get(fields[1], ())),
            )
        )
    return tuple(sorted(found, key=lambda gpu: gpu.index))


def _pci(address: str) -> str:
    """nvidia-smi writes the domain with eight digits and in capitals, the kernel with four: 0000:18:00.0."""
    domain, colon, rest = address.lower().partition(":")
    return f"{domain[-4:]}:{rest}" if colon and len(domain) == 8 else address.lower()


def parse_topology(matrix: str) -> tuple[dict[int, tuple[int, ...]], dict[int, int]]:
    """NVLink neighbours and NUMA node by GPU index, of `nvidia-smi topo -m`; empty where it is of no known form.

    A row is `GPU0  X  NV18  SYS ...  0-47  0  N/A`: one cell for each column of the heading. NV and a number of links
    is NVLink. The NUMA affinity is the last column but one.
    """
    rows = [line.split("\t") for line in matrix.splitlines() if re.match(r"\s*GPU[0-9]+\s", line)]
    links: dict[int, tuple[int, ...]] = {}
    numa: dict[int, int] = {}
    for row in rows:
        cells = [cell.strip() for cell in row]
        index = int(cells[0].removeprefix("GPU"))
        links[index] = tuple(
            column for column, cell in enumerate(cells[1 : len(rows) + 1]) if re.fullmatch(r"NV[0-9]+", cell)
        )
        if len(cells) >= 2 and cells[-2].isdigit():
            numa[index] = int(cells[-2])
    return {index: found for index, found in links.items() if found}, numa


def _adapters(ports: Sequence[Mapping[str, str]], problems: list[str]) -> tuple[Adapter, ...]:
    found = []
    for port in ports:
        node_guid, port_guid = _guid(port["node_guid"]), _guid(port["gid"][-19:])
        if node_guid is None or port_guid is None:
            problems.append(f"adapter {port['device']}/{port['port']}: no GUID in {port['node_guid']!r}")
            continue
        found.append(
            Adapter(
                device=port["device"],
                port=int(port["port"]),
                node_guid=node_guid,
                port_guid=port_guid,
                link_layer=port["link_layer"],
                state=port["state"].partition(":")[2].strip(),
                rate=port["rate"],
                lid=int(port["lid"] or "0", 0),
                pci=port["pci"],
                numa=int(port["numa"]) if port["numa"].isdigit() else None,
            )
        )
    return tuple(found)


def _guid(text: str) -> str | None:
    """`b8ce:f603:0000:0010` as 16 hex digits."""
    lower = text.strip().lower()
    return lower.replace(":", "") if _GUID_TEXT.fullmatch(lower) else None


def _runs(found: Sequence[Mapping[str, Any]], problems: list[str]) -> tuple[tuple[Run, ...], tuple[Orphan, ...]]:
    """The runs with their marks, and what is left of ended ones or carries no marks that can be read."""
    runs, orphans = [], []
    for one in found:
        marks = one["marks"] or _marks_of_environment(one.get("environment", ""))
        alive = one["state"] != "exited"
        try:
            run = _run(one, marks)
        except (KeyError, TypeError, ValueError):
            problems.append(f"{one['unit']}: its marks cannot be read")
            if alive:
                orphans.append(Orphan(unit=one["unit"], pids=(one["pid"],) if one["pid"] else ()))
            continue
        runs.append(run)
        if not alive and one["group"]:
            orphans.append(Orphan(unit=one["unit"], replica=run.replica, pids=tuple(one["group"]), gpus=run.gpus))
    return tuple(runs), tuple(orphans)


def _strays(found: Sequence[Mapping[str, Any]], known: set[int]) -> tuple[Orphan, ...]:
    """Processes that carry the marks of no run that goes on, by unit; `known` pids are orphans already."""
    by_unit: dict[str, list[Mapping[str, Any]]] = {}
    for one in found:
        if one["pid"] not in known:
            by_unit.setdefault(str(one["unit"]), []).append(one)
    return tuple(
        Orphan(
            unit=unit,
            replica=str(here[0]["replica"]),
            pids=tuple(one["pid"] for one in here),
            gpus=tuple(sorted({gpu for one in here for gpu in _numbers(one["gpus"])})),
        )
        for unit, here in sorted(by_unit.items())
    )


def _numbers(text: str) -> list[int]:
    """`0,1,2` as numbers; what is none is left out."""
    return [int(word) for word in str(text).split(",") if word.isdigit()]


def _marks_of_environment(environment: str) -> dict[str, Any]:
    """The marks that a unit carries, for one whose folder is gone: systemd's Environment= line."""
    words = dict(word.partition("=")[::2] for word in environment.split() if word.startswith("LLMGW_"))
    marks: dict[str, Any] = {key.removeprefix("LLMGW_").lower(): value for key, value in words.items()}
    if "rank" in marks:
        marks["rank"] = int(marks["rank"])
    return marks


def _run(one: Mapping[str, Any], marks: Mapping[str, Any]) -> Run:
    started = marks.get("started_at")
    return Run(
        replica=marks["replica"],
        rank=marks["rank"],
        plan=marks["plan"],
        action=marks["action"],
        spec=marks["spec"],
        state=one["state"],
        supervisor=one["supervisor"],
        unit=one["unit"],
        pid=one["pid"],
        gpus=tuple(marks.get("gpus", ())),
        port=marks.get("port"),
        ports=int(marks.get("ports", 1)),
        nodes=tuple(marks.get("nodes", ())),
        started_at=datetime.fromtimestamp(started, UTC) if started else None,
        exit_status=one["ended"],
    )


def parse_slurm_state(text: str, *, problems: list[str]) -> str:
    """The State of `scontrol show node --oneliner`, flags with it: `IDLE+DRAIN`; empty where there is no Slurm."""
    if not text.strip():
        return ""
    match = re.search(r"\bState=(\S+)", text)
    if match:
        return match[1]
    problems.append(f"scontrol: {text.strip()[:150]}")
    return "UNKNOWN"
