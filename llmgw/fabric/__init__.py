"""What the cables are: ibnetdiscover's text in, the fabric out, and what is said, drawn and exported of it."""

from typing import TYPE_CHECKING

from llmgw.base.later import words_of

if TYPE_CHECKING:
    from llmgw.fabric.coverage import (
        InventoryPort,
        candidates,
        claims,
        known_ports,
        preferred_sources,
        uncovered,
        unseen_hosts,
    )
    from llmgw.fabric.diff import Change, ChangeItem, Changes, change_lines
    from llmgw.fabric.fabric import Adapter, Cable, Fabric, Finding, Severity, Standing, Switch, Tier
    from llmgw.fabric.hostlists import host_list, label_list
    from llmgw.fabric.identity import Identity, ScanSource, identify, parse_source
    from llmgw.fabric.judge import Reading, Verdict, read
    from llmgw.fabric.lean import lean_paths
    from llmgw.fabric.linkinfo import DownPort, LinkState, down_ports, parse_linkinfo
    from llmgw.fabric.metrics import Sample, prometheus
    from llmgw.fabric.owners import KnownPort
    from llmgw.fabric.paths import Domain, NodePath, Paths, Rail, ShortCable
    from llmgw.fabric.rates import gbps, nominal
    from llmgw.fabric.remembered import MissedCable, cabled_ports, missed_cables, overlaid
    from llmgw.fabric.roles import Part, Role, parts
    from llmgw.fabric.same import substance
    from llmgw.fabric.scan import LIMIT_BYTES, Problem, Scan, Trouble, Weight
    from llmgw.fabric.slurm import slurm_conf, slurm_yaml
    from llmgw.fabric.topology import Summary, Topology, summary
    from llmgw.fabric.verify import FindingItem, Findings, finding_lines
else:
    __getattr__ = words_of(
        __name__,
        {
            "coverage": "InventoryPort candidates claims known_ports preferred_sources uncovered unseen_hosts",
            "diff": "Change ChangeItem Changes change_lines",
            "fabric": "Adapter Cable Fabric Finding Severity Standing Switch Tier",
            "hostlists": "host_list label_list",
            "identity": "Identity ScanSource identify parse_source",
            "judge": "Reading Verdict read",
            "lean": "lean_paths",
            "linkinfo": "DownPort LinkState down_ports parse_linkinfo",
            "metrics": "Sample prometheus",
            "owners": "KnownPort",
            "paths": "Domain NodePath Paths Rail ShortCable",
            "rates": "gbps nominal",
            "remembered": "MissedCable cabled_ports missed_cables overlaid",
            "roles": "Part Role parts",
            "same": "substance",
            "scan": "LIMIT_BYTES Problem Scan Trouble Weight",
            "slurm": "slurm_conf slurm_yaml",
            "topology": "Summary Topology summary",
            "verify": "FindingItem Findings finding_lines",
        },
    )

__all__ = [
    "LIMIT_BYTES",
    "Adapter",
    "Cable",
    "Change",
    "ChangeItem",
    "Changes",
    "Domain",
    "DownPort",
    "Fabric",
    "Finding",
    "FindingItem",
    "Findings",
    "Identity",
    "InventoryPort",
    "KnownPort",
    "LinkState",
    "MissedCable",
    "NodePath",
    "Part",
    "Paths",
    "Problem",
    "Rail",
    "Reading",
    "Role",
    "Sample",
    "Scan",
    "ScanSource",
    "Severity",
    "ShortCable",
    "Standing",
    "Summary",
    "Switch",
    "Tier",
    "Topology",
    "Trouble",
    "Verdict",
    "Weight",
    "cabled_ports",
    "candidates",
    "change_lines",
    "claims",
    "down_ports",
    "finding_lines",
    "gbps",
    "host_list",
    "identify",
    "known_ports",
    "label_list",
    "lean_paths",
    "missed_cables",
    "nominal",
    "overlaid",
    "parse_linkinfo",
    "parse_source",
    "parts",
    "preferred_sources",
    "prometheus",
    "read",
    "slurm_conf",
    "slurm_yaml",
    "substance",
    "summary",
    "uncovered",
    "unseen_hosts",
]
