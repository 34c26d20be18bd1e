"""`llmgw router`: the OpenAI API from the published endpoints."""

import click


@click.command("router", short_help="Serve the OpenAI API from the published endpoints.")
@click.option("--published", metavar="DIR", type=click.Path(file_okay=False), help="The folder with endpoints.json.")
@click.option("--endpoint", "endpoints", metavar="ID=URL=MODEL[,MODEL]", multiple=True, help="An endpoint given here.")
@click.option("--listen", metavar="ADDRESS", multiple=True, default=("127.0.0.1:8080",), show_default=True)
def router_command(published: str | None, endpoints: tuple[str, ...], listen: tuple[str, ...]) -> None:
    """Serve the OpenAI API: every request to an endpoint of its model."""
    from pathlib import Path

    from llmgw.base import UsageError
    from llmgw.router.config import RouterConfig
    from llmgw.router.serve import run
    from llmgw.serving.catalog import static_service

    if not published and not endpoints:
        raise UsageError("there is nothing to serve", hint="give --published DIR or --endpoint ID=URL=MODEL")
    run(
        RouterConfig(
            listen=listen,
            published=Path(published) if published else None,
            static=tuple(static_service(text) for text in endpoints),
        )
    )
