#!/usr/bin/env python3
"""A stand-in for `vllm serve`: its flags, its HTTP, its manners when it is stopped or broken. It has no model.

Standard library only (Python 3.8 and later), so that it runs on any node, with engine_http.py beside it. What
it says is "1 2 3 …", a token a number. It keeps to what vLLM 0.32 and 0.33 were seen to do:
  * nothing listens until the model is loaded and every rank has come; then /health is 200
  * a worker rank that dies is not noticed: /health stays 200, the next request gets a 500, then the head exits 0
  * a worker rank (--headless) has no HTTP, and stays when the head goes
  * SIGTERM with --shutdown-timeout 0: the port closes, streams stand still, it ends when their clients have left
  * SIGTERM with a timeout: /health goes on, requests are turned away, the streams it has are finished, exit 0
  * a key in VLLM_API_KEY guards /v1 only
Not seen, and so a guess: that requests are turned away with a 503 then, and all that a dead worker process does.
What a test wants otherwise it writes, at any time, as JSON to the file FAKE_ENGINE names; without that variable to
/run/fake-engine.PORT.json (of the rank's --port) or /run/fake-engine.json. Its keys are those of BEHAVIOUR.
"""

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time
from http.server import ThreadingHTTPServer
from pathlib import Path

from engine_http import VERSION, Handler, say

BEHAVIOUR = {
    "load_s": 0.2,  # from the start to the open port
    "token_s": 0.01,  # from one token to the next
    "stall": False,  # requests are taken and streams stand still, as long as this is true
    "refuse": 0,  # the status that every request to /v1 gets, for instance 503
    "health": 0,  # the status that /health gets instead of its own
    "die_on_request": None,  # exit code with which the next request ends the process, after one token
    "ignore_sigterm": False,
    "orphan": False,  # the worker process outlives its parent, and holds the GPU
    "fail": None,  # {"stderr": text, "exit": code}: what a start does instead
}
TAKES_VALUE = """
api-key chat-template config data-parallel-size device-ids distributed-executor-backend
distributed-timeout-seconds download-dir dtype gpu-memory-utilization host kv-cache-dtype kv-cache-memory-bytes
load-format master-port max-model-len max-num-batched-tokens max-num-seqs model port quantization
reasoning-parser revision seed ssl-certfile ssl-keyfile tokenizer tool-call-parser uds uvicorn-log-level
"""
SWITCHES = """
disable-log-stats enable-auto-tool-choice enable-chunked-prefill enable-expert-parallel enable-prefix-caching
enable-server-load-tracking enable-sleep-mode enforce-eager trust-remote-code
"""


def arguments(argv):
    """The command line of vllm serve, as far as anyone uses it; argparse ends the process over any other flag."""
    parser = argparse.ArgumentParser(prog="vllm")
    parser.add_argument("--version", action="version", version=VERSION)
    serve = parser.add_subparsers(dest="verb", required=True).add_parser("serve")
    serve.add_argument("model_tag", nargs="?")
    serve.add_argument("--served-model-name", nargs="+")
    serve.add_argument("--tensor-parallel-size", "-tp", type=int, default=1)
    serve.add_argument("--pipeline-parallel-size", "-pp", type=int, default=1)
    serve.add_argument("--nnodes", type=int, default=1)
    serve.add_argument("--node-rank", type=int, default=0)
    serve.add_argument("--master-addr", default="127.0.0.1")
    serve.add_argument("--headless", action="store_true")
    serve.add_argument("--shutdown-timeout", type=float, default=0)
    for name in TAKES_VALUE.split():
        serve.add_argument("--" + name)
    for name in SWITCHES.split():
        serve.add_argument("--" + name, "--no-" + name, action="store_true")
    args = parser.parse_args(argv)
    if args.tensor_parallel_size * args.pipeline_parallel_size % args.nnodes:
        serve.error("world size is not divisible by --nnodes")
    args.names = args.served_model_name or [args.model_tag or args.model]
    return args


