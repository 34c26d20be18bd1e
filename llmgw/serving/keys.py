"""Clients' keys: how one is made, and whose one is. Only digests are kept anywhere."""

import hashlib
import hmac
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from llmgw.serving.endpoints import ClientKey, KeysFile
from llmgw.serving.faults import BAD_KEY, NO_KEY, Fault

PREFIX = "llmgw-"
_LONGEST = 512
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
ANONYMOUS = "anonymous"


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))


def make_key(secret: bytes) -> str:
    """A key of 32 random bytes: `llmgw-`, 43 digits of base 62, and 6 of their CRC-32, by which scanners know it.

    Source of the form: GitHub's token format of 2021.
    """
    if len(secret) != 32:
        raise ValueError("a key needs 32 random bytes")
    body = _base62(int.from_bytes(secret, "big"), 43)
    return PREFIX + body + _base62(zlib.crc32((PREFIX + body).encode()), 6)


def is_well_formed(key: str) -> bool:
    """Whether a key has our form and its checksum is right: tells a mistyped key from a revoked one."""
    body, check = key[:-6], key[-6:]
    return key.startswith(PREFIX) and len(key) == 55 and check == _base62(zlib.crc32(body.encode()), 6)


def digest_of(key: str | bytes) -> str:
    """The SHA-256 of a key, 64 hex digits: all that is ever stored of it. Random keys of 256 bits need no salt."""
    return hashlib.sha256(key.encode() if isinstance(key, str) else key).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class Caller:
    """Whose request it is. The tenant comes from the key and from nothing that a client can write.

    Compared by identity: callers are made once for each key, and are looked up for every request.
    """

    key_id: str
    tenant: str
    expires: float | None = None
    models: frozenset[str] | None = None
    max_in_flight: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    is_limited: bool = False


NOBODY = Caller("", ANONYMOUS)


def caller_of(key: ClientKey) -> Caller:
    return Caller(
        key_id=key.id,
        tenant=key.tenant,
        expires=key.expires.timestamp() if key.expires else None,
        models=None if key.models is None else frozenset(key.models),
        max_in_flight=key.max_in_flight,
        requests_per_minute=key.requests_per_minute,
        tokens_per_minute=key.tokens_per_minute,
        is_limited=bool(key.max_in_flight or key.requests_per_minute or key.tokens_per_minute),
    )


@dataclass(frozen=True, slots=True)
class KeyTable:
    """The keys by their digests."""

    required: bool
    by_digest: Mapping[bytes, tuple[bytes, Caller]]

    def check(self, shown: bytes | None, now: float) -> Caller | Fault:
        """Whose key was shown.

        `now`: seconds since 1970. An expired key and an unknown one get the same answer.
        """
        if shown is None:
            return NO_KEY if self.required else NOBODY
        if not self.required and not self.by_digest:
            return NOBODY
        digest = hashlib.sha256(shown).digest()
        found = self.by_digest.get(digest)
        if found is None or not hmac.compare_digest(found[0], digest) or len(shown) > _LONGEST:
            return BAD_KEY
        caller = found[1]
        if caller.expires is not None and caller.expires <= now:
            return BAD_KEY
        return caller


def key_table(file: KeysFile) -> KeyTable:
    """The table of a keys file; of two keys with one digest the last counts."""
    digests = ((bytes.fromhex(key.digest), caller_of(key)) for key in file.keys)
    return KeyTable(file.required, {digest: (digest, caller) for digest, caller in digests})


OPEN = KeyTable(required=False, by_digest={})
"""No key file: anybody may call."""
SHUT = KeyTable(required=True, by_digest={})
"""A key file that cannot be read, and none before it: nobody may."""
