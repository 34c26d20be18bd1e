"""Making many values at once."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Keeps Python's cycle collector from running meanwhile.

    It would look at hundreds of thousands of new values again and again, a tenth of all time, and never find a
    cycle: the values of maps and plans hold no reference upwards.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