class Engine:
    """What all threads of the process know. Numbers are only changed under `lock`."""

    def __init__(self, args):
        self.args = args
        self.port = int(args.port or 8000)
        self.file = os.environ.get("FAKE_ENGINE") or f"/run/fake-engine.{self.port}.json"
        self.lock = threading.Lock()
        self.running = 0
        self.tokens = 0
        self.requests = 0
        self.broken = False  # a rank or the worker process is gone
        self.stopping = False
        self.asleep = False
        self.streams = set()

    def now(self, name):
        """How it is to behave just now."""
        for path in (self.file, "/run/fake-engine.json"):
            try:
                return json.loads(Path(path).read_text()).get(name, BEHAVIOUR[name])
            except (OSError, ValueError):
                continue
        return BEHAVIOUR[name]

    def leave(self, code=0):
        """End without another word, whatever the other threads do."""
        sys.stderr.flush()
        os._exit(code)


def fork_worker(engine):
    """The process that holds the GPU. It ends with its parent, unless it is told to be left over."""
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while os.getppid() == parent or engine.now("orphan"):
        time.sleep(0.1)
    os._exit(0)


def watch_worker(engine, child):
    """Notice that the worker process has died."""
    os.waitpid(child, 0)
    engine.broken = True
    say("EngineCore died")


# -- ranks ---------------------------------------------------------------------------------------------


def wait_for_ranks(engine):
    """As the head: until every other rank is there. One of them that goes later breaks the engine, silently."""
    wanted = engine.args.nnodes - 1
    if not wanted:
        return
    listener = socket.create_server(("", int(engine.args.master_port or 29501)))
    for _ in range(wanted):
        link, _ = listener.accept()
        say(f"rank {link.recv(64).decode().strip()} has joined")
        threading.Thread(target=watch_rank, args=(engine, link), daemon=True).start()


def watch_rank(engine, link):
    try:
        while link.recv(64):
            pass
    except OSError:
        pass
    engine.broken = True


def be_worker(engine):
    """As another rank: find the head, then stay, whatever becomes of it."""
    args = engine.args
    deadline = time.monotonic() + float(args.distributed_timeout_seconds or 600)
    while True:
        try:
            link = socket.create_connection((args.master_addr, int(args.master_port or 29501)), 5)
            break
        except OSError as error:
            if time.monotonic() > deadline:
                say(f"no head at {args.master_addr}: {error}")
                engine.leave(1)
            time.sleep(0.2)
    link.sendall(f"{args.node_rank}\n".encode())
    while True:
        time.sleep(3600)


# -- its end -------------------------------------------------------------------------------------------


def stop(engine, server):
    """What SIGTERM does: drain within the timeout, or without one close the port and wait for clients to leave."""
    if engine.stopping or engine.now("ignore_sigterm"):
        engine.stopping and engine.leave(0)
        return
    engine.stopping = True
    say(f"shutdown, timeout {engine.args.shutdown_timeout:g} s")
    if engine.args.shutdown_timeout:
        deadline = time.monotonic() + engine.args.shutdown_timeout
        while engine.running and time.monotonic() < deadline:
            time.sleep(0.05)
    else:
        server.socket.close()
        while engine.streams:
            time.sleep(0.05)
    time.sleep(0.3)
    engine.leave(0)


def main(argv):
    engine = Engine(arguments(argv))
    if engine.now("fail"):
        sys.stderr.write(engine.now("fail")["stderr"])
        return engine.now("fail")["exit"]
    child = fork_worker(engine)
    say(f"vLLM API server version {VERSION} (fake), worker {child}")
    if engine.args.headless:
        signal.signal(signal.SIGTERM, lambda *_: engine.leave(0))
        be_worker(engine)
    signal.signal(signal.SIGTERM, lambda *_: engine.leave(0))
    threading.Thread(target=watch_worker, args=(engine, child), daemon=True).start()
    time.sleep(engine.now("load_s"))
    wait_for_ranks(engine)
    Handler.engine = engine
    ThreadingHTTPServer.daemon_threads = True
    ThreadingHTTPServer.request_queue_size = 128
    server = ThreadingHTTPServer((engine.args.host or "", engine.port), Handler)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=stop, args=(engine, server)).start())
    say("Application startup complete.")
    server.serve_forever(poll_interval=0.2)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
