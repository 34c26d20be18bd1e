"""What defines how a replica runs, wherever it runs; its digest is the mark by which a change is seen."""

from collections.abc import Sequence

from llmgw.base import Value, digest
from llmgw.engines import ENGINES, served_names
from llmgw.site import Model, SecretReference


class Spec(Value):
    """A change of any of these takes a restart. Nodes, ports, shape and the map's environment are no part of it."""

    engine: str
    version: str
    weights: str
    tensor_parallel: int
    pipeline_parallel: int
    served: tuple[str, ...]
    args: tuple[str, ...] = ()
    env: dict[str, str | SecretReference] = {}

    def mark(self) -> str:
        """The spec's digest."""
        return digest(self.model_dump(mode="json"))


def spec_of(name: str, model: Model, profile_name: str) -> Spec:
    """How a replica of the model runs by the profile. Names count only where the engine refuses others."""
    profile = model.profiles[profile_name]
    names = served_names(name, model, profile_name)
    return Spec(
        engine=profile.engine.value,
        version=profile.version,
        weights=model.source.path,
        tensor_parallel=profile.tensor_parallel,
        pipeline_parallel=profile.pipeline_parallel,
        served=names if ENGINES[profile.engine].CHECKS_NAMES else (name,),
        args=profile.args,
        env=dict(sorted(profile.env.items())),
    )


class Change(Value):
    """One field that differs: what it was and what it is to be; empty text for what is not there."""

    field: str
    old: str
    new: str

    def __str__(self) -> str:
        first = self.old.split(" ")[0]
        same = f"{first} " if first and self.new.startswith(f"{first} ") else ""
        return f"{self.field} {self.old or '(none)'} -> {self.new.removeprefix(same) or '(none)'}"


def changes(old: Spec, new: Spec) -> list[Change]:
    """What differs, in the order in which an admin would read it; arguments and variables one by one."""
    found = []
    if (old.engine, old.version) != (new.engine, new.version):
        both = old.engine != new.engine
        after = f"{new.engine} {new.version}" if both else new.version
        found.append(Change(field="engine", old=f"{old.engine} {old.version}", new=after))
    for field in ("weights", "tensor_parallel", "pipeline_parallel"):
        before, after = str(getattr(old, field)), str(getattr(new, field))
        if before != after:
            found.append(Change(field=field, old=before, new=after))
    if old.served != new.served:
        found.append(Change(field="names", old=" ".join(old.served), new=" ".join(new.served)))
    found += _pairs("args", _arguments(old.args), _arguments(new.args))
    found += _pairs("env", _variables(old), _variables(new))
    if not found and old.args != new.args:
        found.append(Change(field="args", old=" ".join(old.args), new=" ".join(new.args)))
    return found


def _pairs(field: str, old: dict[str, str], new: dict[str, str]) -> list[Change]:
    return [
        Change(field=field, old=old.get(name, ""), new=new.get(name, ""))
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]


def _arguments(args: Sequence[str]) -> dict[str, str]:
    """Each flag with what follows it, as they stand together on a command line; repeats are numbered."""
    groups: list[list[str]] = []
    for arg in args:
        if arg.startswith("-") or not groups:
            groups.append([arg])
        else:
            groups[-1].append(arg)
    found: dict[str, str] = {}
    for group in groups:
        name = group[0].partition("=")[0]
        while name in found:
            name += "'"
        found[name] = " ".join(group)
    return found


def _variables(spec: Spec) -> dict[str, str]:
    return {
        name: f"{name}={value}" if isinstance(value, str) else f"{name}=<secret {value.secret}>"
        for name, value in spec.env.items()
    }
