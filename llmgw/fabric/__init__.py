"""What the cables are: ibnetdiscover's text in, the fabric out, and what is said, drawn and exported of it."""

from llmgw.fabric.analyse import analyse
from llmgw.fabric.coverage import (
    InventoryPort,
    candidates,
    claims,
    known_ports,
    preferred_sources,
    uncovered,
    unseen_hosts,
)
from llmgw.fabric.diff import Change, ChangeItem, Changes, change_lines, diff
from llmgw.fabric.fabric import Adapter, Cable, Fabric, Finding, Severity, Standing, Switch, Tier
from llmgw.fabric.hostlists import host_list, label_list
from llmgw.fabric.identity import Identity, ScanSource, identify, parse_source
from llmgw.fabric.judge import Reading, Verdict, read
from llmgw.fabric.lean import lean_paths
from llmgw.fabric.linkinfo import DownPort, LinkState, down_ports, parse_linkinfo
from llmgw.fabric.metrics import Sample, prometheus
from llmgw.fabric.node_paths import paths
from llmgw.fabric.owners import KnownPort
from llmgw.fabric.parse import parse
from llmgw.fabric.paths import Domain, NodePath, Paths, Rail, ShortCable
from llmgw.fabric.rates import gbps, nominal
from llmgw.fabric.remembered import MissedCable, cabled_ports, missed_cables, overlaid
from llmgw.fabric.roles import Part, Role, parts
from llmgw.fabric.same import substance
from llmgw.fabric.scan import LIMIT_BYTES, Problem, Scan, Trouble, Weight
from llmgw.fabric.slurm import slurm_conf, slurm_yaml
from llmgw.fabric.topology import Summary, Topology, summary, topology
from llmgw.fabric.verify import FindingItem, Findings, finding_lines, verify

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
    "analyse",
    "cabled_ports",
    "candidates",
    "change_lines",
    "claims",
    "diff",
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
    "parse",
    "parse_linkinfo",
    "parse_source",
    "parts",
    "paths",
    "preferred_sources",
    "prometheus",
    "read",
    "slurm_conf",
    "slurm_yaml",
    "substance",
    "summary",
    "topology",
    "uncovered",
    "unseen_hosts",
    "verify",
]
