"""What every plan must keep to, whatever the site: checked on a plan and the world that it was made for."""

from collections import defaultdict

from llmgw.base import replica_parts
from llmgw.plan import Body, Op, Placement
from llmgw.site import Topology
from tests.fakes.worlds import FakeNode, World

STARTING = (Op.START, Op.REPLACE, Op.MOVE)


def broken_rules(world: World, body: Body) -> list[str]:
    """The hard rules that the plan breaks, in words."""
    found = [*_seats(world, body), *_started(world, body), *_order(body), *_readiness(world, body)]
    for action in body.actions:
        if action.op is Op.MOVE and action.starts and action.ends:
            both = {seat.n for seat in action.starts.nodes} & {seat.n for seat in action.ends.nodes}
            found += [f"{action.id} moves {action.replica} to a node that it is on: {both}"] if both else []
    return found


def _seats(world: World, body: Body) -> list[str]:
    """No GPU and no port is anybody's twice, none is a stranger's."""
    found = []
    gpus: dict[tuple[str, int], str] = {}
    ports: dict[tuple[str, int], str] = {}
    fresh = {action.replica for action in body.actions if action.op in STARTING}
    for placement in body.placements:
        nodes = [seat.n for seat in placement.nodes]
        if len(set(nodes)) != len(nodes):
            found.append(f"{placement.replica} is on a node twice")
        for seat in placement.nodes:
            for gpu in seat.gpus:
                other = gpus.setdefault((seat.n, gpu), placement.replica)
                if other != placement.replica:
                    found.append(f"GPU {gpu} of {seat.n} is of {other} and {placement.replica}")
                if placement.replica in fresh and gpu in world.nodes[seat.n].foreign:
                    found.append(f"{placement.replica} takes GPU {gpu} of {seat.n}, which a stranger holds")
            for port in range(seat.port, seat.port + seat.ports):
                other = ports.setdefault((seat.n, port), placement.replica)
                if other != placement.replica:
                    found.append(f"port {port} of {seat.n} is of {other} and {placement.replica}")
                if placement.replica in fresh and port in world.nodes[seat.n].listen:
                    found.append(f"{placement.replica} takes port {port} of {seat.n}, which a stranger has")
    return found


def _started(world: World, body: Body) -> list[str]:
    """What is started is on nodes that take it, by a shape of its profile, under the leaf and fabric that it needs."""
    catalogue = world.catalogue()
    found = []
    for action in body.actions:
        place = action.starts
        if place is None or action.op not in STARTING:
            continue
        profile = catalogue.models[place.model].profiles[place.profile]
        shapes = {(shape.nodes, shape.gpus) for shape in profile.shapes}
        sizes = {len(seat.gpus) for seat in place.nodes}
        if len(sizes) != 1 or (len(place.nodes), next(iter(sizes))) not in shapes:
            found.append(f"{place.replica} has the shape {len(place.nodes)} x {sizes}")
        closed = [seat.n for seat in place.nodes if not _takes(world.nodes[seat.n])]
        found += [f"{place.replica} is started on {name}, which takes nothing" for name in closed]
        if len(place.nodes) > 1:
            found += _under(world, place, profile.topology)
        if [seat.rank for seat in place.nodes] != list(range(len(place.nodes))):
            found.append(f"{place.replica} has its ranks out of order")
        if len(action.launches) != len(place.nodes):
            found.append(f"{place.replica} has {len(action.launches)} launches")
    return found


def _takes(node: FakeNode) -> bool:
    return not node.cordon and not node.drain and node.silent_s is None and node.slurm in ("", "IDLE")


def _under(world: World, place: Placement, topology: Topology) -> list[str]:
    names = {seat.n for seat in place.nodes}
    homes = [
        (fabric, leaf)
        for fabric, pods in world.fabrics.items()
        if world.roles.get(fabric) != "storage"
        for leaves in pods.values()
        for leaf, nodes in leaves.items()
        if names <= set(nodes)
    ]
    if topology is Topology.REQUIRED and not homes:
        return [f"{place.replica} requires one leaf and has none"]
    together = [
        fabric
        for fabric, pods in world.fabrics.items()
        if world.roles.get(fabric) != "storage"
        and names <= {name for leaves in pods.values() for nodes in leaves.values() for name in nodes}
    ]
    return [] if together else [f"{place.replica} spans fabrics"]


def _order(body: Body) -> list[str]:
    """Actions wait for earlier ones only; a start waits for what holds its GPUs."""
    found = []
    done: dict[str, set[str]] = {}
    owner: dict[tuple[str, int], str] = {}
    for action in body.actions:
        if action.ends and action.op in (Op.STOP, Op.REPLACE, Op.MOVE):
            for seat in action.ends.nodes:
                owner.update({(seat.n, gpu): action.id for gpu in seat.gpus})
    for action in body.actions:
        found += [
            f"{action.id} waits for {first}, which comes later" for first in action.after if first not in done
        ]
        done[action.id] = {one for first in action.after for one in (first, *done.get(first, ()))}
        if action.starts and action.op in STARTING:
            for seat in action.starts.nodes:
                for gpu in seat.gpus:
                    first = owner.get((seat.n, gpu), action.id)
                    if first != action.id and first not in done[action.id]:
                        found.append(f"{action.id} takes GPU {gpu} of {seat.n} and does not wait for {first}")
    return found


def _readiness(world: World, body: Body) -> list[str]:
    """No action takes a model below its floor without saying so."""
    found = []
    catalogue = world.catalogue()
    ready: dict[str, int] = {}
    by_model: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for action in body.actions:
        model = replica_parts(action.replica)[0]
        by_model[model].append(action.ready)
        if model in catalogue.models:
            one = catalogue.models[model]
            floor = min(1 if one.min_ready is None else one.min_ready, sum(one.counts().values()))
            if min(action.ready) < min(floor, action.ready[0]) and not action.outage:
                found.append(f"{action.id} takes {model} to {action.ready} and says nothing")
        if action.ready[0] != ready.get(model, action.ready[0]):
            found.append(f"{action.id} counts {action.ready[0]} ready replicas of {model}, {ready[model]} before")
        ready[model] = action.ready[-1]
        if min(action.ready) < 0:
            found.append(f"{action.id} counts fewer than no replicas")
    return found
