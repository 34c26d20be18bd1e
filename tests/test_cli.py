"""The command line: every command has its help, and errors say what next."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from llmgw.cli.commands import COMMANDS
from llmgw.cli.main import cli, run
from tests.fakes.paper_site import PaperSite

ROOT = Path(__file__).resolve().parent.parent


def command(name: str) -> click.Command:
    found: click.Command = getattr(import_module(COMMANDS[name].module), COMMANDS[name].attribute)
    return found


def leaves(found: click.Command, path: str) -> list[tuple[str, click.Command]]:
    """A command and all below it that do something."""
    if isinstance(found, click.Group):
        return [leaf for name, below in found.commands.items() for leaf in leaves(below, f"{path} {name}")]
    return [(path, found)]


LEAVES = [leaf for name in COMMANDS for leaf in leaves(command(name), name)]


@pytest.mark.parametrize(("path", "found"), LEAVES, ids=[path for path, _ in LEAVES])
def test_every_command_and_option_has_help(path: str, found: click.Command) -> None:
    assert found.help
    assert found.get_short_help_str(200).endswith(".")
    for parameter in found.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{path} {parameter.opts}"


def test_the_table_of_commands_names_what_is_there() -> None:
    for name in COMMANDS:
        assert command(name).name in (name, f"{name}_", name.rstrip("s"), "break"), name


def llmgw(*words: str, **environment: str) -> Result:
    """A command line through click, with exit codes as the shell would see them."""
    return CliRunner().invoke(cli, list(words), env=environment)


def test_help_of_everything_can_be_shown() -> None:
    assert llmgw("--help").exit_code == 0
    for path, _ in LEAVES:
        shown = llmgw(*path.split(), "--help")
        assert shown.exit_code == 0, path
        assert "Usage:" in shown.output


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["plna"], 2, "Did you mean plan?"),
        (["plan", "--nope"], 2, "No such option"),
        (["--site", "/nowhere", "check"], 1, "/nowhere/llmgw.yml: there is no such file"),
        (["--site", "/nowhere", "check"], 1, "llmgw init DIR writes a site folder"),
    ],
)
def test_a_wrong_command_line_says_what_and_what_next(
    words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == code
    assert said in capsys.readouterr().err


def test_a_closed_pipe_is_no_error_message() -> None:
    script = f"{sys.executable} -m llmgw fabric --help | head -1"
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("Usage:")
    assert "Traceback" not in done.stderr


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['llmgw', '--help']\n"
        "from llmgw.cli.main import run; run()\n"
        "heavy = {'pydantic', 'sqlite_utils', 'aiohttp', 'paramiko', 'ansible_runner', 'tabulate', 'yaml'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("environment", "colour"),
    [({}, None), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, None), ({"FORCE_COLOR": "1"}, True)],
)
def test_colour_follows_the_environment(
    environment: dict[str, str], colour: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llmgw.cli.main import colour_wanted

    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert colour_wanted(no_color=False) is colour


def test_init_writes_what_check_finds_right_and_never_overwrites(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "site"
    assert run(["init", str(folder), "--name", "mine"]) == 0
    assert run(["--site", str(folder), "models", "list", "-o", "name"]) == 0
    assert capsys.readouterr().out.split() == ["qwen2.5-72b", "smollm2-135m"]
    assert run(["init", str(folder)]) == 1
    assert "exists already" in capsys.readouterr().err


def test_the_manual_page_has_every_command_and_option_and_no_fault(tmp_path: Path) -> None:
    page = llmgw("manual").stdout
    for path, found in LEAVES:
        assert f'.SS "llmgw {path}"'.replace("-", r"\-") in page
        for parameter in found.params:
            if isinstance(parameter, click.Option):
                assert parameter.opts[-1].replace("-", r"\-") in page
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed: the page is not set")
    argv = ["groff", "-man", "-ww", "-Tutf8", "-z"]
    done = subprocess.run(argv, input=page, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def shell(*words: str, cwd: Path, stdout: int = subprocess.PIPE) -> "subprocess.CompletedProcess[str]":
    """A command as a shell runs it."""
    argv = [sys.executable, "-m", "llmgw", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(cwd / "state")}
    return subprocess.run(
        argv, cwd=cwd, env=environment, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False
    )


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("nodes", "cordon", "", "-r", "x"), 2, "'' names no node"),
        (("nodes", "cordon", ",", "-r", "x"), 2, "',' names no node"),
        (("nodes", "show", "n*"), 2, "n* is 3 nodes"),
        (("nodes", "cordon", "n1", "-r", "\udcff"), 1, "UnicodeEncodeError"),
        (("init", "new", "--name", "a: b"), 2, "cannot be the name of a site"),
        (("plan", "--repack", "-1"), 2, "--repack"),
        (("history", "-n", "99999999999999999999999"), 2, "--limit"),
        (("fabric", "scan", "--jitter", "inf"), 2, "--jitter"),
        (("keys", "create", ""), 2, "TENANT"),
        (("keys", "create", "-x"), 2, ""),
        (("plan", "--no-refresh", "--facts", "missing.json"), 1, "missing.json: there is no such file"),
        (("router", "--endpoint", "a=http://h:99999=m"), 2, "is no endpoint"),
        (("router", "--endpoint", "a=http://h:1=m", "--listen", "fd:x"), 2, "is no address"),
    ],
)
def test_what_cannot_be_is_said_in_a_line_or_two(
    tmp_path: Path, words: Sequence[str], code: int, says: str
) -> None:
    site = PaperSite(tmp_path / "site", nodes=("n1", "n2", "n3"))
    done = shell("--site", str(site.folder), *words, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert (
        shell("--site", str(site.folder), "nodes", "list", "-o", "json", cwd=tmp_path).stdout.count("cordoned")
        == 0
    )


@pytest.mark.parametrize("name", ["123", "true", "0x10"])
def test_a_site_may_be_called_what_yaml_reads_as_something_else(tmp_path: Path, name: str) -> None:
    assert shell("init", name, cwd=tmp_path).returncode == 0
    assert "nodes" in shell("--site", name, "check", cwd=tmp_path).stderr


def test_an_inventory_without_the_group_says_so(tmp_path: Path) -> None:
    site = PaperSite(tmp_path / "site", nodes=("n1",))
    (site.folder / "hosts.yml").write_text("all: {hosts: {n1: {}}}\n")
    done = shell("--site", str(site.folder), "check", cwd=tmp_path)
    assert "the inventory has no such group" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [("--help",), ("manual",)])
def test_a_full_disk_behind_stdout_is_a_line(tmp_path: Path, words: Sequence[str]) -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        done = shell(*words, cwd=tmp_path, stdout=full.fileno())
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
