"""Every command, where it is, and its line of help: all that `llmgw --help` needs, without importing any of them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: module and attribute as `module:attribute`, the heading that it is listed under, its line of help."""

    path: str
    section: str
    help: str

    @property
    def module(self) -> str:
        return self.path.partition(":")[0]

    @property
    def attribute(self) -> str:
        return self.path.partition(":")[2]


_SITE, _FABRIC, _CHANGE, _RUN, _SERVE = "Site", "Fabrics", "Change", "Operate", "Serve"

COMMANDS: dict[str, Entry] = {
    "init": Entry("llmgw.cli.init:init", _SITE, "Write a commented site folder."),
    "check": Entry("llmgw.cli.check:check", _SITE, "Validate the site's files, and with --nodes every node."),
    "models": Entry("llmgw.cli.models:models", _SITE, "Show the catalogue."),
    "fabric": Entry("llmgw.cli.fabric:fabric", _FABRIC, "Scan, show and draw the InfiniBand fabrics."),
    "plan": Entry("llmgw.cli.plan:plan", _CHANGE, "Show what would be changed, where, and why."),
    "apply": Entry("llmgw.cli.apply:apply", _CHANGE, "Carry out a plan."),
    "status": Entry("llmgw.cli.status:status", _RUN, "Show what runs, where, since when and how it is."),
    "drift": Entry("llmgw.cli.status:drift", _CHANGE, "Show what differs from the catalogue."),
    "reconcile": Entry("llmgw.cli.reconcile:reconcile", _CHANGE, "Repair what failed; for cron, or --follow."),
    "replicas": Entry(
        "llmgw.cli.replicas:replicas", _RUN, "Show replicas, follow their logs, stop or restart one."
    ),
    "endpoints": Entry("llmgw.cli.endpoints:endpoints", _SERVE, "Show or export what routers were told."),
    "router": Entry("llmgw.cli.router:router_command", _SERVE, "Serve the OpenAI API from what is published."),
    "keys": Entry("llmgw.cli.keys:keys", _SERVE, "Make, list and revoke clients' keys."),
    "usage": Entry("llmgw.cli.usage:usage", _SERVE, "Show what tenants and models took, from a router's ledger."),
    "nodes": Entry("llmgw.cli.nodes:nodes", _RUN, "Show nodes; cordon, drain and uncordon them."),
    "history": Entry("llmgw.cli.history:history", _RUN, "Show what happened."),
    "lock": Entry("llmgw.cli.lock:lock", _RUN, "Show or break the lock of a running change."),
    "state": Entry("llmgw.cli.state:state", _RUN, "Back up the store, or show where it is."),
    "manual": Entry("llmgw.cli.manual:manual", _SITE, "Print the manual page: llmgw manual | man -l -."),
}
