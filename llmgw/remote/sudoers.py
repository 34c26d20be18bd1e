"""The lines that a site's sudoers must have, and the commands by which a node is asked whether it has them.

They are exactly the commands that playbooks/module_utils/llmgw_node.py and llmgw_scan.py run as root. Regular
expressions in sudoers need sudo 1.9.10 (2022) or later: sudoers(5).
"""

import re

from llmgw.remote.steps import account, run_dir
from llmgw.site import Site

_UNIT = r"llmgw-[A-Za-z0-9._:-]+"
_RUN = (
    "--quiet --unit={unit} --uid={account} --gid={account} --slice=llmgw.slice --property=Type=exec "
    "--property=KillMode=mixed --property=TimeoutStopSec={stop_s} --property=LimitMEMLOCK=infinity "
    "--property=LimitNOFILE=1048576 --property=OOMScoreAdjust=500 --property=SyslogIdentifier={unit} "
    "--property=ExecStopPost=-{folder}/sweep"
)
_JOURNAL = (
    f"--identifier={_UNIT} --since=@[0-9]+( --until=@[0-9]+)? --lines=[0-9]+ --output=(cat|short-iso) "
    "--no-pager --quiet( --follow)?"
)
_MARK = r"( --setenv=LLMGW_[A-Z]+=[A-Za-z0-9._:/-]+){5}"


def sudoers_lines(site: Site, user: str) -> list[str]:
    """The lines for one login account, for a file of their own in /etc/sudoers.d."""
    places = sorted({(account(site, node), run_dir(site, node)) for node in site.nodes})
    commands = [
        *(_start_command(name, folder) for name, folder in places),
        rf"/usr/bin/systemctl ^stop --no-block {_UNIT}\.service$",
        rf"/usr/bin/systemctl ^kill --kill-whom=all --signal=SIGKILL {_UNIT}\.service$",
        rf"/usr/bin/systemctl ^reset-failed {_UNIT}\.service$",
        f"/usr/bin/journalctl ^{_JOURNAL}$",
        *_scan_commands(site),
    ]
    return [f"{user} ALL=(root) NOPASSWD: {command}" for command in commands]


def _start_command(name: str, runs: str) -> str:
    """What starts a unit, as that account and from that folder of runs only."""
    folder = f"{re.escape(runs)}/{_UNIT}"
    start = _regex(_RUN, unit=_UNIT, account=re.escape(name), stop_s="[0-9]+", folder=folder)
    return f"/usr/bin/systemd-run ^{start}{_MARK} -- {folder}/start$"


def _regex(template: str, **words: str) -> str:
    """The template as a regular expression, its words put in as they are."""
    parts = re.split(r"\{([a-z_]+)\}", template)
    return "".join(
        words[part] if index % 2 else re.escape(part).replace(r"\ ", " ") for index, part in enumerate(parts)
    )


def _scan_commands(site: Site) -> list[str]:
    if not site.settings.scan.sudo:
        return []
    port = "-C [A-Za-z0-9_.-]+ -P [0-9]+"
    options = "".join(f" {re.escape(option)}" for option in site.settings.scan.options)
    tools = sorted(
        {_absolute(node.variables.ibnetdiscover) for node in site.nodes}
        | {_absolute(node.variables.iblinkinfo) for node in site.nodes}
    )
    return [
        f"/usr/bin/timeout ^--kill-after=5 [0-9]+ {re.escape(tool)} {port}"
        + (f"{options}$" if tool.endswith("ibnetdiscover") else "$")
        for tool in tools
    ]


def _absolute(program: str) -> str:
    return program if program.startswith("/") else f"/usr/sbin/{program}"


def privileged_commands(site: Site, *, scans: bool) -> tuple[tuple[str, ...], ...]:
    """One example of each command that must be allowed: engines', and where the node scans, the scan's."""
    unit, name = "llmgw-check-0", site.settings.account
    folder = f"{site.settings.run_dir}/{unit}"
    run = _RUN.format(unit=unit, account=name, stop_s=60, folder=folder).split()
    marks = [f"--setenv=LLMGW_{mark}=x" for mark in ("REPLICA", "RANK", "PLAN", "ACTION", "SPEC")]
    commands = [
        ("systemd-run", *run, *marks, "--", f"{folder}/start"),
        ("systemctl", "stop", "--no-block", f"{unit}.service"),
        ("systemctl", "kill", "--kill-whom=all", "--signal=SIGKILL", f"{unit}.service"),
        ("systemctl", "reset-failed", f"{unit}.service"),
        (
            "journalctl",
            f"--identifier={unit}",
            "--since=@0",
            "--lines=20",
            "--output=cat",
            "--no-pager",
            "--quiet",
        ),
    ]
    if scans and site.settings.scan.sudo:
        scan = site.settings.scan
        tool = _absolute(site.nodes[0].variables.ibnetdiscover)
        commands.append(
            ("timeout", "--kill-after=5", str(scan.timeout_s), tool, "-C", "mlx5_0", "-P", "1", *scan.options)
        )
    return tuple(commands)


def node_prepare(site: Site, user: str) -> dict[str, object]:
    """What role node_prepare is given: the account, its folder, who logs in, and what that account may run as root."""
    return {
        "account": site.settings.account,
        "run_dir": site.settings.run_dir,
        "login": user,
        "sudoers": sudoers_lines(site, user),
    }
