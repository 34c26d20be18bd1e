"""Actions of a plan, made short for tests."""

from llmgw.engines import Launch
from llmgw.plan import Action, Incumbent, Op, Placement, Seat

SPEC = "sha256:" + "0" * 64
OLD_SPEC = "sha256:" + "1" * 64


def seats(*nodes: str, port: int = 18000) -> tuple[Seat, ...]:
    return tuple(Seat(n=node, rank=rank, gpus=(0,), port=port) for rank, node in enumerate(nodes))


def launches(*nodes: str, port: int = 18000) -> tuple[Launch, ...]:
    return tuple(
        Launch(argv=("/opt/engine", "--port", str(port)), port=port, ready="listening" if rank else "openai")
        for rank, _ in enumerate(nodes)
    )


def start(action_id: str, replica: str, *nodes: str, after: tuple[str, ...] = (), start_s: int = 600) -> Action:
    return Action(
        id=action_id,
        op=Op.START,
        replica=replica,
        nodes=nodes,
        after=after,
        why="wanted and not running",
        starts=placement(replica, *nodes),
        launches=launches(*nodes),
        start_s=start_s,
        stop_s=60,
    )


def placement(replica: str, *nodes: str) -> Placement:
    return Placement(
        replica=replica,
        model=replica.partition("/")[0],
        profile="p",
        shape=f"{len(nodes)}x1",
        nodes=seats(*nodes),
        port=18000,
        spec=SPEC,
    )


def incumbent(*nodes: str, plan: str = "old", action: str = "a9") -> Incumbent:
    return Incumbent(plan=plan, action=action, spec=OLD_SPEC, nodes=seats(*nodes))


def stop(action_id: str, replica: str, *nodes: str, after: tuple[str, ...] = (), drain_s: int = 600) -> Action:
    return Action(
        id=action_id,
        op=Op.STOP,
        replica=replica,
        nodes=nodes,
        after=after,
        why="not in the catalogue",
        ends=incumbent(*nodes),
        drain_s=drain_s,
        stop_s=60,
    )


def replace(action_id: str, replica: str, *nodes: str, after: tuple[str, ...] = ()) -> Action:
    return start(action_id, replica, *nodes, after=after).model_copy(
        update={"op": Op.REPLACE, "ends": incumbent(*nodes), "drain_s": 600}
    )


def move(action_id: str, replica: str, old: str, new: str) -> Action:
    return start(action_id, replica, new).model_copy(
        update={"op": Op.MOVE, "ends": incumbent(old), "drain_s": 600, "nodes": (old, new)}
    )
