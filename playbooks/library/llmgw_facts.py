#!/usr/bin/python
# Copyright llmgw developers. Apache-2.0.
"""One round trip: everything that llmgw wants to know of a node, as text and numbers. Decides nothing."""

DOCUMENTATION = """
module: llmgw_facts
short_description: Bring back what a node has and what llmgw runs on it
description: Reads only. Runs nvidia-smi, systemctl and scontrol where they are; every command is bounded in time.
options:
  query:
    description: What is asked.
    type: dict
    required: true
    suboptions:
      run_dir: {description: The folder of llmgw's runs., type: path, required: true}
      supervisor: {description: How engines are run here., type: str, choices: [auto, systemd, systemd-user, process],
                   default: auto}
      sysfs_infiniband: {description: Where the kernel shows InfiniBand adapters., type: path,
                         default: /sys/class/infiniband}
      nvidia_smi: {description: The program that shows GPUs., type: str, default: nvidia-smi}
      engines:
        description: Engines to look for.
        type: list
        elements: dict
        default: []
        suboptions:
          engine: {description: Its name., type: str, required: true}
          version: {description: Its version., type: str, required: true}
          path: {description: Its folder., type: path, required: true}
          program: {description: What must be executable in the folder., type: str, required: true}
      weights: {description: Files and folders of weights to look for., type: list, elements: path, default: []}
      disks: {description: Folders whose file systems matter., type: list, elements: path, default: []}
      account: {description: The account that engines run as., type: str, default: ''}
      privileged: {description: Commands that must be allowed as root without a password; only asked about., type: list,
                   elements: list, default: []}
author: llmgw developers
"""

import glob
import os
import platform
import pwd
import socket
import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.llmgw_node import (
    SUPERVISORS,
    Problem,
    born,
    gpu_query,
    listening,
    make_supervisor,
    marked_processes,
    run,
    runs_in,
    supervisor_here,
    where,
)


def first_line(path):
    try:
        with open(path) as file:
            return file.readline().strip()
    except OSError:
        return ""


def adapters(root):
    """Every port of every device, as the kernel writes it (Documentation/ABI/stable/sysfs-class-infiniband)."""
    found = []
    for port in sorted(glob.glob(os.path.join(glob.escape(root), "*", "ports", "*"))):
        device = os.path.dirname(os.path.dirname(port))
        found.append(
            {
                "device": os.path.basename(device),
                "port": os.path.basename(port),
                "node_guid": first_line(os.path.join(device, "node_guid")),
                "gid": first_line(os.path.join(port, "gids", "0")),
                "link_layer": first_line(os.path.join(port, "link_layer")),
                "state": first_line(os.path.join(port, "state")),
                "rate": first_line(os.path.join(port, "rate")),
                "lid": first_line(os.path.join(port, "lid")),
                "pci": os.path.basename(os.path.realpath(os.path.join(device, "device"))),
                "numa": first_line(os.path.join(device, "device", "numa_node")),
            }
        )
    return found


def runs(run_dir, kind, problems):
    """The runs with their marks and states; units of llmgw that have no folder are there with empty marks."""
    marked = runs_in(run_dir)
    states = {}
    try:
        if kind != "process":
            systemd = make_supervisor(kind)
            units = sorted(set(marked) | set(systemd.known_units()))
            states = systemd.states([unit + ".service" for unit in units])
            for unit in units:
                marked.setdefault(unit, {})
    except Problem as problem:
        problems.append(str(problem))
    return [one_run(run_dir, unit, marks, kind, states.get(unit)) for unit, marks in sorted(marked.items())]


def one_run(run_dir, unit, marks, kind, values):
    folder = os.path.join(run_dir, unit)
    kind = marks.get("supervisor", kind)
    supervisor = make_supervisor(kind)
    if kind == "process":
        state, pid, ended = supervisor.state(unit, folder)
        group = supervisor.group(unit, folder) if state == "exited" else []
    else:
        state, pid, ended = supervisor.reading(values)
        group = []
    environment = values.get("Environment", "") if values else ""
    return {
        "unit": unit,
        "marks": marks,
        "supervisor": kind,
        "state": state,
        "pid": pid,
        "ended": ended,
        "group": group,
        "environment": environment,
    }


def strays(seen, found):
    """Processes of those seen before the runs were that carry the marks of no run that goes on, and live still."""
    going_on = {
        (one["unit"], str(one["marks"].get("plan")), str(one["marks"].get("action")))
        for one in found
        if one["state"] != "exited"
    }
    unmarked = {one["unit"] for one in found if one["state"] != "exited" and not one["marks"]}
    return [
        {"pid": pid, "unit": marks["unit"], "replica": marks.get("replica", ""), "gpus": marks.get("gpus", "")}
        for pid, (birth, marks) in sorted(seen.items())
        if (marks["unit"], marks.get("plan"), marks.get("action")) not in going_on
        and marks["unit"] not in unmarked
        and born(pid) == birth
    ]


