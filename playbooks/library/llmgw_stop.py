#!/usr/bin/python
# Copyright llmgw developers. Apache-2.0.
"""Stop ranks of replicas and prove them gone: no process, GPUs idle, ports closed, shared memory given back."""

DOCUMENTATION = """
module: llmgw_stop
short_description: Stop ranks of replicas and prove that nothing of them is left
description:
  - Sends SIGTERM once, waits at most C(wait_s), and says what it sees; asked again, it only looks and waits.
  - With C(force) everything of the run gets SIGKILL.
  - A rank is C(gone) only when its processes have ended, no process holds its GPUs and its ports are closed. Its
    shared memory is given back and its folder is removed then. What is left is named.
options:
  ranks:
    description: The ranks to stop on this node.
    type: list
    elements: dict
    required: true
    suboptions:
      unit: {description: Name of the unit and of the run's folder., type: str, required: true}
      replica: {description: The replica whose run it must be., type: str, required: true}
      plan: {description: The plan whose run it must be; empty for any., type: str, required: true}
      action: {description: The action whose run it must be; empty for any., type: str, required: true}
      force: {description: Kill at once., type: bool, required: true}
      wait_s: {description: Longest wait in this call., type: int, required: true}
      run_dir: {description: The folder of llmgw's runs., type: path, required: true}
      supervisor: {description: How it is run where no marks say it., type: str,
                   choices: [auto, systemd, systemd-user, process], required: true}
      nvidia_smi: {description: The program that shows GPUs., type: str, required: true}
author: llmgw developers
"""

import glob
import os
import pwd
import shutil
import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.llmgw_node import (
    SHARED_MEMORY,
    SUPERVISORS,
    Held,
    Problem,
    check_unit,
    each_rank,
    gpu_holders,
    keep_log,
    listening,
    make_supervisor,
    read_marks,
    runs_in,
    supervisor_here,
)


def stop(rank, pretend):
    """What is seen of the rank after the call: gone (True or False), and what is left."""
    check_unit(rank["unit"])
    folder = os.path.join(rank["run_dir"], rank["unit"])
    if not os.path.isdir(rank["run_dir"]):
        return {"gone": True, "did": "nothing"}
    if pretend:
        return settle(rank, folder, pretend)
    with Held(rank["run_dir"], rank["unit"]):
        return settle(rank, folder, pretend)


def settle(rank, folder, pretend):
    marks = read_marks(folder) or {}
    supervisor = make_supervisor(marks.get("supervisor") or supervisor_here(rank["supervisor"]))
    state, _, _ = supervisor.state(rank["unit"], folder)
    if not marks and state == "exited" and not supervisor.group(rank["unit"], folder):
        return {"gone": True, "did": "nothing"}
    for key in ("replica", "plan", "action"):
        if marks and rank[key] and marks.get(key) != rank[key]:
            raise Problem("%s here is of %s %s, not %s" % (rank["unit"], key, marks.get(key), rank[key]))
    if pretend:
        return {"gone": False, "did": "would stop"}
    did = order(rank, supervisor, folder, state)
    left = wait_gone(rank, supervisor, folder, marks)
    if left:
        return {"gone": False, "did": did, "left": left}
    supervisor.sweep(folder, marks.get("account", ""))
    supervisor.forget(rank["unit"], folder)
    put_away(folder)
    return {"gone": True, "did": did, "shared_memory": shared_memory_of(rank, marks)}


def order(rank, supervisor, folder, state):
    left_over = state == "exited"  # what outlives its main process is owed no grace
    if (rank["force"] or left_over) and supervisor.group(rank["unit"], folder):
        supervisor.kill(rank["unit"], folder)
        return "killed"
    if state == "running":
        supervisor.terminate(rank["unit"], folder)
        return "terminated"
    return "looked"


def wait_gone(rank, supervisor, folder, marks):
    """What is left when the time is over; empty when all is proved gone."""
    deadline = time.time() + rank["wait_s"]
    while True:
        left = remains(rank, supervisor, folder, marks)
        if not left or time.time() >= deadline:
            return left
        time.sleep(0.2)


def remains(rank, supervisor, folder, marks):
    group = supervisor.group(rank["unit"], folder)
    if group:
        return "processes %s" % ", ".join(str(pid) for pid in sorted(group)[:8])
    holders = gpu_holders(rank["nvidia_smi"], marks.get("gpus", []))
    if holders:
        return "GPU %d is held by pid %d (%s)" % holders[0]
    ports = range(marks.get("port", 0), marks.get("port", 0) + marks.get("ports", 0))
    open_ports = sorted(set(ports) & set(listening()))
    if open_ports:
        return "TCP port %d is still listened on" % open_ports[0]
    return ""


def shared_memory_of(rank, marks):
    """What the engines' account still has in /dev/shm although no run of it is here any more; empty while one is."""
    if runs_in(rank["run_dir"]) or not marks:
        return []
    own = os.geteuid() != 0 and marks["supervisor"] != "systemd"
    account = os.geteuid() if own else pwd.getpwnam(marks["account"]).pw_uid
    paths = [path for pattern in SHARED_MEMORY for path in glob.glob("/dev/shm/" + pattern)]
    return sorted(path for path in paths if owner_of(path) == account)


def owner_of(path):
    try:
        return os.lstat(path).st_uid
    except OSError:
        return None


def put_away(folder):
    """Remove the run's folder, its secrets with it; a log in it stays as FOLDER.log until the next run's."""
    keep_log(folder)
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.isdir(folder):
        raise Problem("%s could not be removed" % folder)


def main():
    text, flag = {"type": "str", "required": True}, {"type": "bool", "required": True}
    module = AnsibleModule(
        argument_spec={
            "ranks": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "unit": text,
                    "replica": text,
                    "plan": text,
                    "action": text,
                    "force": flag,
                    "nvidia_smi": text,
                    "wait_s": {"type": "int", "required": True},
                    "run_dir": {"type": "path", "required": True},
                    "supervisor": {"type": "str", "required": True, "choices": SUPERVISORS},
                },
            }
        },
        supports_check_mode=True,
    )
    each_rank(module, stop, ("nothing", "looked"))


if __name__ == "__main__":
    main()
