"""Takes what was counted since the last time to the usage ledger, in batches."""

import logging
import sqlite3

from llmgw.router.tallies import Account, Tallies
from llmgw.store.usage import UsageLedger, UsageRow

log = logging.getLogger("llmgw.router")


class LedgerWriter:
    """One batch at a time. What could not be written stays counted and comes with the next batch."""

    def __init__(self, ledger: UsageLedger, tallies: Tallies) -> None:
        self._ledger = ledger
        self._tallies = tallies
        self._failing = False

    def batch(self, minute: int) -> list[tuple[Account, tuple[int, ...], UsageRow]]:
        """What is new, with the counts that it brings the ledger up to."""
        found: list[tuple[Account, tuple[int, ...], UsageRow]] = []
        for name, account in self._tallies.accounts.items():
            values = account.values()
            if values != account.written:
                change = [now - before for now, before in zip(values, account.written, strict=True)]
                found.append((account, values, UsageRow(minute, *name, *change)))
        return found

    def write(self, batch: list[tuple[Account, tuple[int, ...], UsageRow]]) -> None:
        """To the disk; to be called from a thread, since a disk may be slow."""
        if not batch:
            return
        try:
            self._ledger.add(row for _, _, row in batch)
        except (sqlite3.Error, OSError) as error:
            if not self._failing:
                log.error("usage_not_written", extra={"problem": str(error), "rows": len(batch)})
            self._failing = True
            return
        self._failing = False
        for account, values, _ in batch:
            account.written = values  # type: ignore[assignment]
