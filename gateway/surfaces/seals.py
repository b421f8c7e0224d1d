"""What is handed to a client and comes back in a later request: sealed, so that it is known for our own.

`tg1.` and, in the alphabet of URLs, a check and the compressed JSON. The check is made with the gateway's secret, of
whose client and of what it is handed out for: no other client's, no other purpose's and no altered seal opens. It hides
nothing from the client, and what it holds is never trusted beyond being shown to the model again.
"""

import zlib
from base64 import b64decode, urlsafe_b64encode
from hashlib import blake2b
from hmac import compare_digest
from typing import Any, TypeGuard

import msgspec
from msgspec import Struct

__all__ = ["MAX_SEAL", "Seals"]

MAX_SEAL = 256 << 10
"""Characters of a seal, and bytes of what is in it."""
# A number of the form, so that another one can follow it while conversations go on.
_PREFIX = "tg1."
_CHECK = 16
_ALTERNATE = b"-_"


class Seals(Struct, eq=False):
    """Makes and opens the seals of one client: `credential` says whose they are, it may be a hash."""

    key: bytes
    credential: str
    has_met_one: bool = False
    """One of ours was brought, whoever's: a server could not open it, and vendors refuse what they cannot open."""

    def __repr__(self) -> str:
        return "<Seals>"  # with what is in here anybody could make them

    def seal(self, value: dict[str, Any], *, purpose: str = "") -> str | None:
        """The seal of an object; None where it is too large for one."""
        try:
            told = msgspec.json.encode(value)
        except (ValueError, RecursionError):  # half a character, or too deep: nothing that could be read again
            return None
        if len(told) > MAX_SEAL:
            return None
        packed = zlib.compress(told)
        sealed = _PREFIX + urlsafe_b64encode(self._check(packed, purpose) + packed).decode()
        return sealed if len(sealed) <= MAX_SEAL else None

    def meet(self, blob: object) -> TypeGuard[str]:
        """Take down whether this is one of ours, as it seems."""
        is_one = isinstance(blob, str) and blob.startswith(_PREFIX)
        if is_one:
            self.has_met_one = True
        return is_one

    def open(self, blob: object, *, purpose: str = "") -> dict[str, Any] | None:
        """What a seal of ours holds; None for whatever is none."""
        if not self.meet(blob) or len(blob) > MAX_SEAL:
            return None
        try:
            data = b64decode(blob[len(_PREFIX) :].encode("ascii"), altchars=_ALTERNATE, validate=True)
        except ValueError:
            return None
        check, packed = data[:_CHECK], data[_CHECK:]
        # https://cwe.mitre.org/data/definitions/208.html
        if not compare_digest(check, self._check(packed, purpose)):
            return None
        try:
            # Bounded as it is unpacked: https://cwe.mitre.org/data/definitions/409.html
            value = msgspec.json.decode(zlib.decompressobj().decompress(packed, MAX_SEAL))
        except (zlib.error, ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def _check(self, packed: bytes, purpose: str) -> bytes:
        key = self.key if len(self.key) <= blake2b.MAX_KEY_SIZE else blake2b(self.key).digest()
        digest = blake2b(digest_size=_CHECK, key=key, person=b"seal")
        for told in (self.credential, purpose):
            name = told.encode("utf-8", "surrogatepass")
            # With its length, or two names could be cut between credential and purpose in another way and give the same
            # check.
            digest.update(len(name).to_bytes(4, "big"))
            digest.update(name)
        digest.update(packed)
        return digest.digest()
