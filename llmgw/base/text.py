"""Text for people: what came from elsewhere made safe to show, times and sizes made short."""

from datetime import datetime


def visible(text: str) -> str:
    r"""The text with everything that could steer a terminal or hide in it spelled out: ESC becomes `\x1b`.

    Control and format characters (bidi overrides among them), lone surrogates, unassigned code points and blanks
    other than the space are shown as Python escapes; a backslash stays one.
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(char: str) -> str:
    code = ord(char)
    if char.isprintable():
        return char
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def duration(seconds: float) -> str:
    """`38s`, `1m49s`, `2h05m`, `3d04h`: two units at most."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole // 60 % 60:02d}m"
    return f"{whole // 86400}d{whole // 3600 % 24:02d}h"


def size(count: int) -> str:
    """Bytes as `284 kB`, `68 MB`, `1.4 TB`: powers of 1000, two or three digits."""
    amount, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):  # noqa: B007
        if amount < 999.5:
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if amount >= 10 or unit == "B" else f"{amount:.1f} {unit}"


def moment(when: datetime) -> str:
    """A time as documents hold it: UTC, whole seconds, `2026-12-01T08:47:56Z`."""
    return f"{when:%Y-%m-%dT%H:%M:%SZ}"


def count(number: int, word: str, plural: str = "") -> str:
    """`1 node`, `3 nodes`."""
    return f"{number} {word if number == 1 else plural or word + 's'}"
