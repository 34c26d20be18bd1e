"""The lab as a command: python -m tests.lab up | status | run … | console … | down. Needs root."""

import argparse
import json
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.lab.doorway import open_door
from tests.lab.hosts import Gpu, Host, Init, Share, numbered
from tests.lab.kernel import LabError
from tests.lab.lab import Lab
from tests.lab.netfile import Bank, Layout
from tests.lab.node import Node
from tests.lab.simulator import Simulator
from tests.lab.state import names

NODE_VERBS: dict[str, Callable[[Node], None]] = {
    "off": Node.off,
    "on": Node.on,
    "reboot": Node.reboot,
    "freeze": Node.freeze,
    "thaw": Node.thaw,
    "cut": Node.cut,
    "heal": Node.heal,
    "fill-disk": Node.fill_disk,
    "free-disk": Node.free_disk,
    "restore": Node.restore,
}
AMOUNT_VERBS: dict[str, tuple[str, Callable[[Node, float], None]]] = {
    "delay": ("ms", Node.delay),
    "lose": ("percent", Node.lose),
    "slow": ("kbit", Node.slow),
}
CABLE_VERBS = ("pull", "plug", "train", "silence", "hear", "hang", "go-on", "restore")


def _up(args: argparse.Namespace) -> int:
    lab = Lab(args.name, _hosts(args), fabrics=_fabrics(args), subnet=args.subnet).up(keep=args.keep)
    print(_summary(lab))
    if args.keep:
        return 0
    print("up until Ctrl-C", file=sys.stderr)
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    over.wait()
    lab.down()
    return 0


def _hosts(args: argparse.Namespace) -> list[Host]:
    shares = [_share(word) for word in args.share]
    gpus = [Gpu()] * args.gpus
    hosts = [
        *numbered(args.nodes, gpus=gpus),
        *numbered(args.light, prefix="l", init=Init.LIGHT, gpus=gpus),
        *numbered(args.routers, prefix="r"),
    ]
    return [host.with_shares(*shares) for host in hosts]


def _share(word: str) -> Share:
    source, _, rest = word.partition(":")
    target, _, mode = rest.partition(":")
    return Share(Path(source).resolve(), target or str(Path(source).resolve()), writable=mode == "rw")


def _fabrics(args: argparse.Namespace) -> list[Layout]:
    names_ = tuple(host.name for host in _hosts(args) if not host.name.startswith("r"))
    if not args.fabrics or not names_:
        return []
    return [
        Layout("compute", (Bank(names_, ("mlx5_0", "mlx5_1")),), per_leaf=2),
        Layout("storage", (Bank(names_, ("mlx5_2",)),), rails=False, spines=0, generation="HDR"),
    ]


def _summary(lab: Lab) -> str:
    lines = [f"lab {lab.name}, first process {lab.spaces.switch_pid}, control host {lab.spaces.controller}"]
    for node in lab.nodes.values():
        state = "up" if node.init_pid() else "off"
        lines.append(f"  {node.name:<8}{node.address:<14}{node.host.init.value:<9}{state}")
    for fabric in lab.fabrics.values():
        plan = fabric.plan
        lines.append(f"  {plan.name}: {len(plan.switches)} switches, {len(plan.adapters)} adapters, {plan.rate}")
    return "\n".join(lines)


def _status(args: argparse.Namespace) -> int:
    for name in [args.name] if args.name in names() else names():
        try:
            print(_summary(Lab.open(name)))
        except LabError as error:
            print(error)
    return 0


def _console(args: argparse.Namespace) -> int:
    done = Lab.open(args.name).nodes[args.node].console(shlex.join(args.argv))
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


def _ssh(args: argparse.Namespace) -> int:
    lab = Lab.open(args.name)
    user, _, name = args.node.rpartition("@")
    target = f"{user or 'root'}@{lab.nodes[name].address}"
    return lab.run(["ssh", *lab.spaces.ssh_options(), target, *args.argv]).returncode


def _door(args: argparse.Namespace) -> int:
    host, _, port = args.target.rpartition(":")
    open_door(Lab.open(args.name).spaces, args.port, (host, int(port)))
    print(f"127.0.0.1:{args.port} leads to {args.target}")
    return 0


def _fabric(args: argparse.Namespace) -> int:
    fabric = Lab.open(args.name).fabrics[args.fabric]
    _break(fabric, args.verb, args.words)
    return 0


