"""llmgw usage: what each tenant, key or model took, from a router's ledger."""

from datetime import UTC, datetime
from pathlib import Path

import click

from llmgw.base import LlmgwError
from llmgw.cli.output import Column, Output, output_options
from llmgw.cli.times import ago

_FIELDS = {"tenant": "tenant", "key": "key_id", "model": "model", "profile": "profile", "operation": "operation"}
_SUMS = ("requests", "failed", "prompt", "completion", "cached", "estimated")
LEDGER = "/var/lib/llmgw/usage.sqlite"


@click.command()
@click.option(
    "--ledger",
    default=LEDGER,
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file that llmgw router --usage writes, on the router's host.",
)
@click.option("--since", default="30d", show_default=True, help="From then on: 30m, 2h, 7d, or a time.")
@click.option("--until", default="0s", help="Up to then; else now.")
@click.option(
    "--by",
    "by",
    multiple=True,
    type=click.Choice(list(_FIELDS)),
    default=("tenant", "model"),
    show_default=True,
    help="A line for each; again for several.",
)
@output_options
def usage(ledger: Path, since: str, until: str, by: tuple[str, ...], output: Output) -> None:
    """Show requests and tokens by tenant, key, model, profile or operation, most tokens first.

    Tokens are those that engines told; `estimated` are those among them of streams that were cut off.
    """
    from llmgw.store.usage import UsageLedger

    if not ledger.is_file():
        raise LlmgwError(
            f"{ledger}: there is no ledger", hint="run it on a router's host, or name one with --ledger"
        )
    now = datetime.now(UTC)
    first, last = (int(ago(text, now=now).timestamp()) // 60 for text in (since, until))
    kept = UsageLedger(ledger)
    found = kept.totals(since=first, until=last + 1, by=tuple(_FIELDS[name] for name in by))
    rows = [
        {"name": "/".join(getattr(row, _FIELDS[name]) or "-" for name in by)}
        | {name: getattr(row, _FIELDS[name]) for name in by}
        | {name: getattr(row, name) for name in _SUMS}
        for row in found
    ]
    columns = [Column(name.upper(), name) for name in by]
    columns += [Column(name.upper(), name, wide=name in ("cached", "estimated")) for name in _SUMS]
    output.rows("usage", rows, columns, empty="Nothing was used in that time.")
