"""`llmgw router`: the OpenAI API from the published endpoints."""

from typing import Any

import click

_POLICIES = ("least", "two", "session", "prefix")


@click.command("router", short_help="Serve the OpenAI API from the published endpoints.")
@click.option(
    "--published",
    metavar="DIR",
    envvar="LLMGW_PUBLISHED",
    type=click.Path(file_okay=False),
    help="Folder with endpoints.json, keys.json, engine-keys.json and nodes.json; looked at every second.",
)
@click.option(
    "--endpoint",
    "endpoints",
    metavar="ID=URL=MODEL[,MODEL]",
    multiple=True,
    help="An endpoint that is in no file, e.g. gpu1=http://10.0.0.5:8000=qwen. May be repeated.",
)
@click.option(
    "--listen",
    metavar="ADDRESS",
    multiple=True,
    default=("127.0.0.1:8080",),
    show_default=True,
    help="Where clients connect: host:port, [::1]:port, unix:/path or fd:N. May be repeated.",
)
@click.option(
    "--admin-listen", metavar="ADDRESS", default="", help="Status and reload, for operators. Off unless given."
)
@click.option(
    "--metrics-listen", metavar="ADDRESS", default="", help="Prometheus metrics, nothing else. Off unless given."
)
@click.option(
    "--workers", default=1, show_default=True, type=click.IntRange(1, 64), help="Processes; they share limits."
)
@click.option(
    "--policy", type=click.Choice(_POLICIES), default="least", show_default=True, help="How an endpoint is chosen."
)
@click.option(
    "--usage", metavar="FILE", type=click.Path(dir_okay=False), help="SQLite ledger of usage by key and minute."
)
@click.option("--access-log", metavar="FILE", default="", help="One JSON line a request; - for standard output.")
@click.option(
    "--valkey",
    metavar="URL",
    envvar="LLMGW_VALKEY",
    default="",
    help="Valkey or Redis that routers share limits in.",
)
@click.option(
    "--tls-cert", type=click.Path(exists=True, dir_okay=False), help="Certificate chain for --listen, PEM."
)
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False), help="Its key, PEM.")
@click.option("--engine-ca", type=click.Path(exists=True, dir_okay=False), help="Who signs https engines, PEM.")
@click.option(
    "--handover",
    metavar="PATH",
    type=click.Path(dir_okay=False),
    help="Unix socket over which the next router started with it takes this one's place; no request fails.",
)
@click.option(
    "--reuse-port", is_flag=True, help="Listen with SO_REUSEPORT, beside other routers on the same port."
)
@click.option(
    "--admin-token-file",
    type=click.Path(exists=True, dir_okay=False),
    help="Asks for the token in this file on the admin listener. Needed where that is not loopback.",
)
@click.option(
    "--admin-host", "admin_hosts", metavar="NAME", multiple=True, help="A host name that admins' browsers use."
)
@click.option("--name", default="", help="This router's name in endpoints.status. Default: the host's.")
@click.option(
    "--drain", default=30.0, show_default=True, type=click.FloatRange(0), help="Seconds to finish requests in."
)
@click.option(
    "--first-byte", default=600.0, show_default=True, type=click.FloatRange(0.1), help="Longest wait for a token."
)
@click.option(
    "--idle", default=120.0, show_default=True, type=click.FloatRange(0.1), help="Longest pause in a stream."
)
@click.option(
    "--connect", default=3.0, show_default=True, type=click.FloatRange(0.1), help="Longest wait for a connection."
)
@click.option(
    "--queue", default=256, show_default=True, type=click.IntRange(0), help="Requests that may wait per model."
)
@click.option(
    "--queue-time", default=30.0, show_default=True, type=click.FloatRange(0), help="Longest wait there, seconds."
)
@click.option(
    "--max-in-flight", type=click.IntRange(1), help="Requests at an endpoint at a time, where the file sets none."
)
@click.option(
    "--max-body", default=32, show_default=True, type=click.IntRange(1, 1024), help="Longest JSON body, MiB."
)
@click.option(
    "--connections-per-client", default=4096, show_default=True, type=click.IntRange(1), help="From one address."
)
@click.option(
    "--check", default=10.0, show_default=True, type=click.FloatRange(0), help="Seconds between probes; 0: none."
)
@click.option(
    "--load",
    default=0.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Seconds between load readings; 0: none.",
)
def router_command(**options: Any) -> None:
    """Serve the OpenAI API: each request goes to a ready endpoint of its model.

    Reads what `llmgw apply` publishes and nothing else; holds no key to any node. A replaced endpoints.json is
    taken within a second, without touching a stream. SIGTERM finishes what is under way.

    \b
    llmgw router --published /var/lib/llmgw/published --listen 0.0.0.0:8080
    llmgw router --endpoint gpu1=http://10.0.0.5:8000=qwen2.5-7b
    """
    from llmgw.cli.main import collect_as_usual
    from llmgw.router.workers import run

    collect_as_usual()
    run(router_config(**options))


def router_config(**options: Any) -> Any:
    """The RouterConfig of the command line's words; UsageError where they do not go together."""
    import socket
    from pathlib import Path

    from llmgw.base import UsageError
    from llmgw.router.config import Deadlines, Limits, Policy, RouterConfig
    from llmgw.serving.catalog import static_service

    def path(name: str) -> Path | None:
        return Path(options[name]) if options[name] else None

    if not options["published"] and not options["endpoints"]:
        raise UsageError("there is nothing to serve", hint="give --published DIR or --endpoint ID=URL=MODEL")
    if bool(options["tls_cert"]) != bool(options["tls_key"]):
        raise UsageError("--tls-cert and --tls-key go together")
    _check_admin(options["admin_listen"], options["admin_token_file"])
    return RouterConfig(
        name=options["name"] or socket.gethostname(),
        listen=tuple(options["listen"]),
        admin_listen=options["admin_listen"],
        metrics_listen=options["metrics_listen"],
        published=path("published"),
        static=tuple(static_service(text) for text in options["endpoints"]),
        policy=Policy(options["policy"]),
        deadlines=Deadlines(
            connect_s=options["connect"],
            first_byte_s=options["first_byte"],
            idle_s=options["idle"],
            queue_s=options["queue_time"],
            drain_s=options["drain"],
        ),
        limits=Limits(
            body=options["max_body"] << 20,
            queue=options["queue"],
            connections_per_address=options["connections_per_client"],
        ),
        default_max_in_flight=options["max_in_flight"],
        check_s=options["check"],
        load_s=options["load"],
        usage=path("usage"),
        access_log=options["access_log"],
        valkey=options["valkey"],
        tls_certificate=path("tls_cert"),
        tls_key=path("tls_key"),
        engine_ca=path("engine_ca"),
        handover=path("handover"),
        reuse_port=options["reuse_port"],
        workers=options["workers"],
        admin_token_file=path("admin_token_file"),
        trusted_hosts=tuple(options["admin_hosts"]),
    )


def _check_admin(address: str, token_file: str | None) -> None:
    """An admin listener that others can reach needs a token."""
    from llmgw.base import UsageError

    host = address.rpartition(":")[0].strip("[]")
    inside = not address or address.startswith(("unix:", "fd:")) or host in ("127.0.0.1", "::1", "localhost")
    if not inside and not token_file:
        raise UsageError(f"--admin-listen {address} is not loopback", hint="give --admin-token-file as well")
