"""llmgw endpoints: what routers were last told, and the same for other routers."""

from typing import TYPE_CHECKING

import click

from llmgw.base import LlmgwError, UsageError, near
from llmgw.cli.output import Column, Output, output_options
from llmgw.cli.workspace import Workspace, pass_workspace, say

if TYPE_CHECKING:
    from llmgw.serving import EndpointsFile

COLUMNS = (
    Column("ENDPOINT", "name"),
    Column("STATE", "state"),
    Column("URL", "url"),
    Column("NODE", "node"),
    Column("PROFILE", "profile", wide=True),
    Column("WEIGHT", "weight", wide=True),
    Column("SPEC", "spec", wide=True),
)


@click.group()
def endpoints() -> None:
    """Show what routers were last told, or write it for other routers."""


def _file(workspace: Workspace) -> "EndpointsFile":
    from llmgw.store.published import endpoints as published

    found = published(workspace.store)
    if found is None:
        raise LlmgwError("nothing was ever published", hint="llmgw apply publishes what it has started")
    return found


@endpoints.command()
@output_options
@pass_workspace
def show(workspace: Workspace, output: Output) -> None:
    """Show the endpoints of the last generation."""
    file = _file(workspace)
    rows = [{"name": one.id, **one.model_dump(mode="json", exclude={"id"})} for one in file.endpoints]
    output.rows("endpoints", rows, COLUMNS, empty="No endpoint is published.")
    if output.for_people:
        say(f"generation {file.generation}, written {file.written:%Y-%m-%d %H:%M:%SZ}")


@endpoints.command()
@click.option(
    "--format",
    "kind",
    required=True,
    type=click.Choice(["llm-d", "litellm", "vllm-router", "nginx"]),
    help="Who is to read it.",
)
@click.option("--model", help="Only this model's.")
@pass_workspace
def export(workspace: Workspace, kind: str, model: str | None) -> None:
    """Print the ready endpoints as llm-d, LiteLLM, vLLM's router or nginx read them. No key is printed."""
    from llmgw.serving.exports import EXPORTS

    found = _file(workspace).endpoints
    if model is not None:
        known = sorted({endpoint.model for endpoint in found})
        if model not in known:
            close = near(model, known)
            raise UsageError(f"{model} has no endpoint", hint=f"did you mean {close[0]}?" if close else "")
        found = tuple(endpoint for endpoint in found if endpoint.model == model)
    click.echo(EXPORTS[kind](found), nl=False)


@endpoints.command()
@pass_workspace
def publish(workspace: Workspace) -> int:
    """Give the router hosts everything again: after a new router host, or one that was away."""
    from llmgw.cli.publishing import publish_all

    return publish_all(workspace)
