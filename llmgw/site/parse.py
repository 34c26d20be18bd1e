"""From the texts of a site folder to a Site, or to the first thing wrong with them and where it stands."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from llmgw.base import Document, DocumentError, Place, digest, document_error, is_host_name, natural, near
from llmgw.base.bulk import collector_at_rest
from llmgw.site.catalogue import Catalogue
from llmgw.site.settings import HostVariables, InventoryHost, PortRange, SiteSettings
from llmgw.site.source import load

PREFIX = "llmgw_"
# What may be kept of a host's Ansible variables: how to reach it, never a password.
CONNECTION = (
    "ansible_host",
    "ansible_port",
    "ansible_user",
    "ansible_connection",
    "ansible_ssh_private_key_file",
    "ansible_ssh_common_args",
    "ansible_ssh_extra_args",
    "ansible_python_interpreter",
    "ansible_become",
)
_SAFE_CONNECTION = ("ansible_host", "ansible_user")  # words that ssh would read as options or a shell as its own
_SAFE_WORD = re.compile(r"(?!-)[\w.:@%-]*")
_D = TypeVar("_D", bound=Document)


@dataclass(frozen=True, slots=True)
class Site:
    """All that the admins wrote. `nodes` and `routers` are in natural order of their names."""

    settings: SiteSettings
    nodes: tuple[InventoryHost, ...]
    routers: tuple[InventoryHost, ...]
    catalogue: Catalogue

    def node(self, name: str) -> InventoryHost:
        """The node of that name; KeyError where there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    def ports(self, node: InventoryHost) -> PortRange:
        """The TCP ports that engines may listen on there."""
        return node.variables.ports or self.settings.ports

    def inventory_digest(self) -> str:
        """Changes with every value of the inventory that a plan depends on."""
        return digest([host.model_dump(mode="json") for host in (*self.nodes, *self.routers)])

    def catalogue_digest(self) -> str:
        """Changes with every value of llmgw.yml or models.yml, not with their comments."""
        return digest([self.settings.model_dump(mode="json"), self.catalogue.model_dump(mode="json")])


def address(host: InventoryHost) -> str:
    """Where the host's engines listen and others find them."""
    return host.variables.address or str(host.connection.get("ansible_host", host.name))


def parse_settings(text: str, name: str) -> SiteSettings:
    """llmgw.yml."""
    return _document(SiteSettings, text, name)


def parse_catalogue(text: str, name: str, settings: SiteSettings) -> Catalogue:
    """models.yml; DocumentError too for an engine version or a secret that llmgw.yml does not have."""
    source = load(text, name)
    catalogue = _validated(Catalogue, text, name)
    for model_name, model in catalogue.models.items():
        for profile_name, profile in model.profiles.items():
            path = ("models", model_name, "profiles", profile_name)
            known = settings.engines.get(profile.engine, {})
            if profile.version not in known:
                raise DocumentError(
                    source.place(*path, "version"),
                    f"llmgw.yml has no {profile.engine} {profile.version} under engines",
                    hint=f"it has {', '.join(known)}" if known else f"it has no version of {profile.engine}",
                )
            for key, value in profile.env.items():
                if not isinstance(value, str) and value.secret not in settings.secrets:
                    raise DocumentError(
                        source.place(*path, "env", key), f"llmgw.yml has no {value.secret!r} under secrets"
                    )
    return catalogue


def _document(kind: type[_D], text: str, name: str) -> _D:
    return _validated(kind, text, name)


def _validated(kind: type[_D], text: str, name: str) -> _D:
    source = load(text, name)
    if not isinstance(source.values, dict):
        raise DocumentError(Place(name, line=1), "should be a mapping of keys to values")
    try:
        return kind.model_validate(source.values)
    except ValidationError as error:
        raise document_error(error, name, kind, dict(source.lines)) from None