def engines(asked):
    return [
        dict(one, runnable=os.access(os.path.join(one["path"], one["program"]), os.X_OK))
        for one in asked
        if os.path.isdir(one["path"])
    ]


def weights(paths):
    """Size of each that is there; a folder or file of the name with `.partial` beside it is not complete."""
    found = []
    for path in paths:
        if os.path.exists(path):
            found.append({"path": path, "bytes": size_of(path), "complete": not os.path.exists(path + ".partial")})
    return found


def size_of(path):
    if os.path.isfile(path):
        return os.path.getsize(path)
    return sum(
        os.path.getsize(os.path.join(folder, name))
        for folder, _, names in os.walk(path)
        for name in names
        if os.path.exists(os.path.join(folder, name))
    )


def disks(paths):
    found = []
    for path in paths:
        here = path
        while not os.path.exists(here):
            here = os.path.dirname(here)
        stat = os.statvfs(here)
        found.append({"path": path, "free": stat.f_bavail * stat.f_frsize, "total": stat.f_blocks * stat.f_frsize})
    return found


def rights(asked):
    """What this account may do here: is it root, may it run each command as root, is the run folder its to write."""
    try:
        pwd.getpwnam(asked["account"])
        known = True
    except KeyError:
        known = not asked["account"]
    return {
        "root": os.geteuid() == 0,
        "user": pwd.getpwuid(os.geteuid()).pw_name,
        "account_known": known,
        "run_dir_writable": os.access(asked["run_dir"], os.W_OK | os.X_OK),
        "privileged": [may(argv) for argv in asked["privileged"]],
    }


def may(argv):
    """Whether a command may be run as root without a password; it is not run."""
    if os.geteuid() == 0:
        return True
    argv = [where(str(argv[0]))] + [str(word) for word in argv[1:]]
    return run(["sudo", "-n", "-l", "--"] + argv, 10)[0] == 0


def slurm():
    if where("scontrol") == "scontrol":
        return ""
    rc, out, err = run([where("scontrol"), "show", "node", socket.gethostname().split(".")[0], "--oneliner"], 10)
    return out if rc == 0 else "error: " + err.strip()[-200:]


def gather(asked):
    problems = []
    kind = supervisor_here(asked["supervisor"])
    gpus, apps, problem = gpu_query(asked["nvidia_smi"])
    marked = {pid: (born(pid), marks) for pid, marks in marked_processes().items()}
    here = runs(asked["run_dir"], kind, problems)
    topology = run([asked["nvidia_smi"], "topo", "-m"], 30)[1] if gpus else ""
    if problem:
        problems.append(problem)
    return {
        "time": int(time.time()),
        "hostname": socket.gethostname(),
        "python": platform.python_version(),
        "boot_id": first_line("/proc/sys/kernel/random/boot_id"),
        "cpus": os.cpu_count() or 0,
        "memory": first_line("/proc/meminfo"),
        "supervisor": kind,
        "gpus": gpus,
        "apps": apps,
        "topology": topology,
        "adapters": adapters(asked["sysfs_infiniband"]),
        "listen_ports": listening(),
        "ephemeral_ports": first_line("/proc/sys/net/ipv4/ip_local_port_range"),
        "runs": here,
        "strays": strays(marked, here),
        "engines": engines(asked["engines"]),
        "weights": weights(asked["weights"]),
        "disks": disks(asked["disks"]),
        "slurm": slurm(),
        "rights": rights(asked),
        "problems": problems,
    }


def main():
    module = AnsibleModule(
        argument_spec={
            "query": {
                "type": "dict",
                "required": True,
                "options": {
                    "run_dir": {"type": "path", "required": True},
                    "supervisor": {"type": "str", "choices": SUPERVISORS, "default": "auto"},
                    "sysfs_infiniband": {"type": "path", "default": "/sys/class/infiniband"},
                    "nvidia_smi": {"type": "str", "default": "nvidia-smi"},
                    "engines": {
                        "type": "list",
                        "elements": "dict",
                        "default": [],
                        "options": {
                            "engine": {"type": "str", "required": True},
                            "version": {"type": "str", "required": True},
                            "path": {"type": "path", "required": True},
                            "program": {"type": "str", "required": True},
                        },
                    },
                    "weights": {"type": "list", "elements": "path", "default": []},
                    "disks": {"type": "list", "elements": "path", "default": []},
                    "account": {"type": "str", "default": ""},
                    "privileged": {"type": "list", "elements": "list", "default": []},
                },
            }
        },
        supports_check_mode=True,
    )
    module.exit_json(changed=False, node=gather(module.params["query"]))


if __name__ == "__main__":
    main()
