"""llmgw init: a commented site folder."""

from importlib.resources import files
from pathlib import Path

import click

from llmgw.base import DocumentError, LlmgwError, UsageError
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
    example = files("llmgw.site") / "example"
    texts = {file: (example / file).read_text() for file in FILES}
    texts[SETTINGS] = _named(texts[SETTINGS], name or folder.resolve().name)
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        (folder / file).write_text(text)
    say(f"wrote {', '.join(FILES)} in {folder}")
    say(f"next: edit them, then  llmgw --site {folder} check")


def _named(settings: str, name: str) -> str:
    """The settings with the site's name; UsageError where it cannot be one."""
    import yaml

    from llmgw.site import parse_settings

    text = settings.replace("name: example", f"name: {yaml.safe_dump(name).splitlines()[0]}", 1)
    try:
        parse_settings(text, SETTINGS)
    except DocumentError as error:
        raise UsageError(
            f"{name!r} cannot be the name of a site: {error.message}", hint="give one with --name"
        ) from None
    return text
