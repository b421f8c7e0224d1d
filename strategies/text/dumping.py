"""Values as JSON: in one go or, where they are large, a few members or items in a turn; the text is the same."""

import json
from typing import Any

from strategies.text.escapes import has_surrogates
from strategies.text.numbers import sayable
from strategies.text.turns import TURN, Turns

__all__ = ["dumping", "dumps", "holding_surrogates"]

_FEW = 50
"""How many members or items the standard encoder gets at once; a longer one among them is gone through by itself."""
_MAX_NESTING = 64
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def dumps(value: Any) -> str:
    """Compact JSON with non-ASCII unescaped; always valid: what JSON cannot say becomes a string or an escape."""
    try:
        text = _ENCODER.encode(value)
    except ValueError:
        value = sayable(value)
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return json.dumps(value, separators=(",", ":")) if has_surrogates(text) else text


def dumping(value: Any) -> Turns[str]:
    """The text of `dumps`."""
    pieces: list[str] = []
    try:
        yield from _told(value, pieces, 0)
    except ValueError:
        return dumps(value)
    text = "".join(pieces)
    return dumps(value) if has_surrogates(text) else text


def holding_surrogates(value: Any) -> Turns[bool]:
    """Whether half a character stands in one of its texts."""
    pieces: list[str] = []
    try:
        yield from _told(value, pieces, 0)
    except ValueError:
        return has_surrogates(json.dumps(value, ensure_ascii=False))
    return any(map(has_surrogates, pieces))


def _told(value: Any, pieces: list[str], depth: int) -> Turns[None]:
    if not isinstance(value, dict | list) or not value or depth > _MAX_NESTING:
        pieces.append(_ENCODER.encode(value))
        return
    entries = list(value.items()) if isinstance(value, dict) else value
    opener, closer = "{}" if isinstance(value, dict) else "[]"
    sign = opener
    for at in range(0, len(entries), _FEW):
        part = entries[at : at + _FEW]
        if any(map(_is_long, part)):
            for entry in part:
                pieces.append(sign)
                if isinstance(value, dict):
                    # Within an object: only there the encoder makes a text of a key that is none.
                    pieces.append(_ENCODER.encode({entry[0]: 0})[1:-2])
                yield from _told(entry[1] if isinstance(value, dict) else entry, pieces, depth + 1)
                sign = ","
        else:
            pieces += (sign, _ENCODER.encode(dict(part) if isinstance(value, dict) else part)[1:-1])
            sign = ","
        if at % TURN == TURN - _FEW:
            yield
    pieces.append(closer)


def _is_long(entry: Any) -> bool:
    """Whether an item, or the value of a member, has more in it than is told at once."""
    held = entry[1] if isinstance(entry, tuple) else entry
    return isinstance(held, dict | list) and len(held) > _FEW
