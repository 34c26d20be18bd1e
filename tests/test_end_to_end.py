"""The whole way on lab hosts, every part real: scan, plan, apply, router, streams, change, drain, removal."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.kernel import wait_until
from tests.lab.lab import Lab
from tests.lab.site import LabSite, llama, log_of, model

pytestmark = [pytest.mark.lab, pytest.mark.simulator, pytest.mark.engine]

COUNT = {"count": model("count.gguf", llama(), replicas=2, aliases=["numbers"])}


@pytest.fixture
def site(whole_lab: Lab, tmp_path: Path) -> Iterator[LabSite]:
    """A site of four nodes on which nothing runs, with the counting model in its catalogue."""
    made = LabSite(whole_lab, tmp_path / "site", models=COUNT)
    made.clear()
    made.prepare()
    made.write()
    yield made
    made.clear()


def test_from_scan_to_stream_to_nothing(site: LabSite) -> None:
    assert "complete" in site.llmgw("fabric", "scan").stdout
    names = {fabric["name"]: fabric for fabric in site.json("fabric", "list")["fabrics"]}
    assert (names["compute"]["leaves"], names["compute"]["nodes"]) == (6, 5)
    assert names["storage"]["role"] == "storage"

    assert site.actions() == [("start", "count/0"), ("start", "count/1")]
    site.llmgw("apply", "--yes")
    assert site.endpoints() == {"count/0": "ready", "count/1": "ready"}
    site.start_router()
    chats = [site.chat("numbers") for _ in range(10)]
    assert [chat.text.split() for chat in chats] == [["1", "2", "3", "4", "5", "6", "7", "8"]] * 10
    assert all(chat.whole for chat in chats)
    logs = "".join(log_of(site.lab.nodes[name], unit[0]) for name, unit in site.units().items())
    assert logs.count("print_timing") >= 10

    _change_under_a_stream(site)
    _cordon_and_drain(site)

    site.catalogue({})
    site.llmgw("apply", "--yes", "--allow-outage")
    assert site.units() == {}
    assert site.endpoints() == {}
    left = {
        node.name: node.console("pgrep -af '[/]opt/llmgw'; ss -ltn | grep 18000").stdout
        for node in site.lab.nodes.values()
    }
    assert {name: text for name, text in left.items() if text} == {}
    assert site.actions() == []


def _change_under_a_stream(site: LabSite) -> None:
    """Another argument: one replacement a replica, and a stream that runs meanwhile is not broken."""
    site.catalogue({"count": model("count.gguf", llama("--cont-batching"), replicas=2, aliases=["numbers"])})
    assert site.actions() == [("replace", "count/0"), ("replace", "count/1")]
    pieces: list[str] = []
    chats = []
    streams = [
        threading.Thread(target=lambda: chats.append(site.chat("count", tokens=400, each=pieces.append)))
        for _ in range(4)
    ]
    for stream in streams:
        stream.start()
    wait_until(lambda: len(pieces) > 8, lambda: "no stream began", timeout_s=20)
    site.llmgw("apply", "--yes")
    for stream in streams:
        stream.join(120)
    assert [(chat.whole, chat.finish, len(chat.text.split())) for chat in chats] == [(True, "length", 400)] * 4
    assert site.actions() == []


def _cordon_and_drain(site: LabSite) -> None:
    """A cordon moves nothing; a drain moves what is there, and the other replica serves all along."""
    before = {endpoint["id"]: endpoint["node"] for endpoint in site.published()["endpoints"]}
    away = before["count/0"]
    site.llmgw("nodes", "cordon", away, "--reason", "psu")
    assert site.actions() == []
    site.llmgw("nodes", "drain", away, "--reason", "psu")
    assert site.actions() == [("move", "count/0")]
    site.llmgw("apply", "--yes")
    after = {endpoint["id"]: endpoint["node"] for endpoint in site.published()["endpoints"]}
    assert after["count/0"] not in (away, after["count/1"])
    assert away not in site.units()
    assert site.chat("count").whole


@pytest.mark.parametrize("row", [2, 4])
def test_a6_after_a_kill_of_an_apply_the_next_plan_shows_the_rest(site: LabSite, row: int) -> None:
    going = site.popen("apply", "--yes")
    try:
        wait_until(lambda: site.journal_rows() >= row, lambda: f"{site.journal_rows()} rows", timeout_s=90)
        going.kill()
    finally:
        going.communicate()
    done = (
        {name for name, state in site.endpoints().items() if state == "ready"} if _has_published(site) else set()
    )
    left = {replica for _, replica in site.actions()}
    assert left == {"count/0", "count/1"} - done
    site.llmgw("apply", "--yes")
    assert site.endpoints() == {"count/0": "ready", "count/1": "ready"}
    assert sum(map(len, site.units().values())) == 2
    assert site.actions() == []


def _has_published(site: LabSite) -> bool:
    return bool(site.lab.nodes["r1"].console("test -e /var/lib/llmgw/published/endpoints.json").returncode == 0)
