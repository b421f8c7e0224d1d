"""Which conversation a request belongs to: a key that stays the same over its turns and tells nothing of it.

A conversation is known by what does not change while it goes on: who speaks, the model, the first thing the user said
and how the system prompt begins. The work is bounded whatever is sent: of every text only a head is looked at.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Protocol

__all__ = ["Asked", "conversation_key"]

_KEY_BYTES = 16
_SYSTEM_CHARS = 1 << 11
_USER_CHARS = 1 << 14
_NAME_CHARS = 1 << 10
"""Of a header's value, a credential, a user field and a model's name."""
_PARTS = 64
"""How many parts of one message are looked at."""


class Asked(Protocol):
    """What a request says that tells its conversation."""

    @property
    def model(self) -> str: ...

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]: ...

    @property
    def body(self) -> Mapping[str, Any]: ...


def conversation_key(
    secret: bytes, *, sticky: str | None, credential: str | None, request: Asked, named: str | None = None
) -> str:
    """The conversation's key, 32 hexadecimal digits: of the sticky value where one is given, else of the request.

    `named` is what the client names it by: of those who show the same credential, or none, nobody gets to choose the
    key of another's conversation without knowing that name.
    """
    if sticky:
        return _digest(secret, b"sticky", (sticky[:_NAME_CHARS],))
    if named:
        return _digest(secret, b"named", ((credential or "")[:_NAME_CHARS], named[:_NAME_CHARS]))
    user = request.body.get("user")
    who = credential or (user if isinstance(user, str) else "")
    user_said = system_said = None
    for message in request.messages:
        role = message.get("role")
        if role == "user" and user_said is None:
            content = message.get("content")
            user_said = content[:_USER_CHARS] if isinstance(content, str) else _head(content, _USER_CHARS)
        elif role in ("system", "developer") and system_said is None:
            content = message.get("content")
            system_said = content[:_SYSTEM_CHARS] if isinstance(content, str) else _head(content, _SYSTEM_CHARS)
        if user_said is not None and system_said is not None:
            break
    return _digest(
        secret, b"conversation", (who[:_NAME_CHARS], request.model[:_NAME_CHARS], user_said or "", system_said or "")
    )


def _digest(secret: bytes, purpose: bytes, fields: Sequence[str]) -> str:
    """A keyed hash in which no two lists of fields run together."""
    digest = _begun(secret, purpose).copy()
    told = b""
    for field in fields:
        data = field.encode("utf-8", "surrogatepass")
        told += b"%b%b" % (len(data).to_bytes(4, "big"), data)
    digest.update(told)
    return digest.hexdigest()


@lru_cache(maxsize=8)
def _begun(secret: bytes, purpose: bytes) -> blake2b:
    """To be copied: each begins with a whole block of the key."""
    key = secret if len(secret) <= blake2b.MAX_KEY_SIZE else blake2b(secret).digest()
    return blake2b(digest_size=_KEY_BYTES, key=key, person=purpose)


def _head(content: object, limit: int) -> str:
    """How a message's content begins that comes in parts."""
    told: list[str] = []
    for part in content[:_PARTS] if isinstance(content, list) else ():
        text = part.get("text") if isinstance(part, dict) else None
        if isinstance(text, str):
            told.append(text[:limit])
            limit -= len(told[-1])
            if limit <= 0:
                break
    return "".join(told)
