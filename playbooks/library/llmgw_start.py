#!/usr/bin/python
# Copyright llmgw developers. Apache-2.0.
"""Start ranks of replicas, each once: looks, checks what must hold, writes the marks, starts, looks again."""

DOCUMENTATION = """
module: llmgw_start
short_description: Start ranks of replicas under the node's supervisor
description:
  - A rank that already runs with the same plan and action is left as it is, so a repeated start starts nothing.
  - A rank that runs with other marks, a GPU that is held, a port that is taken, or a missing program fails that rank.
  - Each rank's outcome is in C(ranks); the task fails when any rank failed.
options:
  ranks:
    description: The ranks to start on this node.
    type: list
    elements: dict
    required: true
    suboptions:
      unit: {description: Name of the unit and of the run's folder., type: str, required: true}
      replica: {description: The replica., type: str, required: true}
      rank: {description: Its number in the replica., type: int, required: true}
      plan: {description: The plan's id., type: str, required: true}
      action: {description: The action's id., type: str, required: true}
      spec: {description: Digest of how the replica runs., type: str, required: true}
      nodes: {description: The replica's nodes in rank order., type: list, elements: str, required: true}
      gpus: {description: GPU indices that it takes., type: list, elements: int, required: true}
      port: {description: Its first TCP port., type: int, required: true}
      ports: {description: How many ports it takes., type: int, required: true}
      argv: {description: The program and its arguments., type: list, elements: str, required: true}
      env: {description: Environment., type: dict, required: true}
      secret_env: {description: Environment that must stay secret., type: dict, required: true}
      secret_files: {description: Files of the run's folder with secret text., type: dict, required: true}
      stop_s: {description: Seconds from SIGTERM to SIGKILL., type: int, required: true}
      run_dir: {description: The folder of llmgw's runs., type: path, required: true}
      account: {description: The account that it runs as., type: str, required: true}
      supervisor: {description: How it is run., type: str, choices: [auto, systemd, systemd-user, process],
                   required: true}
      nvidia_smi: {description: The program that shows GPUs., type: str, required: true}
author: llmgw developers
"""

import json
import os
import pwd
import shlex
import time

from ansible.module_utils.llmgw_node import (
    MARKS,
    SUPERVISORS,
    SWEEP,
    Held,
    Problem,
    check_unit,
    each_rank,
    gpu_holders,
    make_supervisor,
    read_marks,
    supervisor_here,
    taken_ports,
)
from ansible.module_utils.llmgw_quiet import QuietModule


def write(path, text, mode, owner):
    """A file that never is readable by more than `mode` says; given to the account where this is root."""
    descriptor = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        if owner:
            os.fchown(descriptor, *owner)
        os.fchmod(descriptor, mode)
        file.write(text)
    os.replace(path + ".new", path)


def owner_of(account):
    """The ids to give files to; None where this is not root, and the group of the folder does it."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(account)
    except KeyError:
        raise Problem("there is no account %s on this node; playbooks/node_prepare.yml makes it" % account)
    return entry.pw_uid, entry.pw_gid


def start_script(rank):
    """The program that the supervisor executes: exports and one exec. Holds secrets; readable by the account only."""
    lines = ["#!/bin/sh", "set -eu"]
    environment = dict(rank["env"], **rank["secret_env"])
    environment.update(("LLMGW_" + key.upper(), str(rank[key])) for key in MARKS)
    environment.update(LLMGW_UNIT=rank["unit"], LLMGW_GPUS=",".join(map(str, rank["gpus"])))
    lines += ["export %s=%s" % (key, shlex.quote(str(environment[key]))) for key in sorted(environment)]
    return "\n".join(lines + ["exec " + " ".join(map(shlex.quote, rank["argv"])), ""])


def check(rank, folder):
    """Raise Problem where the node is not as the plan took it to be."""
    program = rank["argv"][0]
    if not os.access(program, os.X_OK):
        raise Problem("%s is not there or not executable" % program)
    holders = gpu_holders(rank["nvidia_smi"], rank["gpus"])
    if holders:
        raise Problem("GPU %d is held by pid %d (%s)" % holders[0])
    taken = taken_ports(range(rank["port"], rank["port"] + rank["ports"]))
    if taken:
        raise Problem("TCP port %d is taken" % taken[0])


def prepare(rank, folder):
    """Make the run's folder with marks, secret files and start script."""
    owner = owner_of(rank["account"])
    shared = owner is None and os.stat(os.path.dirname(folder)).st_gid != os.getegid()
    if not os.path.isdir(folder):
        os.mkdir(folder, 0o750)
        os.chmod(folder, 0o2770 if shared else 0o700)
    if owner:
        os.chown(folder, *owner)
    marks = {key: rank[key] for key in MARKS}
    marks.update(
        gpus=rank["gpus"],
        port=rank["port"],
        ports=rank["ports"],
        nodes=rank["nodes"],
        account=rank["account"],
        started_at=int(time.time()),
    )
    marks["supervisor"] = supervisor_here(rank["supervisor"])
    for name, text in rank["secret_files"].items():
        if os.path.basename(name) != name or name.startswith("."):
            raise Problem("%r is no name for a file" % name)
        write(os.path.join(folder, name), text, 0o640 if shared else 0o600, owner)
    for name, text in (("start", start_script(rank)), ("sweep", SWEEP)):
        write(os.path.join(folder, name), text, 0o750 if shared else 0o700, owner)
    write(os.path.join(folder, "marks.json"), json.dumps(marks, sort_keys=True), 0o644, owner)
    return marks


