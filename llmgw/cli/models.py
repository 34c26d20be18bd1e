"""llmgw models: the catalogue, as it is written and as it runs."""

import click

from llmgw.base import UsageError, near
from llmgw.cli.output import Column, Output, output_options
from llmgw.cli.workspace import Workspace, pass_workspace

COLUMNS = (
    Column("MODEL", "name"),
    Column("REPLICAS", "replicas"),
    Column("ENGINE", "engine"),
    Column("SHAPES", "shapes"),
    Column("PRIORITY", "priority", wide=True),
    Column("ALIASES", "aliases"),
    Column("PROFILES", "profiles", wide=True),
    Column("WEIGHTS", "weights", wide=True),
)


@click.group()
def models() -> None:
    """Show the catalogue."""


@models.command(name="list")
@output_options
@pass_workspace
def list_(workspace: Workspace, output: Output) -> None:
    """List the models that the catalogue asks for."""
    rows = []
    for name, model in workspace.catalogue.models.items():
        profile = model.profiles[model.default]
        rows.append(
            {
                "name": name,
                "replicas": sum(model.counts().values()),
                "engine": f"{profile.engine} {profile.version}",
                "shapes": [str(shape) for shape in profile.shapes],
                "priority": model.priority,
                "aliases": list(model.aliases),
                "profiles": list(model.profiles),
                "weights": model.source.path,
            }
        )
    output.rows("models", rows, COLUMNS, empty="The catalogue has no models.")


@models.command()
@click.argument("name")
@output_options
@pass_workspace
def show(workspace: Workspace, name: str, output: Output) -> None:
    """Show one model with everything that it was given or left to its default."""
    known = workspace.catalogue.models
    found = next((word for word, model in known.items() if name in (word, *model.aliases)), None)
    if found is None:
        close = near(name, list(known))
        raise UsageError(f"the catalogue has no model {name}", hint=f"did you mean {close[0]}?" if close else "")
    document = {"schema": 1, "name": found, **known[found].model_dump(mode="json")}
    (output if not output.for_people else Output("yaml", headers=True)).document(document)
