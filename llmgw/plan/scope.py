"""What the operator narrowed a plan to: --target and --replace, checked against what there is."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from llmgw.base import UsageError, natural, near, replica_parts
from llmgw.plan.copies import Copy
from llmgw.plan.document import Options
from llmgw.site import Catalogue, Site, wanted_replicas


@dataclass(frozen=True, slots=True)
class Scope:
    """What the operator narrowed the plan to. `replicas` None: everything. `replace`: to be started anew anyway."""

    replicas: frozenset[str] | None = None
    replace: frozenset[str] = frozenset()

    def covers(self, replica: str) -> bool:
        return self.replicas is None or replica in self.replicas


def scope_of(site: Site, options: Options, found: Sequence[Copy]) -> Scope:
    """The scope of a plan. UsageError for a target that names nothing, with the near names."""
    replicas = {copy.name: copy.nodes for copy in found}
    for wanted in wanted_replicas(site.catalogue):
        replicas.setdefault(wanted.name, ())
    targets = None
    if options.targets:
        targets = frozenset(name for word in options.targets for name in _meant(site, word, replicas))
    replace = frozenset(name for word in options.replace for name in _replica(word, replicas, site.catalogue))
    return Scope(None if targets is None else targets | replace, replace)


def _meant(site: Site, word: str, replicas: Mapping[str, tuple[str, ...]]) -> Iterable[str]:
    kind, colon, node = word.partition(":")
    if colon and kind == "node" and "/" not in node:
        known = [host.name for host in site.nodes]
        if node not in known:
            raise _unknown("node", node, known)
        return [name for name, nodes in replicas.items() if node in nodes]
    return _replica(word, replicas, site.catalogue)


def _replica(word: str, replicas: Mapping[str, tuple[str, ...]], catalogue: Catalogue) -> Iterable[str]:
    """The replicas that MODEL, MODEL:PROFILE or MODEL/N names."""
    if "/" in word:
        if word not in replicas:
            raise _unknown("replica", word, natural(replicas))
        return [word]
    model, _, profile = word.partition(":")
    model = next((name for name, one in catalogue.models.items() if model in one.aliases), model)
    meant = [name for name in replicas if _is_of(name, model, profile)]
    if not meant:
        raise _unknown("model", word, natural({*catalogue.models, *(replica_parts(name)[0] for name in replicas)}))
    return meant


def _is_of(replica: str, model: str, profile: str) -> bool:
    own_model, own_profile, _ = replica_parts(replica)
    return own_model == model and (not profile or own_profile == profile)


def _unknown(kind: str, word: str, known: Sequence[str]) -> UsageError:
    close = near(word, known)
    hint = (
        f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known[:10])}" if known else ""
    )
    return UsageError(f"there is no {kind} {word!r}", hint=hint)
