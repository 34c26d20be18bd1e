"""What is published after each phase, and what routers' statuses say."""

import json
from typing import Any

import pytest
import yaml

from llmgw.plan import Action, Phase
from llmgw.serving import Endpoint, EndpointsFile
from llmgw.serving.exports import to_litellm, to_llm_d, to_nginx, to_vllm_router
from llmgw.serving.publishing import after_phase, leaving_id, read_routers, served_models
from llmgw.site import Site, make_site, parse_catalogue, parse_settings
from tests.fakes.actions import move, replace, start, stop

SETTINGS = "name: s\nengines: {vllm: {'1': {path: /opt/vllm}}}\nrouter: {max_in_flight: 64}\n"
MODELS = """
models:
  m: {source: {path: /m}, aliases: [small], profiles: {p: {engine: vllm, version: '1', shapes: [1x1]}}}
  k: {source: {path: /k}, profiles: {p: {engine: vllm, version: '1', shapes: [1x1], max_in_flight: 8}}}
"""


def site() -> Site:
    settings = parse_settings(SETTINGS, "llmgw.yml")
    hosts = {f"n{n}": {"ansible_host": f"10.0.0.{n}"} for n in range(1, 5)}
    listing = {"gpu_nodes": {"hosts": list(hosts)}, "_meta": {"hostvars": hosts}}
    return make_site(settings, listing, parse_catalogue(MODELS, "m", settings), inventory_name="hosts.yml")


def shown(endpoints: list[Endpoint]) -> dict[str, tuple[str, str]]:
    return {endpoint.id: (endpoint.url, endpoint.state) for endpoint in endpoints}


def published(action: Action, phase: Phase, endpoints: list[Endpoint]) -> list[Endpoint]:
    return after_phase(site(), action, phase, endpoints)


def test_a_start_is_published_ready_with_its_limits() -> None:
    (m,) = published(start("a1", "m/0", "n1"), Phase.PUBLISH, [])
    (k,) = published(start("a1", "k/0", "n2"), Phase.PUBLISH, [])
    assert (m.url, m.state, m.node, m.max_in_flight) == ("http://10.0.0.1:18000", "ready", "n1", 64)
    assert k.max_in_flight == 8


def test_a_stop_drains_is_restored_or_goes() -> None:
    before = published(start("a1", "m/0", "n1"), Phase.PUBLISH, [])
    gone = stop("a2", "m/0", "n1")
    draining = published(gone, Phase.DRAIN, before)
    assert shown(draining) == {"m/0": ("http://10.0.0.1:18000", "draining")}
    assert published(gone, Phase.RESTORE, draining) == before
    assert published(gone, Phase.WITHDRAW, draining) == []


def test_a_replacement_in_place_takes_the_place_of_the_old() -> None:
    before = published(start("a1", "m/0", "n1"), Phase.PUBLISH, [])
    change = replace("a2", "m/0", "n1")
    after = published(change, Phase.PUBLISH, published(change, Phase.DRAIN, before))
    assert shown(after) == {"m/0": ("http://10.0.0.1:18000", "ready")}


def test_during_a_move_both_copies_are_known_and_the_old_one_keeps_its_url() -> None:
    before = published(start("a1", "m/0", "n1"), Phase.PUBLISH, [])
    change = move("a2", "m/0", "n1", "n2")
    both = published(change, Phase.PUBLISH, before)
    assert shown(both) == {
        "m/0~n1": ("http://10.0.0.1:18000", "draining"),
        "m/0": ("http://10.0.0.2:18000", "ready"),
    }
    assert leaving_id(site(), change, both) == leaving_id(site(), change, []) == "m/0~n1"
    assert shown(published(change, Phase.WITHDRAW, both)) == {"m/0": ("http://10.0.0.2:18000", "ready")}


def test_a_copy_that_takes_over_leaves_the_other_draining_until_that_has_ended() -> None:
    before = published(start("a1", "m/0", "n1"), Phase.PUBLISH, [])
    assert leaving_id(site(), stop("a3", "m/0", "n1"), before) == "m/0"
    adopted = start("a2", "m/0", "n2")
    both = after_phase(site(), adopted, Phase.PUBLISH, before, ending={"http://10.0.0.1:18000"})
    assert shown(both) == {
        "m/0~n1": ("http://10.0.0.1:18000", "draining"),
        "m/0": ("http://10.0.0.2:18000", "ready"),
    }
    end = stop("a3", "m/0", "n1")
    assert leaving_id(site(), end, both) == "m/0~n1"
    assert shown(published(end, Phase.WITHDRAW, both)) == {"m/0": ("http://10.0.0.2:18000", "ready")}


