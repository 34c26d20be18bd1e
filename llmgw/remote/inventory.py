"""The inventory as Ansible reads it: ansible-inventory --list, so that vault, plugins and ranges work."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmgw.base import LlmgwError

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


def _with_variables(listing: dict[str, Any]) -> dict[str, Any]:
    listing.setdefault("_meta", {}).setdefault("hostvars", {})
    return listing
