"""llmgw keys and llmgw usage: from a key that is made to what its tenant took."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from llmgw.base import UsageError
from llmgw.cli.main import cli, run
from llmgw.cli.publishing import client_keys
from llmgw.cli.times import ago, ahead
from llmgw.cli.workspace import Workspace
from llmgw.serving import KeysFile
from llmgw.serving.faults import BAD_KEY, NO_KEY
from llmgw.serving.keys import NOBODY, Caller, is_well_formed, key_table
from llmgw.store.usage import UsageLedger, UsageRow

NOW = datetime(2026, 12, 1, 8, 0, tzinfo=UTC)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    assert CliRunner().invoke(cli, ["init", str(folder)]).exit_code == 0
    return folder


def workspace_of(site: Path) -> Workspace:
    return Workspace(site, site / "state.db")


def llmgw(site: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--site", str(site), "--state", str(site / "state.db"), *words])


def published(site: Path) -> KeysFile:
    """keys.json as router hosts get it."""
    (text,) = client_keys(workspace_of(site))
    return KeysFile.read(text.text, text.name)


def test_a_key_is_shown_once_and_only_its_digest_is_kept(site: Path) -> None:
    made = llmgw(site, "keys", "create", "physics", "--no-publish", "--max-in-flight", "4")
    assert made.exit_code == 0, made.output
    key = made.stdout.strip()
    assert is_well_formed(key)
    assert key not in made.stderr
    kept = [path for path in site.rglob("*") if path.is_file() and key.encode() in path.read_bytes()]
    assert kept == []
    caller = key_table(published(site)).check(key.encode(), NOW.timestamp())
    assert isinstance(caller, Caller)
    assert (caller.tenant, caller.max_in_flight) == ("physics", 4)
    listed = json.loads(llmgw(site, "keys", "list", "-o", "json").stdout)["keys"]
    assert [(one["tenant"], one["state"], one["limits"]) for one in listed] == [
        ("physics", "good", ["4 at a time"])
    ]
    assert key not in llmgw(site, "keys", "list", "-o", "wide").stdout


def test_a_revoked_key_opens_nothing_and_its_id_is_never_used_again(site: Path) -> None:
    key = llmgw(site, "keys", "create", "physics", "--id", "p1", "--no-publish").stdout.strip()
    assert llmgw(site, "keys", "revoke", "p1", "--no-publish").exit_code == 0
    table = key_table(published(site))
    assert table.check(key.encode(), NOW.timestamp()) is BAD_KEY
    assert table.check(None, NOW.timestamp()) is NO_KEY, "the last key's end does not open the door"
    again = llmgw(site, "keys", "create", "physics", "--id", "p1", "--no-publish")
    assert again.exit_code != 0
    assert "was revoked before" in llmgw(site, "keys", "revoke", "p1", "--no-publish").stderr
    assert llmgw(site, "keys", "revoke", "p9", "--no-publish").exit_code != 0


def test_before_the_first_key_everybody_is_let_in_and_a_site_may_keep_it_so(site: Path) -> None:
    assert client_keys(workspace_of(site)) == []
    settings = site / "llmgw.yml"
    settings.write_text(settings.read_text().replace("keys_required: true", "keys_required: false"))
    llmgw(site, "keys", "create", "physics", "--no-publish")
    assert key_table(published(site)).check(None, NOW.timestamp()) is NOBODY


def test_a_key_ends_when_it_was_said_to(site: Path) -> None:
    key = llmgw(site, "keys", "create", "physics", "--expires", "2h", "--no-publish").stdout.strip().encode()
    table, now = key_table(published(site)), datetime.now(UTC)
    assert isinstance(table.check(key, (now + timedelta(minutes=119)).timestamp()), Caller)
    assert table.check(key, (now + timedelta(minutes=121)).timestamp()) is BAD_KEY


def test_a_model_that_is_not_in_the_catalogue_is_refused_with_a_near_name(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (known, *_) = workspace_of(site).catalogue.models
    words = ["keys", "create", "physics", "--model", known[:-1], "--no-publish"]
    assert run(["--site", str(site), "--state", str(site / "state.db"), *words]) == 2
    assert f"did you mean {known}" in capsys.readouterr().err
    assert llmgw(site, "keys", "list", "-o", "name").stdout == ""


def test_usage_sums_a_ledger_by_what_is_asked(tmp_path: Path) -> None:
    ledger = tmp_path / "usage.sqlite"
    minute = int(datetime.now(UTC).timestamp()) // 60
    kept = UsageLedger(ledger)
    kept.prepare()
    row = UsageRow(minute, "physics", "p1", "tiny", "cpu", "chat", 3, 1, 30, 12, 0, 0)
    kept.add([row, UsageRow(minute - 60 * 50, "biology", "b1", "tiny", "cpu", "chat", 1, 0, 5, 5, 0, 5)])

    def asked(*words: str) -> list[dict[str, object]]:
        done = CliRunner().invoke(cli, ["usage", "--ledger", str(ledger), "-o", "json", *words])
        return list(json.loads(done.stdout)["usage"])

    assert [(one["tenant"], one["requests"], one["completion"]) for one in asked("--by", "tenant")] == [
        ("physics", 3, 12),
        ("biology", 1, 5),
    ]
    assert [one["name"] for one in asked("--since", "2h")] == ["physics/tiny"]
    assert [one["name"] for one in asked("--until", "2h", "--by", "key")] == ["b1"]


def test_usage_says_what_is_no_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["usage", "--ledger", str(tmp_path / "none")]) == 1
    (tmp_path / "text").write_text("no database at all, but long enough to be looked at as one" * 20)
    assert run(["usage", "--ledger", str(tmp_path / "text")]) == 1
    said = capsys.readouterr().err
    assert "there is no ledger" in said
    assert "is not a usage ledger" in said


@pytest.mark.parametrize(
    ("text", "before"),
    [("30m", timedelta(minutes=30)), ("7d", timedelta(days=7)), ("2026-12-01T07:00", timedelta(hours=1))],
)
def test_times_are_spans_or_dates(text: str, before: timedelta) -> None:
    assert ago(text, now=NOW) == NOW - before


@pytest.mark.parametrize("text", ["", "soon", "-3d", "999999999d", "3w"])
def test_what_is_no_time_is_refused(text: str) -> None:
    for reader in (ago, ahead):
        with pytest.raises(UsageError):
            reader(text, now=NOW)


def test_an_expiry_in_the_past_is_refused() -> None:
    with pytest.raises(UsageError, match="is past"):
        ahead("2025-01-01", now=NOW)
