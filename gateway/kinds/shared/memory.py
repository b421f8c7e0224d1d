"""Names under which a later turn finds what an answer left behind.

An answer is told by its first call, else by its text, and by where it stands: short answers are alike in many
conversations. Of the conversation only what a client's user said counts, as all else may be rendered anew.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from attrs import define

from gateway.kinds.shared.ask_parts import call_ids, text_of
from gateway.kinds.shared.decoding import dict_of, read_json

__all__ = ["MAX_KEYS", "Place", "key_of_answer", "keys_of_history", "value_in"]

MAX_KEYS = 256
"""How many answers of a history are looked up, the newest ones."""


@define
class Place:
    """Where in a conversation the next answer stands: behind which question, and behind how many answers."""

    _first: str = ""
    _last: str = ""
    _answers: int = 0

    @classmethod
    def after(cls, messages: object) -> "Place":
        """The place behind all of these messages."""
        place = cls()
        for message in _objects(messages):
            place.pass_by(message)
        return place

    def pass_by(self, message: Mapping[str, Any]) -> None:
        """One more message."""
        role = message.get("role")
        if role == "assistant":
            self._answers += 1
        elif role == "user":
            # Pictures are left out: clients send them anew by another address, or not at all.
            self._last = _digest(text_of(message.get("content")))
            self._first = self._first or self._last

    def __str__(self) -> str:
        return f"{self._first}\0{self._last}\0{self._answers}"


def key_of_answer(kind: str, message: Mapping[str, Any], place: Place, *, scope: str) -> str | None:
    """The key of an assistant's message at that place; None for an empty one."""
    first = next((name for name in call_ids(message) if name), "")
    # Clients trim what they show and send it back trimmed; ids of calls come back as they went.
    text = "" if first else text_of(message.get("content")).strip()
    if not first and not text:
        return None
    told = "\0".join((scope, str(place), "call" if first else "text", first or text))
    return f"kind:{kind}:{_digest(told)}"


def keys_of_history(kind: str, body: Mapping[str, Any], *, scope: str) -> tuple[str, ...]:
    """The keys of all assistant's messages in a request, the newest first."""
    place = Place()
    keys: dict[str, None] = {}
    for message in _objects(body.get("messages")):
        if message.get("role") == "assistant":
            key = key_of_answer(kind, message, place, scope=scope)
            if key:
                keys[key] = None
        place.pass_by(message)
    return tuple(reversed(keys))[:MAX_KEYS]


def value_in(known: Mapping[str, bytes], key: str | None) -> dict[str, Any]:
    """What is remembered under a key; empty when that is nothing, or nothing readable."""
    return dict_of(read_json(known.get(key or "", b"")))


def _objects(messages: object) -> Iterable[dict[str, Any]]:
    return (message for message in (messages if isinstance(messages, list) else ()) if isinstance(message, dict))


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:40]
