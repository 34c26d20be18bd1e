"""llmgw manual: the manual page, written from the commands themselves in man(7)'s macros."""

from collections.abc import Iterable, Iterator
from importlib import import_module

import click

from llmgw.base import visible
from llmgw.base.errors import MEANING
from llmgw.cli.commands import COMMANDS

ENVIRONMENT = (
    ("LLMGW_SITE", "the site folder, as --site"),
    ("LLMGW_STATE", "the store, as --state"),
    ("XDG_STATE_HOME", "the store is llmgw/SITE/state.db below it; ~/.local/state where it is not set"),
    ("NO_COLOR, FORCE_COLOR", "no colour, or colour into pipes too"),
    ("SSH_AUTH_SOCK", "the agent that SSH asks for keys; it is never forwarded"),
)
FILES = (
    ("llmgw.yml", "a site's settings; llmgw init writes a commented one"),
    ("models.yml", "the catalogue: what is to be served"),
    ("hosts.yml", "the Ansible inventory; any that ansible-inventory reads"),
    ("state.db", "the store: maps, facts, plans, journal, history (SQLite, mode 0600)"),
    ("/var/lib/llmgw/published", "on router hosts: what llmgw router reads"),
)


@click.command()
def manual() -> None:
    """Print the manual page: llmgw manual | man -l -."""
    click.echo(page(), nl=False)


def page() -> str:
    """llmgw(1) with every command, option, file, variable and exit code."""
    from llmgw.cli.main import HELP

    first, _, rest = HELP.partition("\n")
    lines = [
        '.TH LLMGW 1 "" llmgw "User Commands"',
        ".SH NAME",
        rf"llmgw \- {_roff(first.rstrip('.'))}",
        ".SH SYNOPSIS",
        r".B llmgw",
        r"[\fIOPTIONS\fR] \fICOMMAND\fR [\fIARGS\fR]",
        ".SH DESCRIPTION",
        *_paragraphs(rest),
        ".SH OPTIONS",
        *_options(_root()),
    ]
    for section in dict.fromkeys(entry.section for entry in COMMANDS.values()):
        lines.append(f'.SH "{section.upper()} COMMANDS"')
        for name, entry in COMMANDS.items():
            if entry.section == section:
                command: click.Command = getattr(import_module(entry.module), entry.attribute)
                lines += _command(f"llmgw {name}", command)
    lines += _table("EXIT STATUS", [(str(int(code)), meaning) for code, meaning in MEANING.items()])
    lines += [*_table("ENVIRONMENT", ENVIRONMENT), *_table("FILES", FILES)]
    lines += [".SH SEE ALSO", r"ansible\-playbook(1), ibnetdiscover(8), ssh_config(5), topology.conf(5)"]
    return "\n".join(lines) + "\n"


def _root() -> click.Command:
    from llmgw.cli.main import cli

    return cli


def _command(path: str, command: click.Command) -> Iterator[str]:
    """A command and those below it."""
    if isinstance(command, click.Group):
        yield from (f'.SS "{_roff(path)}"', *_paragraphs(command.help or ""))
        for name, below in command.commands.items():
            yield from _command(f"{path} {name}", below)
        return
    with click.Context(command, info_name=path) as context:
        usage = " ".join(command.collect_usage_pieces(context))
    yield f'.SS "{_roff(path)}"'
    yield rf"\fB{_roff(path)}\fR {_roff(usage)}"
    yield ".PP"
    yield from _paragraphs(command.help or "")
    yield from _options(command)


def _options(command: click.Command) -> Iterator[str]:
    with click.Context(command) as context:
        for parameter in command.params:
            record = parameter.get_help_record(context)
            if record and isinstance(parameter, click.Option):
                yield from _item(record[0], record[1])


def _paragraphs(text: str) -> Iterator[str]:
    """Help as it stands; a paragraph after click's mark that it is set already keeps its lines."""
    for paragraph in text.strip().split("\n\n"):
        lines = [line.strip() for line in paragraph.strip().splitlines()]
        if lines[0] == "\b":
            yield from (".nf", *map(_roff, paragraph.strip().splitlines()[1:]), ".fi")
        else:
            yield _roff(" ".join(lines))
        yield ".PP"


def _table(heading: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield f'.SH "{heading}"'
    for name, meaning in rows:
        yield from _item(name, meaning)


def _item(name: str, meaning: str) -> Iterator[str]:
    yield from (".TP", rf"\fB{_roff(name)}\fR", _roff(meaning))


def _roff(text: str) -> str:
    r"""Text that stays text: backslashes, hyphens that are typed, what is not ASCII, a dot or quote in front."""
    escaped = visible(text).replace("\\", r"\e").replace("-", r"\-")
    plain = "".join(char if char.isascii() else rf"\[u{ord(char):04X}]" for char in escaped)
    return rf"\&{plain}" if plain[:1] in (".", "'") else plain
