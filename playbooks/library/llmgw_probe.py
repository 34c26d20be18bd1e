#!/usr/bin/python
# Copyright llmgw developers. Apache-2.0.
"""Ask ranks how they are: does the process live, is the model listed, does one token come, how much is under way."""

DOCUMENTATION = """
module: llmgw_probe
short_description: Ask ranks of replicas whether they live, answer, and how busy they are
description:
  - Changes nothing. With C(wait_s) it asks again until every rank is ready or has ended, or the time is over.
options:
  ranks:
    description: The ranks to ask on this node.
    type: list
    elements: dict
    required: true
    suboptions:
      unit: {description: Name of the unit and of the run's folder., type: str, required: true}
      ready: {description: What makes it ready., type: str, choices: [openai, listening, running, none],
              required: true}
      address: {description: Where it listens., type: str, required: true}
      port: {description: Its TCP port., type: int, required: true}
      model: {description: The name that it serves., type: str, required: true}
      key: {description: The engine's key., type: str, required: true}
      load: {description: Where it says how busy it is (path, running, waiting); empty for not at all., type: dict,
             required: true}
      wait_s: {description: Longest wait for it to become ready., type: int, required: true}
      run_dir: {description: The folder of llmgw's runs., type: path, required: true}
      supervisor: {description: How it is run where no marks say it., type: str,
                   choices: [auto, systemd, systemd-user, process], required: true}
author: llmgw developers
"""

import json
import os
import re
import socket
import time
import urllib.error
import urllib.request

from ansible.module_utils.llmgw_node import (
    SUPERVISORS,
    Problem,
    check_unit,
    make_supervisor,
    read_marks,
    supervisor_here,
)
from ansible.module_utils.llmgw_quiet import QuietModule

# A proxy has no business between a node and itself.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def fetch(rank, path, body=None, timeout=30):
    """Status and text of an answer; status 0 and the reason where there was none."""
    headers = {"Content-Type": "application/json"}
    if rank["key"]:
        headers["Authorization"] = "Bearer " + rank["key"]
    request = urllib.request.Request(
        "http://%s:%d%s" % (rank["address"], rank["port"], path),
        None if body is None else json.dumps(body).encode(),
        headers,
    )
    try:
        with OPENER.open(request, timeout=timeout) as answer:
            return answer.status, answer.read(1 << 20).decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read(4096).decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        return 0, str(getattr(error, "reason", error))


def is_ready(rank, timeout):
    """Empty when the rank is ready, else what is missing."""
    if rank["ready"] == "none":
        return "was not asked"
    if rank["ready"] == "running":  # a worker that listens nowhere; its head says when all is ready
        return ""
    if rank["ready"] == "listening":
        with socket.socket(socket.AF_INET6 if ":" in rank["address"] else socket.AF_INET) as probe:
            probe.settimeout(5)
            return "" if probe.connect_ex((rank["address"], rank["port"])) == 0 else "does not listen yet"
    status, text = fetch(rank, "/v1/models", timeout=10)
    if status != 200:
        return "does not list models yet: " + (text if status == 0 else "status %d" % status)
    try:
        listed = [model["id"] for model in json.loads(text)["data"]]
    except (ValueError, KeyError, TypeError):
        return "lists its models in no form that is known"
    if rank["model"] not in listed:
        return "serves %s, not %s" % (", ".join(listed)[:200], rank["model"])
    return one_token(rank, timeout)


def one_token(rank, timeout):
    body = {"model": rank["model"], "max_tokens": 1, "messages": [{"role": "user", "content": "ping"}]}
    status, text = fetch(rank, "/v1/chat/completions", body, timeout)
    if status in (
        400,
        404,
        405,
        501,
    ):  # an embedding model has no chat; a model without a template has completions
        body = {"model": rank["model"], "max_tokens": 1, "prompt": "ping"}
        status, text = fetch(rank, "/v1/completions", body, timeout)
    if status in (400, 404, 405, 501):
        status, text = fetch(rank, "/v1/embeddings", {"model": rank["model"], "input": "ping"}, timeout)
    if status != 200:
        return "gives no token: " + (text if status == 0 else "status %d: %s" % (status, text[:200]))
    return ""


def load_of(rank):
    """Requests running and waiting, and tokens made so far; None where the engine does not say."""
    if not rank["load"]:
        return None
    status, text = fetch(rank, rank["load"]["path"], timeout=10)
    if status != 200:
        return None
    return {
        word: total(text, rank["load"][word])
        for word in ("running", "waiting", "tokens")
        if rank["load"].get(word)
    }


def total(text, name):
    """The sum of a metric's samples."""
    values = re.findall(r"^%s(?:\{[^}]*\})?\s+([0-9.eE+-]+)" % re.escape(name), text, re.MULTILINE)
    return int(sum(float(value) for value in values))


def look(rank, timeout):
    folder = os.path.join(rank["run_dir"], check_unit(rank["unit"]))
    marks = read_marks(folder) or {}
    supervisor = make_supervisor(marks.get("supervisor") or supervisor_here(rank["supervisor"]))
    state, pid, ended = supervisor.state(rank["unit"], folder)
    seen = {
        "state": state,
        "pid": pid,
        "ready": False,
        "why": "",
        "load": None,
        "log": [],
        "plan": marks.get("plan", ""),
        "action": marks.get("action", ""),
    }
    if state == "exited":
        seen.update(
            why="has ended (%s)" % ended if ended else "does not run", log=supervisor.log(rank["unit"], folder, 30)
        )
        return seen
    seen["why"] = is_ready(rank, timeout)
    seen["ready"] = not seen["why"]
    seen["load"] = load_of(rank)
    return seen


def main():
    text = {"type": "str", "required": True}
    module = QuietModule(
        argument_spec={
            "ranks": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "unit": text,
                    "address": text,
                    "model": text,
                    "port": {"type": "int", "required": True},
                    "ready": {
                        "type": "str",
                        "required": True,
                        "choices": ["openai", "listening", "running", "none"],
                    },
                    "key": {"type": "str", "required": True, "no_log": True},
                    "load": {"type": "dict", "required": True},
                    "wait_s": {"type": "int", "required": True},
                    "run_dir": {"type": "path", "required": True},
                    "supervisor": {"type": "str", "required": True, "choices": SUPERVISORS},
                },
            }
        },
        supports_check_mode=True,
    )
    ranks = module.params["ranks"]
    deadline = time.time() + max([rank["wait_s"] for rank in ranks] or [0])
    while True:
        try:
            seen = {rank["unit"]: look(rank, max(2, min(30, deadline - time.time()))) for rank in ranks}
        except Problem as problem:
            module.fail_json(msg=str(problem))
        settled = all(one["ready"] or one["state"] == "exited" for one in seen.values())
        if settled or time.time() >= deadline:
            module.exit_json(changed=False, ranks=seen)
        time.sleep(0.25)


if __name__ == "__main__":
    main()
