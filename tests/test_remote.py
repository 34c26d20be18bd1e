"""What goes to other machines, without any: steps, routes, sudoers lines, findings."""

import json
import os
import re
import shlex
import stat
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from llmgw.base import LlmgwError, visible
from llmgw.cli.logs import MASK, masker
from llmgw.remote.findings import unreachable_finding
from llmgw.remote.inventory import opened, read_listing
from llmgw.remote.playbook import PLAYBOOKS, forks, literal, open_session, ssh_arguments
from llmgw.remote.scratch import run_folder
from llmgw.remote.ssh import route
from llmgw.remote.steps import (
    FabricScanPort,
    FactsQuery,
    ProbeRank,
    PublishDocuments,
    StartRank,
    StopRank,
)
from llmgw.remote.sudoers import privileged_commands, sudoers_lines
from llmgw.site import HostVariables, InventoryHost, Site, make_site, parse_catalogue, parse_settings

ROLES = {
    "facts": (FactsQuery, "facts_query"),
    "engine_start": (StartRank, "engine_start_ranks"),
    "engine_stop": (StopRank, "engine_stop_ranks"),
    "engine_probe": (ProbeRank, "engine_probe_ranks"),
    "publish": (PublishDocuments, "publish_documents"),
    "fabric_scan": (FabricScanPort, "fabric_scan_port"),
}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_takes_exactly_the_fields_of_its_type(role: str) -> None:
    kind, variable = ROLES[role]
    written = yaml.safe_load((PLAYBOOKS / "roles" / role / "meta" / "argument_specs.yml").read_text())
    options = written["argument_specs"]["main"]["options"]
    assert list(options) == [variable]
    assert set(options[variable]["options"]) == set(kind.__dataclass_fields__)
    assert all(option["required"] for option in options[variable]["options"].values())


@pytest.mark.parametrize("path", sorted(PLAYBOOKS.glob("roles/*/tasks/*.yml")), ids=lambda path: path.parts[-3])
def test_tasks_only_substitute(path: Path) -> None:
    for task in yaml.safe_load(path.read_text()):
        assert not set(task) & {"when", "loop", "with_items", "set_fact", "vars", "until"}
        for expression in re.findall(r"\{\{(.*?)\}\}", str(task)):
            assert re.fullmatch(r"\s*[a-z_.]+( \| join\('\\n'\))?\s*", expression), expression


