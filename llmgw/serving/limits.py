"""How much one key may take: requests and tokens in any sixty seconds, and requests at a time.

Tokens are reserved before a request starts and settled when it is over, so that parallel requests cannot spend the
same allowance twice. All of it works on plain sequences of whole numbers, so that the numbers can lie in a list,
or in memory that several processes share.
"""

from collections.abc import MutableSequence

import msgspec

from llmgw.serving.keys import Caller

WINDOW_S = 60
CELLS = 3 + 2 * WINDOW_S
"""Numbers that one window takes.

The second last seen, requests and tokens of the window, then both for each second.
"""
UNSAID_TOKENS = 1024
"""What is reserved for the answer of a request that sets no longest answer."""


def fresh_window() -> list[int]:
    return [0] * CELLS


def roll(cells: MutableSequence[int], second: int) -> None:
    """Forgets what is older than the window. A clock that steps back changes nothing."""
    gone = second - cells[0]
    if gone <= 0:
        return
    for step in range(1, min(gone, WINDOW_S) + 1):
        at = 3 + 2 * ((cells[0] + step) % WINDOW_S if gone < WINDOW_S else step - 1)
        cells[1] -= cells[at]
        cells[2] -= cells[at + 1]
        cells[at] = cells[at + 1] = 0
    cells[0] = second


def add(cells: MutableSequence[int], requests: int, tokens: int) -> None:
    """Counts in the second that the window stands at."""
    at = 3 + 2 * (cells[0] % WINDOW_S)
    cells[at] += requests
    cells[at + 1] += tokens
    cells[1] += requests
    cells[2] += tokens


def settle(cells: MutableSequence[int], second: int, *, reserved: int, used: int) -> None:
    """Puts what was used in the place of what was reserved in that second.

    Where the second has left the window already, what was used beyond the reservation counts now.
    """
    change = used - reserved
    if cells[0] - second < WINDOW_S:
        cells[3 + 2 * (second % WINDOW_S) + 1] += change
        cells[2] += change
    elif change > 0:
        add(cells, 0, change)


def has_room(cells: MutableSequence[int], requests: int | None, tokens: int | None, wanted: int) -> bool:
    """Whether one more request that may take `wanted` tokens fits under both limits (None: no limit).

    A request that is larger than the whole limit fits where the window holds no tokens at all.
    """
    if requests is not None and cells[1] >= requests:
        return False
    return tokens is None or cells[2] + wanted <= tokens or cells[2] <= 0


def wait_for_room(cells: MutableSequence[int], *, requests: int | None, tokens: int | None, wanted: int) -> int:
    """Seconds until enough has left the window, 1 to 60: what Retry-After says."""
    have_requests, have_tokens = cells[1], cells[2]
    for age in range(WINDOW_S - 1, -1, -1):
        at = 3 + 2 * ((cells[0] - age) % WINDOW_S)
        have_requests -= cells[at]
        have_tokens -= cells[at + 1]
        fits_requests = requests is None or have_requests < requests
        if fits_requests and (tokens is None or have_tokens + wanted <= tokens or have_tokens <= 0):
            return WINDOW_S - age
    return WINDOW_S


class Ticket(msgspec.Struct, gc=False):
    """What an admitted request holds, to be given back: whose it is, the second and the tokens reserved in it."""

    caller: Caller
    second: int
    reserved: int


def reservation(body_bytes: int, most_tokens: int | None) -> int:
    """Tokens that a request may take: its prompt at four bytes a token, and the longest answer that it allows."""
    return body_bytes // 4 + (UNSAID_TOKENS if most_tokens is None else most_tokens)
