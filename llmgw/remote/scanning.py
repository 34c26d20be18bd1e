"""Running ibnetdiscover on nodes by playbook, one port of a node at a time, and unpacking what it printed."""

import base64
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from llmgw.fabric import ScanSource
from llmgw.remote.playbook import HostAnswer, Play, Session, run_play
from llmgw.remote.steps import plain, scan_port
from llmgw.site import Site

LIMIT_BYTES = 600 << 20


@dataclass(frozen=True, slots=True)
class ScanText:
    """What came from one port: the tools' texts, or in `failed` why there is none."""

    source: ScanSource
    raw: str = field(default="", repr=False)
    stderr: str = ""
    linkinfo: str = field(default="", repr=False)
    seconds: int = 0
    failed: str = ""


def run_scans(session: Session, site: Site, sources: Collection[ScanSource]) -> list[ScanText]:
    """The texts of these sources, one of each node at most, all at once; in the order of `sources`."""
    asked = {
        source.node: plain(scan_port(site, site.node(source.node), source.device, source.port))
        for source in sources
    }
    by_node = {source.node: source for source in sources}
    deadline_s = 2 * site.settings.scan.timeout_s + site.settings.timeouts.step_s
    found: dict[ScanSource, ScanText] = {}
    for answer in run_play(session, Play("fabric_scan", "scans_by_host", asked, deadline_s=deadline_s)):
        source = by_node[answer.host]
        found[source] = _text(source, answer)
    return [found[source] for source in sources if source in found]


def _text(source: ScanSource, answer: HostAnswer) -> ScanText:
    if answer.outcome != "ok":
        return ScanText(source, failed=answer.why.splitlines()[-1][:300] if answer.why else "no answer")
    scan: Mapping[str, Any] = answer.result["scan"]
    links: Mapping[str, Any] = answer.result.get("links") or {}
    raw, stderr = _unpacked(scan["out"]), str(scan["err"])
    if scan["rc"] == 124:
        return ScanText(source, raw, stderr, failed=f"ibnetdiscover took more than {scan['seconds']} s")
    if scan["rc"] and not raw.strip():
        last = stderr.strip().splitlines()[-1] if stderr.strip() else f"exit status {scan['rc']}"
        return ScanText(source, raw, stderr, failed=f"ibnetdiscover: {last[:300]}")
    linkinfo = _unpacked(links["out"]) if links and links["rc"] == 0 else ""
    return ScanText(source, raw, stderr, linkinfo, int(scan["seconds"]))


def _unpacked(packed: str) -> str:
    """The text of a module's zlib and base64; ends at LIMIT_BYTES, which the parser then refuses."""
    decompressor = zlib.decompressobj()
    data = decompressor.decompress(base64.b64decode(packed), LIMIT_BYTES)
    return data.decode("utf-8", "surrogateescape")
