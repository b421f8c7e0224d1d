"""JSON of model servers, decoded by type: whatever is wrong with it is `UpstreamBadReply`, and nothing else."""

import json
from typing import Any, TypeVar

import msgspec

from gateway.core.errors import UpstreamBadReply

__all__ = [
    "bad_reply",
    "compact",
    "count_of",
    "decoded",
    "dict_of",
    "is_plain",
    "object_in",
    "read_json",
    "read_plain",
    "string_of",
]

T = TypeVar("T")


def bad_reply() -> UpstreamBadReply:
    """The fault of an answer that cannot be read."""
    return UpstreamBadReply("the model server's answer is not what its wire promises")


def read_json(body: bytes) -> object:
    """The value of a body, or None."""
    try:
        value: object = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return None
    return value


def decoded(data: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """The value of a server's JSON."""
    try:
        # The decoder lets bytes through that are no UTF-8 where it skips a field.
        if not data.isascii():
            data.decode()
        return decoder.decode(data)
    except (ValueError, RecursionError):
        pass
    try:
        return decoder.decode(_with_whole_characters(data))
    except (ValueError, RecursionError) as error:
        raise bad_reply() from error


def read_plain(data: bytes, decoder: msgspec.json.Decoder[T]) -> T | None:
    """The value of a server's JSON that is plain text throughout; None where it is not, or not of that type."""
    try:
        if not data.isascii():
            data.decode()
        return decoder.decode(data)
    except (ValueError, RecursionError):
        return None


def is_plain(text: bytes) -> bool:
    """Whether a JSON string says something, and holds no half of a character."""
    return len(text) > 2 and text[:1] == b'"' and b"\\u" not in text


def _with_whole_characters(data: bytes) -> bytes:
    """The JSON with escaped halves of characters replaced: no text could hold them."""
    # A model's tokens may end within a pair of surrogates, and servers escape each half alone:
    # https://www.rfc-editor.org/rfc/rfc8259#section-8.2
    return json.dumps(json.loads(data), ensure_ascii=False).encode("utf-8", "replace")


def compact(raw: msgspec.Raw) -> str:
    """A JSON value without the white space between its tokens, its numbers as they stand."""
    try:
        return msgspec.json.format(bytes(raw), indent=-1).decode()
    except (ValueError, RecursionError) as error:
        raise bad_reply() from error


def object_in(text: str) -> msgspec.Raw | None:
    """The text of a JSON object, ready to stand in other JSON; None where it is none."""
    data = text.encode("utf-8", "replace")
    return msgspec.Raw(data.strip()) if isinstance(read_json(data), dict) else None


def string_of(value: object) -> str:
    """The value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def dict_of(value: object) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def count_of(value: object) -> int | None:
    """The value if it is a count."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
