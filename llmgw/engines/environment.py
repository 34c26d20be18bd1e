"""The parts of a rank's environment that all engines share, and what a profile may not ask for."""

from collections.abc import Iterable

from llmgw.engines.launch import Shard
from llmgw.site import Profile, SecretReference

OFFLINE = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}
"""Engines on compute nodes fetch nothing and report nothing."""


def environment(shard: Shard, *own: dict[str, str]) -> dict[str, str]:
    """The engine's own variables, then the map's and the inventory's, then the profile's: the later one wins.

    Variables that the profile takes from a secret are left out, here and of what comes before.
    """
    merged: dict[str, str] = dict(OFFLINE)
    for part in (*own, shard.network):
        merged.update(part)
    for name, value in shard.profile.env.items():
        if isinstance(value, str):
            merged[name] = value
        else:
            merged.pop(name, None)
    return dict(sorted(merged.items()))


def secrets_of(profile: Profile) -> dict[str, str]:
    """The profile's variables that come from secrets, with the names of those."""
    return {
        name: value.secret for name, value in sorted(profile.env.items()) if isinstance(value, SecretReference)
    }


def visible_gpus(shard: Shard) -> dict[str, str]:
    """CUDA counts GPUs as nvidia-smi does, by PCI address, and sees only the rank's."""
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, shard.gpus)),
    }


def reserved_in(args: Iterable[str], reserved: frozenset[str]) -> list[str]:
    """The arguments among `args` that are reserved, as they were written, `--port=1` as `--port`."""
    return [name for arg in args if (name := arg.partition("=")[0]) in reserved]
