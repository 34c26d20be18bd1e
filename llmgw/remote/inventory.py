"""The inventory as Ansible reads it: ansible-inventory --list, so that vault, plugins and ranges work.

That takes a second; a static inventory whose files have not changed need not be read again.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from llmgw.base import LlmgwError, digest

TIMEOUT_S = 120


def read_listing(hosts: Path) -> dict[str, Any]:
    """What `ansible-inventory --list` prints of the file: groups, and host variables under `_meta`.

    Holds whatever secrets the inventory does: it is not to be written anywhere as it is (llmgw.site.kept_listing).
    """
    if not hosts.exists():
        raise LlmgwError(f"{hosts}: there is no such file", hint="llmgw init DIR writes a site folder")
    program = Path(sys.executable).parent / "ansible-inventory"
    argv = [str(program) if program.exists() else "ansible-inventory", "-i", str(hosts), "--list"]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            env=_environment(hosts),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LlmgwError(f"{hosts}: ansible-inventory: {error}") from None
    warnings = [line for line in done.stderr.splitlines() if "unable to parse" in line.lower() or "ERROR" in line]
    if done.returncode or warnings:
        raise LlmgwError(f"{hosts}: {' '.join((warnings or done.stderr.splitlines())[-3:])}"[:1500])
    return _with_variables(json.loads(done.stdout))


def _environment(hosts: Path) -> Mapping[str, str]:
    settings = hosts.parent / "ansible.cfg"
    return {
        **os.environ,
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_NOCOLOR": "True",
        "ANSIBLE_DEPRECATION_WARNINGS": "False",
        "ANSIBLE_INVENTORY_UNPARSED_FAILED": "True",
        **({"ANSIBLE_CONFIG": str(settings)} if settings.is_file() else {}),
    }


def opened(value: Any, hosts: Path) -> str:
    """A variable's value as text; of one that Ansible vault keeps (`!vault`) what is in it: ansible-inventory shows
    it sealed. LlmgwError, without either, where the vault cannot be opened."""
    if not isinstance(value, Mapping) or "__ansible_vault" not in value:
        return str(value)
    program = Path(sys.executable).parent / "ansible-vault"
    argv = [str(program) if program.exists() else "ansible-vault", "decrypt", "--output", "-", "-"]
    try:
        done = subprocess.run(
            argv,
            input=value["__ansible_vault"],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            env=_environment(hosts),
            start_new_session=True,  # without a terminal to ask for a password on
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LlmgwError(f"ansible-vault: {error}") from None
    if done.returncode:
        raise LlmgwError(
            f"ansible-vault: {' '.join(done.stderr.split())[-300:]}",
            hint="vault_password_file in the site's ansible.cfg, or ANSIBLE_VAULT_PASSWORD_FILE",
        )
    return done.stdout


def _with_variables(listing: dict[str, Any]) -> dict[str, Any]:
    listing.setdefault("_meta", {}).setdefault("hostvars", {})
    return listing


def fingerprint(hosts: Path, folder: Path) -> str:
    """Changes with anything that a static inventory is read from: files of the site's folder, Ansible's settings and
    its variables in the environment. Empty for an inventory that asks elsewhere: a script, a plugin.
    """
    if os.access(hosts, os.X_OK) or _is_plugin(hosts):
        return ""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not _is_other(path))
    settings = [Path.home() / ".ansible.cfg", Path("/etc/ansible/ansible.cfg"), Path("ansible.cfg")]
    stamps = [_stamp(path) for path in (*files, *settings)]
    variables = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith("ANSIBLE_"))
    return digest([str(hosts.resolve()), stamps, variables, version("ansible-core")])


def _is_plugin(hosts: Path) -> bool:
    """Whether the file is the configuration of an inventory plugin, or no single file at all."""
    return not hosts.is_file() or bool(re.search(r"^plugin\s*:", hosts.read_text(errors="replace"), re.MULTILINE))


def _is_other(path: Path) -> bool:
    """A file of the site's folder that no inventory is read from: llmgw's own documents, a store."""
    return path.name in ("llmgw.yml", "models.yml") or ".db" in path.suffixes


def _stamp(path: Path) -> list[str | int]:
    try:
        found = path.stat()
    except OSError:
        return [str(path)]
    return [str(path), found.st_ino, found.st_size, found.st_mtime_ns]
