"""Events of the Responses API as bytes: each has its type twice, a number of its own, and what it tells.

What it tells is put together from JSON that is there already: the text of an answer is never decoded on its way.
"""

import msgspec

__all__ = ["Frames", "encoded", "object_of", "quoted"]

encoded = msgspec.json.encode


def quoted(body: bytes) -> bytes:
    """The JSON string with this body."""
    return b'"' + body + b'"'


def object_of(members: dict[str, bytes]) -> bytes:
    """A JSON object of members that are JSON already."""
    return b"{" + b",".join(b'"%b":%b' % (name.encode(), value) for name, value in members.items()) + b"}"


class Frames:
    """The events of one answer; a silent one says nothing."""

    __slots__ = ("_out", "count", "is_silent")

    def __init__(self, *, is_silent: bool = False, first: int = 0) -> None:
        self.is_silent = is_silent
        self.count = first
        """The number of the next."""
        self._out: list[bytes] = []

    def take(self) -> bytes:
        """The bytes since the last time."""
        out = b"".join(self._out)
        self._out.clear()
        return out

    def take_in(self, event: bytes) -> None:
        """An event that is whole already."""
        self._out.append(event)

    def say(self, kind: str, **members: bytes) -> None:
        """One event, of members that are JSON already."""
        if self.is_silent:
            return
        name = kind.encode()
        told = b"".join(b',"%b":%b' % (key.encode(), value) for key, value in members.items())
        event = b'event: %b\ndata: {"type":"%b","sequence_number":%d%b}\n\n'
        self._out.append(event % (name, name, self.count, told))
        self.count += 1

    def template(self, kind: str, **members: bytes) -> bytes:
        """What stands before the number of all events of one kind that tell pieces of the same text."""
        name = kind.encode()
        told = b"".join(b'"%b":%b,' % (key.encode(), value) for key, value in members.items())
        return b'event: %b\ndata: {"type":"%b",%b"sequence_number":' % (name, name, told)

    def piece(self, template: bytes, body: bytes) -> None:
        """One event of a template, with the body of a JSON string as its piece of text."""
        if self.is_silent:
            return
        self._out.append(self.next_piece(template, body))

    def next_piece(self, template: bytes, body: bytes) -> bytes:
        """The same event, for whoever sends it at once."""
        number = self.count
        self.count = number + 1
        return b'%b%d,"delta":"%b"}\n\n' % (template, number, body)
