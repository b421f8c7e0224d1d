"""Places in what was written: one place for each kind of record, told to others as one word."""

import re
from collections.abc import Mapping

from gateway.state.record_codec import KINDS

__all__ = ["places", "told"]

_SEPARATOR = "."
_PLACE = re.compile(r"[0-9]{1,18}(-[0-9]{1,18})?")


def places(cursor: str) -> dict[str, str]:
    """The place of each kind; empty where the cursor stands before its first record, or says nothing of it."""
    parts = cursor.split(_SEPARATOR)
    return {kind: part if _is_place(part) else "" for kind, part in zip(KINDS, parts, strict=False)} | {
        kind: "" for kind in KINDS[len(parts) :]
    }


def told(found: Mapping[str, str]) -> str:
    """The cursor of these places."""
    return _SEPARATOR.join(found[kind] for kind in KINDS)


def _is_place(part: str) -> bool:
    return _PLACE.fullmatch(part) is not None
