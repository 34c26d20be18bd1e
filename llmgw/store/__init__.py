"""The disk: the store (one SQLite file), and files replaced whole. Each module is a set of functions on a State."""

from typing import TYPE_CHECKING

from llmgw.base.later import words_of

if TYPE_CHECKING:
    from llmgw.store.database import State, backup, count_change, lineage, open_state, serial
    from llmgw.store.files import read_text, write_whole
    from llmgw.store.lock import Holder, Lock, break_lock, held, locked
else:
    __getattr__ = words_of(
        __name__,
        {
            "database": "State backup count_change lineage open_state serial",
            "files": "read_text write_whole",
            "lock": "Holder Lock break_lock held locked",
        },
    )

__all__ = [
    "Holder",
    "Lock",
    "State",
    "backup",
    "break_lock",
    "count_change",
    "held",
    "lineage",
    "locked",
    "open_state",
    "read_text",
    "serial",
    "write_whole",
]
