"""Answers that are kept, so that a later request can go on from one by its id.

An answer is kept with the input of its request, for its client alone, and knows the answers before it. Its items have
most of the answer's letters in their ids, so that an item is found by its id alone.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from gateway.core.errors import InvalidRequest, ItemNotFound, NotFound, PreviousResponseNotFound
from gateway.core.ports import Memory
from gateway.surfaces.responses.telling import ResponsesTelling, input_id, item_letters

__all__ = [
    "MAX_DEPTH",
    "Keeping",
    "Shelf",
    "entry_of",
    "has_references",
    "is_own_id",
    "listed_items",
    "not_found",
    "stored_key",
]

MAX_DEPTH = 512
"""Answers in one chain."""
_LETTERS = 24
_MAX_PAGE, _PAGE = 100, 20


class Keeping(Struct, frozen=True, kw_only=True):
    """How long answers are kept, and how large they may be."""

    ttl_s: float = 0.0
    """0: none are kept."""
    max_bytes: int = 4 << 20
    why_not: str = "RESPONSES_TTL_S"
    """The setting that says so."""

    @classmethod
    def by(cls, options: Mapping[str, Any]) -> "Keeping":
        """What the settings say."""
        if options.get("audit_bodies") == "none":
            return cls(why_not="AUDIT_BODIES")
        return cls(ttl_s=options.get("responses_ttl_s", 0.0), max_bytes=options.get("responses_max_bytes", 4 << 20))


class Shelf(Struct, frozen=True, kw_only=True):
    """What one client has in the store, as far as it was asked for."""

    scope: str
    known: Mapping[str, bytes]
    keeping: Keeping

    def __repr__(self) -> str:
        return "<Shelf>"  # what a client has said stands in here

    def key(self, letters: str) -> str:
        """The key of the answer with these letters in its items' ids."""
        return f"responses:{self.scope}:{letters}"

    def wanted(self, response_id: object, items: Iterable[object]) -> tuple[str, ...]:
        """The keys that must be asked for before a request can be read."""
        if response_id is None:
            keys = []
        else:
            if self.keeping.ttl_s <= 0:
                raise InvalidRequest(
                    f"no answers are kept here ({self.keeping.why_not}): send the whole conversation as input",
                    param="previous_response_id",
                )
            last = self.key(_letters_of(response_id))
            keys = [last]
            if last in self.known:
                keys += map(self.key, _before(self._entry(last)))
        keys += [self.key(letters) for item in items if (letters := _referred(item)) is not None]
        return tuple(key for key in dict.fromkeys(keys) if key not in self.known)

    def chain(self, response_id: object) -> tuple[list[Any], list[str]]:
        """The items of all answers up to this one with their inputs, and whose they are; raises where one is gone."""
        if response_id is None:
            return [], []
        last = _letters_of(response_id)
        chain = [*_before(self._entry(self.key(last))), last]
        # Each answer in it is a value of the store, and all of them are asked for at once.
        if len(chain) > MAX_DEPTH:
            raise InvalidRequest(f"a chain has at most {MAX_DEPTH} answers", param="previous_response_id")
        items: list[Any] = []
        for letters in chain:
            entry = self._entry(self.key(letters))
            items += entry["input"]
            items += entry["response"]["output"]
        return items, chain

    def resolved(self, items: list[Any]) -> list[Any]:
        """The items, with those in place of which there is a reference; raises `ItemNotFound`."""
        return [self._referred_item(item, at) if _is_reference(item) else item for at, item in enumerate(items)]

    def _referred_item(self, reference: Mapping[str, Any], at: int) -> Any:
        letters = _referred(reference)
        entry = entry_of(self.known.get(self.key(letters))) if letters is not None else None
        for item in (*entry["input"], *entry["response"]["output"]) if entry is not None else ():
            if isinstance(item, dict) and item.get("id") == reference["id"]:
                return item
        raise ItemNotFound(f"there is no item {str(reference.get('id'))[:64]!r}", param=f"input[{at}].id")

    def _entry(self, key: str) -> dict[str, Any]:
        entry = entry_of(self.known.get(key))
        if entry is None:
            raise PreviousResponseNotFound("there is no such previous response", param="previous_response_id")
        return entry

    def keep(self, telling: ResponsesTelling, unique: str, items: list[Any], chain: list[str]) -> tuple[Memory, ...]:
        """What the store shall keep of a complete answer."""
        own = [_with_id(item, input_id(unique, number)) for number, item in enumerate(items)]
        try:
            value = msgspec.json.encode({"response": msgspec.Raw(telling.final), "input": own, "before": chain})
        except (ValueError, RecursionError):  # half a character: nothing that could be read again
            return ()
        if len(value) > self.keeping.max_bytes:
            return ()
        return (Memory(key=self.key(item_letters(unique)), value=value, ttl_s=self.keeping.ttl_s),)


