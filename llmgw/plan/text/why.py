"""The codes of a placement's reasons as sentences."""

from collections.abc import Sequence


def reason_words(replica: str, codes: Sequence[str]) -> list[str]:
    """What the codes of Placement.why say of a replica, in the words of an admin; an unknown code stays as it is."""
    split = [(code.partition(":")[0], code.partition(":")[2]) for code in codes]
    own = replica.partition("/")[0] + "/"
    said = [sentence for code, value in split if (sentence := _words(code, value, own))]
    return ["; ".join(said)] if said else []


_BEATEN = {
    "pods crossed": "{} would cross pods",
    "spread": "with {} all replicas of the model would be together",
    "short cables": "{} has a short cable",
    "off-rail nodes": "{} has a swapped rail",
    "places left for the biggest models": "{} keeps its place for a bigger model",
    "whole nodes left": "{} keeps a whole node",
    "whole nodes left together": "{} keeps its whole nodes together",
    "GPUs that are free now": "the GPUs of {} are still in use",
    "kinds that others insist on": "the GPUs of {} are left to models that need them",
    "tightest fit": "{} would leave more over",
}


def _words(code: str, value: str, own: str) -> str:
    other = f"/{value.removeprefix(own)}" if value.startswith(own) else value
    level, _, leaf = value.partition(":")
    sentences = {
        "leaf": {"required": "one leaf, as required", "one": "under one leaf"}.get(value, ""),
        "leaves": f"over {value} leaves: no leaf has enough",
        "pods": f"over {value} pods: no pod has enough",
        "shape": f"no {value} fits",
        "spread": f"{other} is under another leaf: the model survives the loss of any one",
        "spread-node": f"{other} is on another node: the model survives the loss of any one",
        "exposed": f"all replicas of the model share {value}",
        "exact": f"{value} is filled exactly",
        "short": f"{value} has a short cable",
        "idle-short": f"the short cable of {value} does not matter to a one-node replica",
        "off-rail": f"{value} has a swapped rail",
        "kinds": f"its nodes have {value} kinds of GPU",
        "waits": "",
        "rather": _BEATEN.get(level, "{} loses on " + level).format(leaf),
        "only": "no other leaf has room for it" if value == "leaf" else "no other node has room for it",
        "first": "the first of equal places",
    }
    return sentences.get(code, f"{code}:{value}")