@given(
    st.recursive(
        st.text() | st.integers() | st.booleans(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_c1_every_text_that_goes_to_a_host_is_marked_as_no_template(value: Any) -> None:
    def texts(made: Any) -> None:
        if isinstance(made, dict) and set(made) == {"__ansible_unsafe"}:
            assert isinstance(made["__ansible_unsafe"], str)
        elif isinstance(made, dict):
            for item in made.values():
                texts(item)
        elif isinstance(made, list):
            for item in made:
                texts(item)
        else:
            assert not isinstance(made, str)

    texts(literal(value))


def test_b3_no_code_of_ours_accepts_an_unknown_host_key() -> None:
    root = Path(__file__).parent.parent
    for path in [*root.glob("llmgw/**/*.py"), *root.glob("playbooks/**/*"), *root.glob("inventories/**/*")]:
        if path.is_file() and path.suffix != ".pyc" and "playbooks" not in path.relative_to(root).parts[1:2]:
            text = path.read_text()
            assert "AutoAdd" not in text, path
            assert not re.search(r"StrictHostKeyChecking\s*=\s*(no|accept-new|off)", text, re.IGNORECASE), path


def test_b4_no_agent_is_forwarded_and_nothing_is_asked() -> None:
    words = ssh_arguments(10)
    for option in ("ForwardAgent=no", "BatchMode=yes", "StrictHostKeyChecking=yes", "ServerAliveInterval=5"):
        assert option in words


def host(**connection: Any) -> InventoryHost:
    return InventoryHost(name="n1", variables=HostVariables(), connection=connection)


def test_a_host_is_reached_as_the_inventory_says() -> None:
    way = route(
        host(
            ansible_host="10.0.0.1",
            ansible_port=2222,
            ansible_user="ops",
            ansible_ssh_private_key_file="/keys/id",
            ansible_ssh_common_args="-o UserKnownHostsFile=/keys/known -o ProxyJump=jump@gate:2200",
        ),
        {"hostname": "elsewhere", "user": "other"},
        home=Path("/home/mk"),
    )
    assert (way.host, way.port, way.user, way.keys) == ("10.0.0.1", 2222, "ops", ("/keys/id",))
    assert (way.known_hosts, way.jumps) == (("/keys/known",), ("jump@gate:2200",))


def test_what_the_inventory_leaves_out_comes_from_ssh_config() -> None:
    config: dict[str, str | list[str]] = {
        "hostname": "10.9.9.9",
        "port": "22022",
        "identityfile": ["/home/mk/.ssh/id"],
    }
    way = route(host(), config, home=Path("/home/mk"))
    assert (way.host, way.port, way.keys) == ("10.9.9.9", 22022, ("/home/mk/.ssh/id",))
    assert way.known_hosts == ("/home/mk/.ssh/known_hosts",)


def site() -> Site:
    settings = parse_settings("name: s\nengines: {llama.cpp: {b1: {path: /opt}}}\n", "x")
    catalogue = parse_catalogue("models: {}", "y", settings)
    return make_site(settings, {"gpu_nodes": {"hosts": ["n1"]}}, catalogue, inventory_name="z")


def allowed(lines: list[str], argv: tuple[str, ...]) -> bool:
    """Whether sudo would match the command against a line: path equal, arguments against the anchored expression."""
    for line in lines:
        path, _, pattern = line.partition("NOPASSWD: ")[2].partition(" ")
        if path.rpartition("/")[2] == argv[0] and re.fullmatch(pattern.strip("^$"), " ".join(argv[1:])):
            return True
    return False


def test_the_sudoers_lines_allow_exactly_what_the_modules_run() -> None:
    lines = sudoers_lines(site(), "ops")
    for command in privileged_commands(site(), scans=True):
        assert allowed(lines, command), command


@pytest.mark.parametrize(
    "command",
    [
        "systemctl stop --no-block llmgw-m-0.service sshd.service",
        "systemctl stop --no-block sshd.service",
        "systemctl start llmgw-m-0.service",
        "systemd-run --quiet --unit=llmgw-m-0 -- /bin/sh",
        "systemd-run --uid=root -- /bin/sh",
        "journalctl --identifier=llmgw-m-0 --since=@0 --lines=9 --output=cat --no-pager --quiet --unit=sshd",
        "timeout --kill-after=5 60 /bin/sh -C mlx5_0 -P 1",
        "timeout --kill-after=5 60 /usr/sbin/ibnetdiscover -C mlx5_0 -P 1 --load-cache /etc/shadow",
    ],
)
def test_the_sudoers_lines_allow_nothing_else(command: str) -> None:
    assert not allowed(sudoers_lines(site(), "ops"), tuple(shlex.split(command)))


def test_a_unit_cannot_be_given_another_account_by_sudo() -> None:
    (command,) = [one for one in privileged_commands(site(), scans=False) if one[0] == "systemd-run"]
    for position in range(1, len(command) - 1):
        for extra in ("--uid=root", "--property=User=root", "--property=ExecStartPre=/bin/sh"):
            assert not allowed(sudoers_lines(site(), "ops"), (*command[:position], extra, *command[position:]))


@pytest.mark.parametrize(
    ("why", "next_"),
    [
        ("Host key verification failed.", "ssh-keyscan"),
        ("ops@n1: Permission denied (publickey).", "ssh -v n1"),
        ("connect to host 10.0.0.1 port 22: Connection refused", "ssh n1 true"),
    ],
)
def test_an_unreachable_host_comes_with_what_to_try(why: str, next_: str) -> None:
    assert next_ in unreachable_finding("n1", why).next


@given(st.from_regex(r"[A-Za-z0-9_-]{20,40}", fullmatch=True), st.text(), st.text())
def test_b11_known_keys_are_masked_in_logs(key: str, before: str, after: str) -> None:
    assert masker([key])(f"{before}{key}{after}") == f"{visible(before)}{MASK}{visible(after)}"


def test_b11_a_run_folder_that_a_killed_process_left_is_removed_and_a_live_one_is_not(
    tmp_path: Path,
) -> None:
    abandoned, fresh, others = (tmp_path / f"llmgw-run-{name}" for name in ("abandoned", "fresh", "others"))
    for folder in (abandoned, fresh, others):
        folder.mkdir()
        (folder / "variables.json").write_text("secret")
    with run_folder(tmp_path) as live:
        assert stat.S_IMODE(live.stat().st_mode) == 0o700
        for folder in (abandoned, live, others):
            os.utime(folder, (0, 0))
        others.rename(tmp_path / "llmgw-other")
        with run_folder(tmp_path) as second:
            assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
                [live.name, second.name, "llmgw-other", "llmgw-run-fresh"]
            )
    assert not live.exists()


def test_b11_the_sockets_of_a_session_are_in_a_private_folder_that_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "r"
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    with open_session(tmp_path / "hosts.yml") as session:
        assert len(f"{session.sockets}/1234567890.{'x' * 16}") < 108
        assert stat.S_IMODE(session.sockets.stat().st_mode) == 0o700
        assert session.sockets.parent == (runtime if len(str(runtime)) < 40 else Path(tempfile.gettempdir()))
    assert not session.sockets.exists()


def test_how_many_hosts_at_once_is_ansibles_own_setting_where_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "ansible.cfg"
    monkeypatch.delenv("ANSIBLE_FORKS", raising=False)
    assert forks(settings, hosts=2) == 2
    assert 5 <= (forks(settings, hosts=1000) or 0) <= 50
    settings.write_text("[defaults]\nforks = 20\n")
    assert forks(settings, hosts=1000) is None
    settings.write_text("no section\n")
    assert forks(settings, hosts=2) == 2
    monkeypatch.setenv("ANSIBLE_FORKS", "30")
    assert forks(settings, hosts=2) is None


def test_b11_a_variable_that_ansible_vault_keeps_is_opened_with_the_sites_settings(tmp_path: Path) -> None:
    (tmp_path / "ansible.cfg").write_text(f"[defaults]\nvault_password_file = {tmp_path / 'password'}\n")
    (tmp_path / "password").write_text("x")
    argv = [str(Path(sys.executable).parent / "ansible-vault"), "encrypt_string", "--name", "sealed", "canary"]
    argv += ["--vault-password-file", str(tmp_path / "password")]
    sealed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    group = f"all:\n  hosts: {{n1: }}\n  vars:\n    number: 7\n{textwrap.indent(sealed, '    ')}"
    (tmp_path / "hosts.yml").write_text(group)
    known = read_listing(tmp_path / "hosts.yml")["_meta"]["hostvars"]["n1"]
    assert "canary" not in json.dumps(known)
    assert opened(known["sealed"], tmp_path / "hosts.yml") == "canary"
    assert opened(known["number"], tmp_path / "hosts.yml") == "7"
    (tmp_path / "password").write_text("y")
    with pytest.raises(LlmgwError, match="ansible-vault") as caught:
        opened(known["sealed"], tmp_path / "hosts.yml")
    assert "vault_password_file" in caught.value.hint
