"""What a new text of endpoints.json does to a router: taken, or kept out and said why."""

from dataclasses import dataclass

from llmgw.base import LlmgwError
from llmgw.serving.endpoints import EndpointsFile

LARGEST = 64 << 20


@dataclass(frozen=True, slots=True)
class Reload:
    """The file to use from now on, or None and the problem: then the last good one stays."""

    file: EndpointsFile | None
    problem: str = ""


def decide_reload(text: bytes, source: str, current: int) -> Reload:
    """`current` is the loaded generation, -1 where there is none.

    An older one is refused, the same one is taken.
    """
    if len(text) > LARGEST:
        return Reload(None, f"{source}: {len(text)} bytes; more than {LARGEST} are not read")
    try:
        file = EndpointsFile.read(text, source)
    except (LlmgwError, ValueError, RecursionError) as error:
        return Reload(None, str(error)[:500])
    if file.generation < current:
        return Reload(None, f"{source}: generation {file.generation} is older than {current}, which is loaded")
    return Reload(file)
