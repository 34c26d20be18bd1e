#!/usr/bin/python
# Copyright llmgw developers. Apache-2.0.
"""Put published documents on a router host, each replaced whole, and bring back what its router has loaded."""

DOCUMENTATION = """
module: llmgw_publish
short_description: Replace published documents atomically and read the router's status
description:
  - Each file is written beside its target, flushed, renamed over it, and the folder is flushed.
  - A file with a generation is not replaced by one of a lower generation.
options:
  folder: {description: The published folder., type: path, required: true}
  files:
    description: The documents.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {description: Path below the folder., type: str, required: true}
      text: {description: The document., type: str, required: true}
      mode: {description: Its mode., type: str, required: true}
author: llmgw developers
"""

import json
import os
import tempfile
import time

from ansible.module_utils.llmgw_quiet import QuietModule


def generation(text):
    try:
        found = json.loads(text)
        return found.get("generation") if isinstance(found, dict) else None
    except ValueError:
        return None


def current(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return None


def flush_folder(folder):
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(path, text, mode):
    folder = os.path.dirname(path)
    descriptor, beside = tempfile.mkstemp(prefix="." + os.path.basename(path) + ".", dir=folder)
    try:
        with os.fdopen(descriptor, "w") as file:
            os.fchmod(descriptor, mode)
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
    flush_folder(folder)


def publish(folder, wanted, pretend):
    """changed | same | older for one document."""
    path = os.path.normpath(os.path.join(folder, wanted["name"]))
    if not path.startswith(folder.rstrip("/") + "/"):
        raise ValueError("%s is not below %s" % (wanted["name"], folder))
    before = current(path)
    if before == wanted["text"]:
        return "same"
    old, new = generation(before or ""), generation(wanted["text"])
    if old is not None and new is not None and old > new:
        return "older"
    if not pretend:
        if not os.path.isdir(os.path.dirname(path)):
            os.makedirs(os.path.dirname(path), 0o755)
        replace(path, wanted["text"], int(wanted["mode"], 8))
    return "changed"


def status(folder):
    """The statuses that routers wrote here: the text of each, and its age in seconds by this host's clock."""
    found = {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if name == "endpoints.status" or (name.startswith("endpoints.") and name.endswith(".status")):
            path = os.path.join(folder, name)
            try:
                found[name] = {"text": current(path), "age_s": max(0, int(time.time() - os.stat(path).st_mtime))}
            except OSError:
                pass
    return found


def main():
    text = {"type": "str", "required": True}
    module = QuietModule(
        argument_spec={
            "folder": {"type": "path", "required": True},
            "files": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "no_log": False,
                "options": {"name": text, "text": {"type": "str", "required": True, "no_log": True}, "mode": text},
            },
        },
        supports_check_mode=True,
    )
    folder = module.params["folder"]
    try:
        did = {wanted["name"]: publish(folder, wanted, module.check_mode) for wanted in module.params["files"]}
        module.exit_json(changed="changed" in did.values(), files=did, status=status(folder))
    except (OSError, ValueError) as error:
        module.fail_json(msg="%s: %s" % (folder, error))


if __name__ == "__main__":
    main()
