"""The llmgw command: finds the command that was asked for, and turns what it raises into words and an exit code."""

import gc
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

import click

from llmgw.cli.commands import COMMANDS


def _give_verbose(command: click.Command) -> None:
    """-v also behind the command, where hands that know kubectl and Ansible type it."""
    if isinstance(command, click.Group):
        for below in command.commands.values():
            _give_verbose(below)
    elif not any(parameter.name == "louder" for parameter in command.params):
        option = ["-v", "--verbose", "louder"]
        command.params.append(
            click.Option(option, count=True, expose_value=False, callback=_louder, help="Say more.")
        )


def _louder(ctx: click.Context, _parameter: click.Parameter, value: int) -> None:
    from llmgw.cli.workspace import Workspace

    if value and isinstance(ctx.obj, Workspace):
        ctx.obj = replace(ctx.obj, verbose=ctx.obj.verbose + value)
        ctx.call_on_close(ctx.obj.close)


ERROR, USAGE, INTERRUPTED, TERMINATED = 1, 2, 130, 143  # ExitCode's, which help must not wait for
_USUAL, _SELDOM = gc.get_threshold(), 10_000  # new values, most of which stay, before a look for cycles
HELP = """Serve LLMs from HPC GPU nodes with InfiniBand.

\b
A first day:
  llmgw init inventories/mysite         write a commented site folder
  export LLMGW_SITE=inventories/mysite
  llmgw check --nodes                   are the files right, can the nodes be reached
  llmgw fabric scan                     map the fabrics
  llmgw plan --out plan.json            what would be started where, and why
  llmgw apply plan.json                 do exactly that
  llmgw status                          what runs, how it is
"""


class LazyGroup(click.Group):
    """A group whose commands' modules are imported when they are asked for: help stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if COMMANDS[name].path]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        found: click.Command = getattr(import_module(entry.module), entry.attribute)
        _give_verbose(found)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by what they are for, from the table alone."""
        for section in dict.fromkeys(entry.section for entry in COMMANDS.values()):
            with formatter.section(section):
                formatter.write_dl(
                    [(name, entry.help) for name, entry in COMMANDS.items() if entry.section == section]
                )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from llmgw.base.names import near

            close = near(args[0], list(COMMANDS)) if args else []
            if close:
                raise click.UsageError(f"{error.message} Did you mean {' or '.join(close)}?", ctx) from None
            raise


@click.group(
    cls=LazyGroup, help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option("--site", metavar="DIR", envvar="LLMGW_SITE", help="The site folder; LLMGW_SITE; else this folder.")
@click.option(
    "--state", metavar="FILE", envvar="LLMGW_STATE", help="The store; LLMGW_STATE; else under XDG_STATE_HOME."
)
@click.option("--no-color", is_flag=True, help="No colour; NO_COLOR does the same.")
@click.option("-v", "--verbose", count=True, help="Say more; twice for still more.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(None, "-V", "--version", package_name="llmgw", message="llmgw %(version)s")
@click.pass_context
def cli(
    ctx: click.Context, site: str | None, state: str | None, no_color: bool, verbose: int, debug: bool
) -> None:
    from llmgw.cli.workspace import Workspace

    ctx.color = colour_wanted(no_color=no_color)
    ctx.obj = Workspace.of(site, state, verbose=verbose, debug=debug)
    ctx.call_on_close(ctx.obj.close)


def colour_wanted(*, no_color: bool) -> bool | None:
    """False: never; True: also into a pipe; None: on a terminal. By NO_COLOR, FORCE_COLOR and CLICOLOR_FORCE."""
    if no_color or os.environ.get("NO_COLOR"):
        return False
    return True if os.environ.get("FORCE_COLOR") or os.environ.get("CLICOLOR_FORCE", "0") != "0" else None


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command line; its exit code. Errors that an operator can mend have been written to stderr."""
    try:
        code: Any = cli.main(args=argv, prog_name="llmgw", standalone_mode=False)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return USAGE if isinstance(error, click.UsageError) else ERROR
    except BrokenPipeError:
        _give_up_stdout()
        return ERROR
    except (click.Abort, KeyboardInterrupt):
        click.echo("llmgw: interrupted", err=True)
        return INTERRUPTED
    except Terminated:
        click.echo("llmgw: terminated", err=True)
        return TERMINATED
    except Exception as error:
        return _mendable(error, debug="--debug" in (argv if argv is not None else sys.argv))
    return code if isinstance(code, int) else 0


def _give_up_stdout() -> None:
    """Where what was printed cannot be written, Python shall not try again as it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _mendable(error: Exception, *, debug: bool) -> int:
    """The exit code of an error that an operator can mend, said on stderr; anything else is a bug and is raised.

    What the system or an encoding refuses and nobody foresaw is one line too: --debug shows where.
    """
    from llmgw.base import LlmgwError, visible

    if not debug and isinstance(error, OSError | UnicodeError | OverflowError):
        _give_up_stdout()
        error = LlmgwError(f"{type(error).__name__}: {error}", hint="--debug shows where")
    if debug or not isinstance(error, LlmgwError):
        raise error
    first, *rest = error.message.splitlines() or ["unknown error"]
    click.echo(f"llmgw: {visible(first)}", err=True)
    for line in (*rest, *error.hint.splitlines()):
        click.echo(f"       {visible(line)}", err=True)
    return error.exit_code


class Terminated(BaseException):
    """SIGTERM came. Not an Exception: nothing but the way out may catch it."""


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Terminated


def collect_as_usual() -> None:
    """Give Python's cycle collector its usual thresholds back: for a command that goes on until it is stopped."""
    gc.set_threshold(*_USUAL)


def main() -> NoReturn:
    """The console script."""
    signal.signal(signal.SIGTERM, _terminate)
    os.environ.setdefault(
        "PYDANTIC_DISABLE_PLUGINS", "__all__"
    )  # a look into every package's metadata takes 10 ms
    gc.set_threshold(_SELDOM)
    code = run()
    gc.freeze()  # Python looks through everything once more as it ends; what has to be closed is closed
    sys.exit(code)
