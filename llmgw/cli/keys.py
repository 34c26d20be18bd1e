"""llmgw keys: what clients show to the router. A key is printed once, when it is made; only its digest is kept."""

from datetime import UTC, datetime
from secrets import token_bytes, token_hex
from typing import TYPE_CHECKING, Any

import click

from llmgw.base import ExitCode, UsageError, duration, near, visible
from llmgw.cli.output import Column, Output, output_options
from llmgw.cli.times import ahead
from llmgw.cli.workspace import Workspace, operator, pass_workspace, say

if TYPE_CHECKING:
    from llmgw.store.keys import KeptKey

COLUMNS = (
    Column("KEY", "name"),
    Column("TENANT", "tenant"),
    Column("STATE", "state"),
    Column("BEGINS", "prefix"),
    Column("MODELS", "models"),
    Column("LIMITS", "limits"),
    Column("EXPIRES", "expires"),
    Column("MADE", "made", wide=True),
    Column("BY", "by", wide=True),
)
_BEGINNING = 12
_AT_LEAST_1 = click.IntRange(min=1)


def _label(_ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A tenant or a key's id as lists and ledgers can show it: 1 to 64 signs, no option's hyphen first."""
    if value is None or (
        0 < len(value) <= 64 and value.isprintable() and value[0] not in "- " and value[-1] != " "
    ):
        return value
    raise click.BadParameter(
        f"{visible(value)[:80]!r}: 1 to 64 printable signs, the first no hyphen", param=parameter
    )


@click.group()
def keys() -> None:
    """Make, list and revoke the keys that clients show to the router.

    Router hosts get digests only. Without any key a router lets everybody in.
    """


@keys.command()
@click.argument("tenant", callback=_label)
@click.option(
    "--id",
    "key_id",
    metavar="ID",
    callback=_label,
    help="The key's name in lists and ledgers; else one is made up.",
)
@click.option("--expires", metavar="TIME", help="Good until then: 12h, 90d, or a time like 2027-03-01.")
@click.option("--model", "models", multiple=True, help="Only this model; again for more. Else all.")
@click.option("--max-in-flight", type=_AT_LEAST_1, help="Requests at a time.")
@click.option("--requests-per-minute", type=_AT_LEAST_1, help="Requests in any 60 seconds.")
@click.option("--tokens-per-minute", type=_AT_LEAST_1, help="Tokens in any 60 seconds, prompts included.")
@click.option("--no-publish", is_flag=True, help="Do not tell the router hosts yet.")
@pass_workspace
def create(
    workspace: Workspace,
    /,
    tenant: str,
    key_id: str | None,
    expires: str | None,
    models: tuple[str, ...],
    no_publish: bool,
    **limits: int | None,
) -> int:
    """Make a key for TENANT and print it, once: stdout has the key and nothing else."""
    from llmgw.serving import ClientKey
    from llmgw.serving.keys import digest_of, make_key
    from llmgw.store.history import record
    from llmgw.store.keys import add_key

    now = datetime.now(UTC).replace(microsecond=0)
    _refuse_unknown(workspace, models)
    shown = make_key(token_bytes(32))
    key = ClientKey(
        id=key_id or f"{tenant}-{token_hex(3)}",
        tenant=tenant,
        digest=digest_of(shown),
        prefix=shown[:_BEGINNING],
        expires=ahead(expires, now=now) if expires else None,
        models=models or None,
        **limits,
    )
    add_key(workspace.store, key, by=operator(), now=now)
    record(workspace.store, "key", key.id, f"made for {tenant}", by=operator())
    say(f"key {key.id} of {tenant}; it is shown this once:")
    click.echo(shown)
    return _told(workspace, no_publish)


def _refuse_unknown(workspace: Workspace, models: tuple[str, ...]) -> None:
    known = workspace.catalogue.models
    for model in models:
        if model not in known:
            close = near(model, sorted(known))
            hint = f"did you mean {close[0]}?" if close else "llmgw models list shows the catalogue"
            raise UsageError(f"the catalogue has no model {model}", hint=hint)


@keys.command(name="list")
@output_options
@pass_workspace
def list_(workspace: Workspace, output: Output) -> None:
    """List the keys that were made, revoked ones too."""
    from llmgw.store.keys import all_keys

    now = datetime.now(UTC)
    rows = [_row(kept, now) for kept in all_keys(workspace.store)]
    output.rows("keys", rows, COLUMNS, empty="No key was ever made: routers let everybody in.")


def _row(kept: "KeptKey", now: datetime) -> dict[str, Any]:
    key = kept.key
    limits = {
        "at a time": key.max_in_flight,
        "requests/min": key.requests_per_minute,
        "tokens/min": key.tokens_per_minute,
    }
    left = (key.expires - now).total_seconds() if key.expires else None
    return {
        "name": key.id,
        "tenant": key.tenant,
        "state": "revoked" if kept.revoked_at else "expired" if left is not None and left <= 0 else "good",
        "prefix": key.prefix,
        "models": list(key.models) if key.models is not None else "all",
        "limits": [f"{limit} {what}" for what, limit in limits.items() if limit] or "none",
        "expires": "never" if left is None else f"in {duration(left)}" if left > 0 else f"{duration(-left)} ago",
        "expires_at": key.expires.isoformat() if key.expires else None,
        "made": kept.made_at,
        "by": kept.made_by,
        "revoked": kept.revoked_at or None,
    }


@keys.command()
@click.argument("key_id", metavar="ID")
@click.option("--no-publish", is_flag=True, help="Do not tell the router hosts yet.")
@pass_workspace
def revoke(workspace: Workspace, key_id: str, no_publish: bool) -> int:
    """Revoke a key for good. Requests that are under way end as they would; new ones are refused."""
    from llmgw.store.history import record
    from llmgw.store.keys import revoke_key

    if revoke_key(workspace.store, key_id, now=datetime.now(UTC)):
        record(workspace.store, "key", key_id, "revoked", by=operator())
        say(f"key {key_id} is revoked")
    else:
        say(f"key {key_id} was revoked before")
    return _told(workspace, no_publish)


def _told(workspace: Workspace, no_publish: bool) -> int:
    """Give router hosts the keys; the exit code."""
    from llmgw.cli.publishing import client_keys, push

    if no_publish:
        say("router hosts do not know yet: llmgw endpoints publish tells them")
        return ExitCode.DONE
    return ExitCode.UNREACHABLE if push(workspace, client_keys(workspace)).failed else ExitCode.DONE