def same(marks, rank):
    return bool(marks) and all(marks.get(key) == rank[key] for key in MARKS)


def start(rank, pretend):
    """What was done for one rank: started | running (it ran already) | would start."""
    check_unit(rank["unit"])
    if not os.path.isdir(rank["run_dir"]):
        if os.geteuid() != 0:
            raise Problem("there is no folder %s; playbooks/node_prepare.yml makes it" % rank["run_dir"])
        if not pretend:
            os.makedirs(rank["run_dir"], 0o755)
    if pretend and not os.path.isdir(rank["run_dir"]):
        return {"did": "would start"}
    folder = os.path.join(rank["run_dir"], rank["unit"])
    if pretend:
        return settle(rank, folder, pretend)
    with Held(rank["run_dir"], rank["unit"]):
        return settle(rank, folder, pretend)


def settle(rank, folder, pretend):
    marks = read_marks(folder)
    kind = marks["supervisor"] if marks else supervisor_here(rank["supervisor"])
    supervisor = make_supervisor(kind)
    state, pid, _ = supervisor.state(rank["unit"], folder)
    if state != "exited":
        if same(marks, rank) and state == "running":
            return {"did": "running", "pid": pid}
        raise Problem(
            "%s is %s here with other marks: plan %s, action %s"
            % (rank["unit"], state, (marks or {}).get("plan", "?"), (marks or {}).get("action", "?"))
        )
    check(rank, folder)
    if pretend:
        return {"did": "would start"}
    supervisor.forget(rank["unit"], folder)
    marks = prepare(rank, folder)
    supervisor = make_supervisor(marks["supervisor"])
    supervisor.start(rank["unit"], folder, marks, rank["account"], rank["stop_s"])
    return dict(seen(supervisor, rank["unit"], folder), did="started")


def seen(supervisor, unit, folder):
    """The run a moment after its start; Problem with its last lines where it is gone already."""
    state, pid = "exited", None
    for _ in range(10):
        state, pid, ended = supervisor.state(unit, folder)
        if state == "running" and pid:
            return {"pid": pid}
        time.sleep(0.1)
    lines = supervisor.log(unit, folder, 20)
    raise Problem("\n".join(["ended at once (%s)" % (ended or "no status")] + lines))


def main():
    text, number, path = (
        {"type": "str", "required": True},
        {"type": "int", "required": True},
        {"type": "path", "required": True},
    )
    secret = {"type": "dict", "required": True, "no_log": True}
    module = QuietModule(
        argument_spec={
            "ranks": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "unit": text,
                    "replica": text,
                    "rank": number,
                    "plan": text,
                    "action": text,
                    "spec": text,
                    "nodes": {"type": "list", "elements": "str", "required": True},
                    "gpus": {"type": "list", "elements": "int", "required": True},
                    "port": number,
                    "ports": number,
                    "argv": {"type": "list", "elements": "str", "required": True},
                    "env": {"type": "dict", "required": True},
                    "secret_env": secret,
                    "secret_files": secret,
                    "stop_s": number,
                    "run_dir": path,
                    "account": text,
                    "nvidia_smi": text,
                    "supervisor": {"type": "str", "required": True, "choices": SUPERVISORS},
                },
            }
        },
        supports_check_mode=True,
    )
    each_rank(module, start, ("running",))


if __name__ == "__main__":
    main()
