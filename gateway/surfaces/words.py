"""Events of text in another wire than chat: how those of one answer look, but for what each says and how it is stamped.

So one is told from all others, and its text taken out, without decoding it. What a server stamps its events with, a
number or letters at random, is looked for wherever it writes it.
"""

import re

from attrs import evolve, frozen

from gateway.wire.calm import Calm, Rest

__all__ = ["WordTemplate", "number_of"]

_STAMPS = re.compile(
    rb'"sequence_number":[ ]?(?P<stamp>[0-9]{1,15})(?=[,}])'
    # Against who counts bytes: https://platform.openai.com/docs/api-reference/responses-streaming
    rb'|"obfuscation":[ ]?"(?P<letters>[0-9A-Za-z]++)"'
    rb'|"(?:delta|text)":[ ]?(?P<text>"(?:[^"\\\x00-\x1f]|\\.)*")'
)
"""What differs from event to event; within a text no name has quotes of its own."""
_NUMBER = re.compile(rb'"sequence_number":[ ]?([0-9]{1,15})(?=[,}])')
_QUOTE = b'"'
_MOST = 3
"""So many places differ at the most."""


def number_of(event: bytes) -> int | None:
    """The number of an event that a template has read."""
    found = _NUMBER.search(event)
    return None if found is None else int(found[1])


@frozen
class WordTemplate:
    """What all events of a text have in common."""

    head: bytes
    tail: bytes
    stamps: tuple[tuple[bool, bytes, int], ...]
    """Each place that differs but for the last, in their order: whether it is the text's, what follows it, and how long
    that is."""
    ends_with_text: bool
    """The last place is the text's."""

    @classmethod
    def of(cls, event: bytes, text: bytes) -> "WordTemplate | None":
        """The template of an event with this text, the quotes around it included; None where it cannot be told."""
        found = list(_STAMPS.finditer(event))
        names = [each.lastgroup or "" for each in found]
        if "text" not in names or len(set(names)) != len(found) or len(found) > _MOST:
            return None
        if found[names.index("text")]["text"] != text:
            return None
        ends = [each.end(name) for each, name in zip(found, names, strict=True)]
        starts = [each.start(name) for each, name in zip(found, names, strict=True)]
        between = [event[end:start] for end, start in zip(ends, starts[1:], strict=False)]
        are_texts = [name == "text" for name in names]
        stamps = tuple((is_text, behind, len(behind)) for is_text, behind in zip(are_texts, between, strict=False))
        return cls(event[: starts[0]], event[ends[-1] :], stamps, are_texts[-1])

    def calm(self, chat: Calm) -> Calm | None:
        """How events look whose chunks look so; None where they differ in more than can be told."""
        if not self.stamps:
            is_alike = self.ends_with_text
            return evolve(chat, head=self.head + _QUOTE, tail=_QUOTE + self.tail) if is_alike else None
        stamps = [(is_text, behind) for is_text, behind, _ in self.stamps]
        rest = Rest.of(stamps, ends_with_text=self.ends_with_text, tail=self.tail)
        return evolve(chat, head=self.head, tail=self.tail, rest=rest) if rest is not None else None

    def read(self, event: bytes) -> bytes | None:
        """The text of an event, in its quotes; None where it is another.

        Whether what stands in the quotes is a text, whole and alone, is for whoever decodes it: then there is no other
        way to read this.
        """
        head, tail = self.head, self.tail
        place, end = len(head), len(event) - len(tail)
        if place > end or not event.startswith(head) or not event.endswith(tail):
            return None
        text = b""
        for is_text, behind, size in self.stamps:
            at = event.find(behind, place, end)
            if at < 0:
                return None
            if is_text:
                text = event[place:at]
            # Whatever else stands in a stamp's place may be a field that says something.
            elif not event[place:at].isalnum():
                return None
            place = at + size
        if self.ends_with_text:
            return event[place:end]
        return text if event[place:end].isalnum() else None
