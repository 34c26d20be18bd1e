#!/usr/bin/python
# Copyright llmgw developers. Apache-2.0.
"""Run ibnetdiscover (and iblinkinfo where it is) from one port, bounded in time, and bring the text back whole."""

DOCUMENTATION = """
module: llmgw_scan
short_description: Bring back what ibnetdiscover and iblinkinfo print
description:
  - Reads the fabric only. Output comes back compressed (zlib) and base64 encoded, stderr apart from stdout.
options:
  device: {description: The adapter to scan from., type: str, required: true}
  port: {description: Its port., type: int, required: true}
  ibnetdiscover: {description: The program., type: str, required: true}
  iblinkinfo: {description: The program that shows ports that are down; empty for none., type: str, required: true}
  options: {description: More options for ibnetdiscover., type: list, elements: str, required: true}
  sudo: {description: Run it through sudo -n where this is not root., type: bool, required: true}
  timeout_s: {description: Longest time for each program., type: int, required: true}
author: llmgw developers
"""

import base64
import os
import subprocess
import tempfile
import time
import zlib

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.llmgw_node import where

LIMIT = 512 << 20


def packed(file):
    """The file's bytes, compressed, as text; and how many there were."""
    compressor, parts, size = zlib.compressobj(6), [], 0
    file.seek(0)
    while size <= LIMIT:
        block = file.read(1 << 20)
        if not block:
            break
        size += len(block)
        parts.append(compressor.compress(block))
    parts.append(compressor.flush())
    return base64.b64encode(b"".join(parts)).decode(), size


def tool(argv, asked):
    """Exit status (124: too slow, 127: not there), packed stdout, stderr, seconds."""
    argv = [where("timeout"), "--kill-after=5", str(asked["timeout_s"])] + argv
    if asked["sudo"] and os.geteuid() != 0:  # sudo outside: only root may signal what runs as root
        argv = ["sudo", "-n"] + argv
    began = time.time()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryDirectory() as here:
        try:
            rc = subprocess.call(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=here, timeout=asked["timeout_s"] + 15
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return {
                "rc": 124 if isinstance(error, subprocess.TimeoutExpired) else 127,
                "out": packed(out)[0],
                "err": str(error),
                "seconds": int(time.time() - began),
            }
        text, size = packed(out)
        err.seek(0)
        return {
            "rc": rc,
            "out": text,
            "bytes": size,
            "err": err.read(256 * 1024).decode("utf-8", "replace"),
            "seconds": int(time.time() - began),
        }


def main():
    text = {"type": "str", "required": True}
    module = AnsibleModule(
        argument_spec={
            "device": text,
            "port": {"type": "int", "required": True},
            "ibnetdiscover": text,
            "iblinkinfo": text,
            "options": {"type": "list", "elements": "str", "required": True},
            "sudo": {"type": "bool", "required": True},
            "timeout_s": {"type": "int", "required": True},
        },
        supports_check_mode=True,
    )
    asked = module.params
    where_from = ["-C", asked["device"], "-P", str(asked["port"])]
    program = where(asked["ibnetdiscover"])
    if not os.path.isabs(program) or not os.access(program, os.X_OK):
        module.fail_json(
            msg="%s is not installed on this node (package infiniband-diags)" % asked["ibnetdiscover"]
        )
    found = tool([program] + where_from + asked["options"], asked)
    linkinfo = where(asked["iblinkinfo"]) if asked["iblinkinfo"] else ""
    links = tool([linkinfo] + where_from, asked) if os.path.isabs(linkinfo) else None
    module.exit_json(changed=False, scan=found, links=links)


if __name__ == "__main__":
    main()
