"""How each rank of a placed replica is started: the seats and the maps made into launches."""

from collections.abc import Mapping, Sequence

from llmgw.base import unit_name
from llmgw.engines import ENGINES, Launch, Peer, Shard, network_environment, served_names
from llmgw.fabric import Paths
from llmgw.plan.document import Seat
from llmgw.plan.nodes import Ground
from llmgw.plan.roster import Member
from llmgw.site import InventoryHost, Profile, Shape, Site, address


def launches(
    site: Site, fabrics: Mapping[str, Paths], ground: Ground, member: Member, seats: Sequence[Seat]
) -> tuple[Launch, ...]:
    """By rank, the launch of each seat."""
    model = site.catalogue.models[member.model]
    profile = model.profiles[member.profile]
    peers = tuple(Peer(seat.n, address(ground[seat.n].host), seat.port) for seat in seats)
    nodes = [seat.n for seat in seats]
    engine_path = site.settings.engines[profile.engine][profile.version].path
    drain, start = drain_s(site, profile), start_s(site, profile)
    names = served_names(member.model, model, member.profile)
    module = ENGINES[profile.engine]
    found = []
    for seat in seats:
        host = ground[seat.n].host
        shard = Shard(
            replica=member.name,
            model=member.model,
            profile=profile,
            shape=Shape(len(seats), len(seat.gpus)),
            weights=model.source.path,
            engine_path=engine_path,
            rank=seat.rank,
            peers=peers,
            gpus=seat.gpus,
            network=network_environment(seat.n, nodes, fabrics=fabrics, variables=host.variables),
            drain_s=drain,
            start_s=start,
            run_folder=run_folder(site, host, member.name),
            names=names,
        )
        found.append(module.launch(shard))
    return tuple(found)


def run_folder(site: Site, host: InventoryHost, replica: str) -> str:
    """The folder of the replica's run on a host."""
    return f"{host.variables.run_dir or site.settings.run_dir}/{unit_name(replica)}"


def drain_s(site: Site, profile: Profile | None) -> int:
    """Longest time for running requests to finish; None: of a profile that the catalogue no longer has."""
    own = profile.drain_s if profile else None
    return site.settings.timeouts.drain_s if own is None else own


def start_s(site: Site, profile: Profile) -> int:
    """Longest time to become ready."""
    return site.settings.timeouts.start_s if profile.start_s is None else profile.start_s
