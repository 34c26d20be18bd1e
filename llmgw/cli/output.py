"""Answers on stdout: tables, JSON, YAML or names, the same choice for every command that reads."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import click

from llmgw.base.text import visible

Format = Literal["table", "wide", "json", "yaml", "name"]
SCHEMA = 1
_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its heading, the key of the row's value, and whether only `-o wide` has it."""

    heading: str
    key: str
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """How an answer is to be written."""

    format: Format
    headers: bool

    def rows(self, kind: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], *, empty: str) -> None:
        """A list of things, each with a `name`. JSON and YAML have all keys, tables those of the columns."""
        if self.format in ("json", "yaml"):
            self.document({"schema": SCHEMA, kind: list(rows)})
        elif self.format == "name":
            for row in rows:
                click.echo(row["name"])
        elif rows:
            shown = [column for column in columns if self.format == "wide" or not column.wide]
            click.echo(table(rows, shown, headers=self.headers))
        else:
            click.echo(empty, err=True)

    def document(self, value: Any) -> None:
        """One value, as JSON or YAML."""
        if self.format == "yaml":
            import yaml

            click.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=False, width=100), nl=False)
        else:
            click.echo(json.dumps(value, indent=1, ensure_ascii=True))

    @property
    def for_people(self) -> bool:
        return self.format in ("table", "wide")


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], *, headers: bool) -> str:
    """The rows under headings. What could steer a terminal is spelled out."""
    from tabulate import tabulate

    cells = [[visible(_cell(row.get(column.key))) for column in columns] for row in rows]
    headings = [column.heading for column in columns] if headers else ()
    text = tabulate(cells, headers=headings, tablefmt="plain", disable_numparse=True)
    return "\n".join(line.rstrip() for line in text.splitlines())


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    return str(value)


def newest_option(default: int) -> Callable[[_F], _F]:
    """-n, --limit: how many of a history's newest rows a command shows, given to it as `limit`."""
    return click.option(
        "-n",
        "--limit",
        type=click.IntRange(1, 1 << 40),
        default=default,
        show_default=True,
        help="At most so many of the newest.",
    )


def output_options(command: _F) -> _F:
    """-o and --no-headers, given to the command as `output`."""

    def made(ctx: click.Context, _parameter: click.Parameter, value: str) -> Output:
        return Output(value, headers=not ctx.params.pop("no_headers", False))  # type: ignore[arg-type]

    command = click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "wide", "json", "yaml", "name"]),
        default="table",
        show_default=True,
        callback=made,
        help="How the answer is written.",
    )(command)
    return click.option("--no-headers", is_flag=True, is_eager=True, help="No headings in tables.")(command)
