"""llmgw fabric schedule: what cron or systemd needs to scan every few minutes, with this site's own paths in it."""

import getpass
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from llmgw.base import UsageError
from llmgw.cli.workspace import Workspace, pass_workspace, say

NAME = "llmgw-fabric-scan"
SERVICE = """\
[Unit]
Description=llmgw: map the InfiniBand fabrics
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
User={user}
ExecStart={command}
TimeoutStartSec=20min
Nice=10
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=full
"""
TIMER = """\
[Unit]
Description=llmgw: map the InfiniBand fabrics every {minutes} minutes

[Timer]
OnCalendar=*:0/{minutes}
RandomizedDelaySec={jitter}
AccuracySec=10
Persistent=false

[Install]
WantedBy=timers.target
"""
# A timer never starts a service that is still running; cron does, and the scan's own lock ends the second one.


@click.command()
@click.argument("kind", type=click.Choice(["crontab", "systemd"]))
@click.option("--every", default=5, show_default=True, metavar="MINUTES", help="How often.")
@click.option(
    "--user", help="The account of the systemd service; else this one. It has the SSH keys to the nodes."
)
@click.option(
    "--textfile", type=click.Path(path_type=Path), help="Where the scan is to write figures for Prometheus."
)
@click.option(
    "-O",
    "--out",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="The folder to write the two systemd units to, like /etc/systemd/system; else they are printed.",
)
@pass_workspace
def schedule(
    workspace: Workspace, kind: str, every: int, user: str | None, textfile: Path | None, out: Path | None
) -> None:
    """Print a crontab line, or a systemd service and timer, that scan the fabrics every few minutes.

    \b
      (crontab -l; llmgw fabric schedule crontab) | crontab -
      llmgw fabric schedule systemd -O /etc/systemd/system --user ops
      systemctl daemon-reload && systemctl enable --now llmgw-fabric-scan.timer

    The scan is silent when all is well. Else it writes one line to stderr, which cron mails and the journal keeps, and
    its exit code is not 0, which makes the unit a failed one.
    """
    if not 1 <= every <= 59 or 60 % every:
        raise UsageError(f"{every} minutes do not divide an hour", hint="like 1, 5, 10 or 15")
    words = _words(workspace, textfile)
    if kind == "crontab":
        click.echo(crontab(words, every=every), nl=False)
        return
    units = systemd(words, every=every, user=user or getpass.getuser())
    if out is None:
        click.echo("\n".join(f"# {name}\n{text}" for name, text in units.items()), nl=False)
        return
    from llmgw.store.files import write_whole

    for name, text in units.items():
        write_whole(out / name, text, mode=0o644)
        say(f"wrote {out / name}")
    say(f"next: systemctl daemon-reload && systemctl enable --now {NAME}.timer")


def _words(workspace: Workspace, textfile: Path | None) -> list[str]:
    """The command line of the scan, with full paths."""
    program = Path(sys.argv[0]).resolve()
    begin = [str(program)] if program.name == "llmgw" else [sys.executable, "-m", "llmgw"]
    state = ["--state", str(workspace.state_file.resolve())] if workspace.state_file else []
    figures = ["--textfile", str(textfile.resolve())] if textfile else []
    site = ["--site", str(workspace.site_folder.resolve())]
    return [*begin, *site, *state, "fabric", "scan", "--cron", *figures]


def crontab(words: Sequence[str], *, every: int) -> str:
    """One line of a crontab(5). A percent sign is a line end there, unless it is escaped."""
    command = shlex.join([*words, "--jitter", str(_jitter_s(every))]).replace("%", "\\%")
    return f"{'*' if every == 1 else f'*/{every}'} * * * * {command}\n"


def systemd(words: Sequence[str], *, every: int, user: str) -> dict[str, str]:
    """The service and its timer, by file name. Quoting: systemd.service(5), command lines."""
    command = " ".join(map(_quoted, words))
    return {
        f"{NAME}.service": SERVICE.format(user=user, command=command),
        f"{NAME}.timer": TIMER.format(minutes=every, jitter=_jitter_s(every)),
    }


def _jitter_s(every: int) -> int:
    return min(60, every * 12)


def _quoted(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return escaped if escaped == word and shlex.quote(word) == word else f'"{escaped}"'
