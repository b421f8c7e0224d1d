"""Signed thoughts over turns: OpenAI clients send none back, so they are kept beside and put back where they stood.

An answer is kept as its layout: thoughts whole, text as its length, calls by id. With it the client's own message is
cut into the blocks of old again, in the order of old; where it no longer fits, the thoughts lead.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from attrs import define, field

from gateway.kinds.shared.memory import Place, key_of_answer, value_in

__all__ = ["KIND", "Layout", "recalled"]

KIND = "anthropic"
_MAX_BYTES = 1 << 20
_THOUGHTS = ("thinking", "redacted_thinking")


@define
class Layout:
    """The blocks of an answer, as they come."""

    items: list[list[Any]] = field(factory=list)

    def thought(self, block: dict[str, Any]) -> None:
        """A thought has begun; its block may still grow."""
        self.items.append(["r", block])

    def text(self, characters: int) -> None:
        """More text."""
        if self.items and self.items[-1][0] == "t":
            self.items[-1][1] += characters
        else:
            self.items.append(["t", characters])

    def call(self, call_id: str) -> None:
        self.items.append(["c", call_id])

    def packed(self, model: str) -> bytes | None:
        """What to keep; None where nothing was signed, or too much."""
        items = [item for item in self.items if item[0] != "r" or _is_signed(item[1])]
        if not any(item[0] == "r" for item in items):
            return None
        data = msgspec.json.encode({"model": model, "items": items})
        # Thoughts of a long turn go into the store's memory; without them the turn goes on, only less well.
        return data if len(data) <= _MAX_BYTES else None


def _is_signed(block: dict[str, Any]) -> bool:
    return bool(block.get("signature") or block.get("data"))


def recalled(
    known: Mapping[str, bytes],
    message: Mapping[str, Any],
    place: Place,
    texts: list[dict[str, Any]],
    calls: list[dict[str, Any]],
    *,
    model: str,
    scope: str,
    keeps: bool,
) -> list[dict[str, Any]]:
    """The blocks of an assistant's message, with the thoughts that are remembered of it."""
    kept = value_in(known, key_of_answer(KIND, message, place, scope=scope)) if keeps else {}
    items = _items(kept)
    # A signature is good for the model that made it, and a 400 for another one.
    if not items or kept.get("model") != model:
        return [*texts, *calls]
    text = "".join(block["text"] for block in texts)
    if len(text) != sum(item[1] for item in items if item[0] == "t"):
        items = _with_text_at_once(items, len(text))
    blocks = _woven(items, text, calls)
    if texts and "cache_control" in texts[-1]:
        blocks[-1] = {**blocks[-1], "cache_control": texts[-1]["cache_control"]}
    return blocks


def _with_text_at_once(items: list[list[Any]], characters: int) -> list[list[Any]]:
    """The layout for a text that was changed: all of it where the first text stood, else behind the first thoughts."""
    place = next((number for number, item in enumerate(items) if item[0] == "t"), None)
    if place is None:
        place = next((number for number, item in enumerate(items) if item[0] != "r"), len(items))
    return [*items[:place], ["t", characters], *(item for item in items[place:] if item[0] != "t")]


def _items(kept: dict[str, Any]) -> list[list[Any]]:
    items = kept.get("items")
    return [item for item in items if _is_item(item)] if isinstance(items, list) else []


def _is_item(item: object) -> bool:
    if not isinstance(item, list) or len(item) != 2:
        return False
    kind, value = item
    if kind == "r":
        return isinstance(value, dict) and value.get("type") in _THOUGHTS
    return isinstance(value, int if kind == "t" else str)


def _woven(items: list[list[Any]], text: str, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    left = {call["id"]: call for call in calls}
    blocks: list[dict[str, Any]] = []
    position = 0
    for kind, value in items:
        if kind == "r":
            blocks.append(value)
        elif kind == "t":
            piece, position = text[position : position + value], position + value
            if piece.strip():
                blocks.append({"type": "text", "text": piece})
        elif value in left:
            blocks.append(left.pop(value))
    return [*blocks, *left.values()]