def not_found(response_id: str) -> NotFound:
    """The refusal of an id that names nothing of this client's."""
    return NotFound(f"there is no response {response_id[:64]!r}", param="response_id")


def stored_key(scope: str, response_id: str) -> str:
    """The key of an answer by its id; raises `NotFound` for what can be none."""
    try:
        return Shelf(scope=scope, known={}, keeping=Keeping()).key(_letters_of(response_id))
    except PreviousResponseNotFound:
        raise not_found(response_id) from None


def listed_items(items: list[Any], query: Mapping[str, str]) -> dict[str, Any]:
    """A page of the items of an input, the newest first unless it is asked for otherwise."""
    items = items if query.get("order") == "asc" else items[::-1]
    told = query.get("limit", "")
    limit = max(1, min(int(told), _MAX_PAGE)) if told.isascii() and told.isdigit() and len(told) < 9 else _PAGE
    after = query.get("after")
    start = next((at + 1 for at, item in enumerate(items) if after and item.get("id") == after), 0)
    page = items[start : start + limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0].get("id") if page else None,
        "last_id": page[-1].get("id") if page else None,
        "has_more": start + limit < len(items),
    }


def is_own_id(response_id: str) -> bool:
    """Whether an id has the form of those that are made here: no model server is told of such a one."""
    text = response_id.removeprefix("resp_")
    return len(text) == _LETTERS and text.isascii() and text.isalnum()


def _letters_of(response_id: object) -> str:
    text = response_id.removeprefix("resp_") if isinstance(response_id, str) else ""
    if not is_own_id(text):
        raise PreviousResponseNotFound("there is no such previous response", param="previous_response_id")
    return item_letters(text)


def has_references(items: list[Any]) -> bool:
    """Whether some of the items only name what was kept."""
    for item in items:
        if isinstance(item, dict) and item.get("type") == "item_reference":
            return True
    return False


def _is_reference(item: object) -> bool:
    return isinstance(item, dict) and item.get("type") == "item_reference"


def _referred(item: object) -> str | None:
    """The letters of the answer that a reference's item belongs to."""
    if not isinstance(item, dict) or item.get("type") != "item_reference" or not isinstance(item.get("id"), str):
        return None
    text = item["id"].rpartition("_")[2]
    return item_letters(text) if len(text) == _LETTERS and text.isascii() and text.isalnum() else None


def _before(entry: Mapping[str, Any]) -> list[str]:
    return [each for each in entry["before"] if isinstance(each, str)]


def entry_of(value: bytes | None) -> dict[str, Any] | None:
    """What was kept under a key; None where there is nothing, or it was forgotten."""
    if not value:
        return None
    try:
        entry = msgspec.json.decode(value)
        is_whole = isinstance(entry["input"], list) and isinstance(entry["before"], list)
        is_whole = is_whole and isinstance(entry["response"]["output"], list)
    except (ValueError, LookupError, TypeError):
        return None
    return entry if is_whole else None


def _with_id(item: Any, own: str) -> Any:
    if not isinstance(item, dict) or isinstance(item.get("id"), str):
        return item
    return {"id": own, "type": "message", **item}