def _break(fabric: Simulator, verb: str, words: Sequence[str]) -> None:
    """`pull "leaf1" "spine2"`, `train "n1 mlx5_0" 4xHDR`, `silence spine1`."""
    if verb in ("pull", "plug"):
        getattr(fabric, verb)(fabric.plan.cable(*words))
    elif verb == "train":
        fabric.train(fabric.plan.cable(*words[:-1]), words[-1])
    elif verb in ("silence", "hear"):
        getattr(fabric, verb)(fabric.plan.by_name[words[0]])
    else:
        getattr(fabric, verb.replace("-", "_"))()


def _node(args: argparse.Namespace) -> int:
    node = Lab.open(args.name).nodes[args.node]
    if args.do in AMOUNT_VERBS:
        AMOUNT_VERBS[args.do][1](node, args.amount)
    elif args.do == "gpus":
        node.hardware.set_gpus([Gpu()] * args.count)
    else:
        NODE_VERBS[args.do](node)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    parser.add_argument("--name", default="lab", help="the lab's name (lab)")
    verbs = parser.add_subparsers(dest="do", required=True, metavar="VERB")
    up = verbs.add_parser("up", help="start a lab; it ends with this command, or stays with --keep")
    up.add_argument("-n", "--nodes", type=int, default=4, help="hosts n1… with systemd (4)")
    up.add_argument("--light", type=int, default=0, help="hosts l1… without systemd (0)")
    up.add_argument("--routers", type=int, default=0, help="hosts r1… without GPUs (0)")
    up.add_argument("--gpus", type=int, default=4, help="GPUs that each node shows (4)")
    up.add_argument("--fabrics", action="store_true", help="two simulated InfiniBand fabrics")
    up.add_argument("--share", action="append", default=[], metavar="FOLDER[:TARGET[:rw]]")
    up.add_argument("--subnet", default="10.77.0")
    up.add_argument("--keep", action="store_true", help="leave it up when this command ends")
    for word, help_text in (
        ("down", "end a lab"),
        ("status", "what is up"),
        ("restore", "mend all that was broken"),
    ):
        verbs.add_parser(word, help=help_text)
    verbs.add_parser("inventory", help="print an Ansible inventory").add_argument("--user", default="root")
    run = verbs.add_parser("run", help="run a command on the lab's network, as the control host")
    run.add_argument("argv", nargs=argparse.REMAINDER)
    for word, help_text in (("console", "run a command on a host past SSH"), ("ssh", "SSH to [USER@]HOST")):
        verb = verbs.add_parser(word, help=help_text)
        verb.add_argument("node")
        verb.add_argument("argv", nargs=argparse.REMAINDER)
    door = verbs.add_parser("door", help="let 127.0.0.1:PORT of this machine lead to HOST:PORT in the lab")
    door.add_argument("port", type=int)
    door.add_argument("target")
    fabric = verbs.add_parser("fabric", help=_break.__doc__)
    fabric.add_argument("fabric")
    fabric.add_argument("verb", choices=CABLE_VERBS)
    fabric.add_argument("words", nargs="*")
    _add_node_verbs(verbs)
    return parser


def _add_node_verbs(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    for word, method in NODE_VERBS.items():
        if word != "restore":
            verbs.add_parser(word, help=(method.__doc__ or "").partition(":")[0]).add_argument("node")
    for word, (unit, amount_method) in AMOUNT_VERBS.items():
        verb = verbs.add_parser(word, help=(amount_method.__doc__ or "").partition(":")[0])
        verb.add_argument("node")
        verb.add_argument("amount", type=float, metavar=unit)
    gpus = verbs.add_parser("gpus", help="how many GPUs a host shows")
    gpus.add_argument("node")
    gpus.add_argument("count", type=int)


def _down(args: argparse.Namespace) -> int:
    Lab(args.name, ()).down()
    return 0


def _restore(args: argparse.Namespace) -> int:
    Lab.open(args.name).restore()
    return 0


def _inventory(args: argparse.Namespace) -> int:
    print(json.dumps(Lab.open(args.name).inventory(args.user), indent=1))
    return 0


def _run(args: argparse.Namespace) -> int:
    return Lab.open(args.name).run(args.argv).returncode


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "up": _up,
    "down": _down,
    "status": _status,
    "restore": _restore,
    "inventory": _inventory,
    "run": _run,
    "console": _console,
    "ssh": _ssh,
    "door": _door,
    "fabric": _fabric,
}


def main(argv: Sequence[str]) -> int:
    """Exit code of the command; 1 with a line on stderr for what did not come about."""
    args = _parser().parse_args(argv)
    if os.geteuid():
        print("lab: needs root", file=sys.stderr)
        return 1
    try:
        return VERBS.get(args.do, _node)(args)
    except (LabError, KeyError, ValueError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
