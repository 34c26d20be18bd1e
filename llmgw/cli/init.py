"""llmgw init: a commented site folder."""

from importlib.resources import files
from pathlib import Path

import click

from llmgw.base import LlmgwError
from llmgw.cli.workspace import CATALOGUE, HOSTS, SETTINGS, say

FILES = (SETTINGS, HOSTS, CATALOGUE)


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--name", help="The site's name; else the folder's.")
def init(folder: Path, name: str | None) -> None:
    """Write a commented site folder.

    DIR gets llmgw.yml (the site), hosts.yml (an Ansible inventory) and models.yml (the catalogue), each with every key
    that there is and what it means. Nothing that exists is overwritten. Keep the folder in git.
    """
    present = [file for file in FILES if (folder / file).exists()]
    if present:
        raise LlmgwError(f"{folder / present[0]}: exists already", hint="name a new folder, or edit what is there")
    folder.mkdir(parents=True, exist_ok=True)
    example = files("llmgw.site") / "example"
    for file in FILES:
        text = (example / file).read_text()
        (folder / file).write_text(text.replace("name: example", f"name: {name or folder.resolve().name}"))
    say(f"wrote {', '.join(FILES)} in {folder}")
    say(f"next: edit them, then  llmgw --site {folder} check")
