"""What is built is in pyproject.toml. Here: the router's hot path in machine code, for those who ask for it.

LLMGW_COMPILE=1 python -m build --wheel --no-isolation        in an environment with llmgw[dev] and a C compiler

mypyc compiles the very modules that otherwise run as they are; nothing else differs. `make compiled` does it.
"""

import os

from setuptools import setup

HOT = [
    *(f"llmgw/router/{name}.py" for name in (
        "backends", "books", "core", "exchange", "front", "heads", "meters", "relay", "request", "tallies", "upstream",
    )),
    *(f"llmgw/serving/{name}.py" for name in (
        "choose", "ejection", "failover", "faults", "framing", "headers", "keys", "queue", "routes",
    )),
]  # fmt: skip

if os.environ.get("LLMGW_COMPILE") == "1":
    from mypyc.build import mypycify

    setup(ext_modules=mypycify(HOT, opt_level="3", debug_level="0"))
else:
    setup()