@collector_at_rest()
def parse_hosts(listing: Mapping[str, Any], group: str, name: str) -> tuple[InventoryHost, ...]:
    """The hosts of one group of what `ansible-inventory --list` printed, natural order.

    DocumentError where the group does not exist, a host's name is none by RFC 1123, or a llmgw_ variable is
    unknown or wrong. Of the other variables only those of CONNECTION are kept.
    """
    if group not in listing:
        groups = sorted(key for key in listing if key not in ("_meta", "all"))
        close = near(group, groups)
        raise DocumentError(
            Place(name, group),
            "the inventory has no such group",
            hint=(f"did you mean {close[0]}? " if close else "") + "llmgw.yml can name others under groups",
        )
    variables = listing.get("_meta", {}).get("hostvars", {})
    return tuple(_host(host, variables.get(host, {}), name) for host in natural(_members(listing, group)))


def kept_listing(listing: Mapping[str, Any]) -> dict[str, Any]:
    """The listing with those host variables only that llmgw reads: no password, no vaulted secret."""
    groups = {name: group for name, group in listing.items() if name != "_meta"}
    variables = {
        host: {key: value for key, value in own.items() if key.startswith(PREFIX) or key in CONNECTION}
        for host, own in listing.get("_meta", {}).get("hostvars", {}).items()
    }
    return {
        **{
            name: {key: group[key] for key in ("hosts", "children") if key in group}
            for name, group in groups.items()
        },
        "_meta": {"hostvars": variables},
    }


def _members(listing: Mapping[str, Any], group: str) -> set[str]:
    """The hosts of the group and of every group below it."""
    found: set[str] = set()
    seen: set[str] = set()
    waiting = [group]
    while waiting:
        here = waiting.pop()
        if here in seen:
            continue
        seen.add(here)
        entry = listing.get(here, {})
        found.update(entry.get("hosts", ()))
        waiting.extend(entry.get("children", ()))
    return found


def _host(name: str, variables: Mapping[str, Any], source: str) -> InventoryHost:
    if not is_host_name(name):
        raise DocumentError(
            Place(source, ascii(name)[1:-1][:80]),
            "is no host name by RFC 1123: letters, digits, dashes and dots",
        )
    own = {key.removeprefix(PREFIX): value for key, value in variables.items() if key.startswith(PREFIX)}
    connection = {key: variables[key] for key in CONNECTION if key in variables}
    _check_connection(name, connection, source)
    try:
        return InventoryHost(name=name, variables=HostVariables.model_validate(own), connection=connection)
    except ValidationError as error:
        found = document_error(error, source, HostVariables)
        path = f"{name}/{PREFIX}{found.place.path}"
        raise DocumentError(Place(source, path), found.message.partition(f"{found.place}: ")[2]) from None


def _check_connection(name: str, connection: Mapping[str, Any], source: str) -> None:
    for key in _SAFE_CONNECTION:
        value = str(connection.get(key, ""))
        if not _SAFE_WORD.fullmatch(value):
            raise DocumentError(Place(source, f"{name}/{key}"), f"is no {key.removeprefix('ansible_')}: {value!r}")


def make_site(
    settings: SiteSettings, listing: Mapping[str, Any], catalogue: Catalogue, *, inventory_name: str
) -> Site:
    """The site of parsed documents and of what `ansible-inventory --list` printed. A site may have no router."""
    nodes = parse_hosts(listing, settings.groups.gpu_nodes, inventory_name)
    has_routers = settings.groups.routers in listing
    routers = parse_hosts(listing, settings.groups.routers, inventory_name) if has_routers else ()
    return Site(settings, nodes, routers, catalogue)


def unknown_scanners(site: Site) -> list[str]:
    """A line for each node from which a fabric is to be scanned and that is no node of the inventory."""
    names = [node.name for node in site.nodes]
    found = []
    for fabric, settings in site.settings.fabrics.items():
        for written in settings.scan_from:
            node = written.partition(":")[0]
            if node not in names:
                close = near(node, names)
                hint = f"; did you mean {' or '.join(close)}?" if close else ""
                found.append(f"fabrics/{fabric}/scan_from: there is no node {node} in the inventory{hint}")
    return found


def select(nodes: Iterable[InventoryHost], names: Iterable[str]) -> list[InventoryHost]:
    """The named nodes, in the order of `nodes`."""
    wanted = set(names)
    return [node for node in nodes if node.name in wanted]