def test_a_start_takes_the_place_of_an_endpoint_whose_node_is_lost() -> None:
    before = published(start("a1", "m/0", "n1"), Phase.PUBLISH, [])
    assert shown(published(start("a2", "m/0", "n3"), Phase.PUBLISH, before)) == {
        "m/0": ("http://10.0.0.3:18000", "ready")
    }


def test_models_are_listed_with_their_state() -> None:
    ready = published(start("a1", "m/0", "n1"), Phase.PUBLISH, [])
    other = ready[0].model_copy(update={"id": "gone/0", "model": "gone", "url": "http://x:1"})
    listed = served_models(site().catalogue, [*ready, other], starting={"k"}, failed=set())
    assert {model.name: model.state for model in listed} == {"m": "ready", "k": "starting", "gone": "ready"}
    idle = served_models(site().catalogue, [], starting=set(), failed={"k"})
    assert {model.name: model.state for model in idle} == {"m": "stopped", "k": "failed"}


def status(generation: int, age_s: int = 1, **in_flight: int) -> dict[str, Any]:
    document = {
        "format": "llmgw-endpoints-status/1",
        "router": "r",
        "generation": generation,
        "loaded_at": "2026-12-01T08:00:00Z",
        "written_at": "2026-12-01T08:00:00Z",
        "in_flight": {key.replace("_", "/"): count for key, count in in_flight.items()},
    }
    return {"text": json.dumps(document), "age_s": age_s}


@pytest.mark.parametrize(
    ("hosts", "behind", "in_flight"),
    [
        ({}, (), None),
        ({"r1": {"endpoints.status": status(7, m_0=2)}, "r2": {"endpoints.status": status(8, m_0=3)}}, (), 5),
        (
            {"r1": {"endpoints.status": status(6)}},
            ("router r on r1 is at generation 6 (endpoints.status)",),
            0,
        ),
        ({"r1": {"endpoints.status": status(6, age_s=31, m_0=2)}}, (), None),
        ({"r1": {"endpoints.status": {"text": "not a status", "age_s": 1}}}, (), None),
    ],
)
def test_routers_say_what_they_have_loaded_and_what_is_under_way(
    hosts: dict[str, Any], behind: tuple[str, ...], in_flight: int | None
) -> None:
    reading = read_routers(hosts, "m/0", 7)
    assert (reading.behind, reading.in_flight) == (behind, in_flight)


def test_two_endpoints_of_one_name_or_url_are_no_file() -> None:
    one = published(start("a1", "m/0", "n1"), Phase.PUBLISH, [])[0]
    other = one.model_copy(update={"id": "m/1"})
    for pair in ((one, one), (one, other)):
        with pytest.raises(ValueError, match="stands twice"):
            EndpointsFile(generation=1, written="2026-12-01T08:00:00Z", endpoints=pair)  # type: ignore[arg-type]


def test_exports_name_every_ready_endpoint_and_no_key() -> None:
    endpoints = published(start("a1", "m/0", "n1"), Phase.PUBLISH, [])
    endpoints += published(start("a1", "k/0", "n2"), Phase.PUBLISH, [])
    endpoints = published(stop("a2", "k/0", "n2"), Phase.DRAIN, endpoints)
    assert yaml.safe_load(to_llm_d(endpoints))["endpoints"] == [
        {
            "name": "m-0",
            "address": "10.0.0.1",
            "port": "18000",
            "labels": {"llmgw/model": "m", "llmgw/node": "n1"},
        }
    ]
    (entry,) = yaml.safe_load(to_litellm(endpoints))["model_list"]
    assert entry["litellm_params"]["api_base"] == "http://10.0.0.1:18000/v1"
    assert to_vllm_router(endpoints) == "# m\n--worker-urls http://10.0.0.1:18000\n"
    assert "server 10.0.0.1:18000 weight=1;" in to_nginx(endpoints)
