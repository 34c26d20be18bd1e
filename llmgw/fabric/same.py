"""Whether two scans say the same: a digest of what a scan means, without when and from where it was made."""

import msgspec

from llmgw.base import digest_of_bytes
from llmgw.fabric.fabric import Fabric
from llmgw.fabric.paths import Paths
from llmgw.fabric.scan import Weight


def substance(fabric: Fabric, way: Paths) -> str:
    """The digest of a map and of what placement makes of it; equal for two scans of an unchanged fabric, whatever
    the order of the tool's blocks."""
    problems = {(one.kind, one.message) for one in fabric.verdict.problems if one.weight is not Weight.NOTE}
    parts = (
        fabric.verdict.state,
        sorted(problems),
        list(fabric.switches.values()),
        list(fabric.adapters.values()),
        sorted((one.a, one.a_port, one.b, one.b_port, one.rate, one.expected) for one in fabric.cables),
        list(fabric.domains.values()),
        sorted(fabric.aggregation),
        sorted(fabric.routers),
        list(fabric.missing.items()),
        sorted(one.text for one in fabric.findings if not one.kind.startswith("scan ")),
        way.model_copy(update={"scan": 0}).model_dump_json(),
    )
    return digest_of_bytes(msgspec.json.encode(parts))
