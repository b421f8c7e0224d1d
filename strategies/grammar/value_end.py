"""Whether a value that may hold whole documents ended where it seemed to: what stands behind `C K` can say otherwise.

`C` is the closer of a parameter and `K` that of its call. The rest of the answer is searched for stray closers; where
another `C K` follows words, there is no telling which of the two is the end.

The search is over at once where the answer ends, another call opens at a line start, or one is complete: no value can
hold its own end and a whole call behind it. Where an opener took the place of `K`, the value may hold that opener and
its call: a few calls are passed over. The text read on the way is to be given back (`Draft.end`).
"""

from typing import Literal

from attrs import define, field

from strategies.grammar.closers import CLOSERS, Kind, Markup, closed_by, opens_call
from strategies.grammar.raw_value import Way, doubt
from strategies.text.cursor import Cursor, Reject, Steps

__all__ = ["confirm_end"]

# So many calls in one answer end the search, so that it does not go over all of them again for each.
_PASSED = 8
"""How many calls may stand between an end that has no closer of the call and what shows that it was none."""
_UNSEEN: frozenset[Kind] = frozenset({"section_open", "section_close", "noise"})
"""Tags that at the start of a line neither end it nor count as words."""


def confirm_end(cur: Cursor, markup: Markup, key: str, way: Way, *, lacks: bool, closed: bool = True) -> Steps:
    """After the end of `key`, a value that may hold documents: asks for another pass where a stray closer is found.

    Not `closed`: an opener took the place of `K`. A call that `lacks` what it requires goes on where another `C` and a
    parameter stand.
    """
    # This pass was asked for by such a search: another one would ask without end.
    if way.skip or way.lenient:
        return
    # Read beyond the call, but given back: what stands there belongs to the answer.
    cur.floor = cur.offset
    yield from cur.ws()
    cur.is_last = yield from cur.at_end()
    behind = _Behind(cur=cur, markup=markup, key=key, lacks=lacks, closed=closed)
    yield from behind.search()
    yield from behind.finish(way)


class _Text:
    """Remembers whether the text seen last ended a line, and whether any was more than white space, or words."""

    def __init__(self) -> None:
        self.at_line_start = self.is_blank = True
        self.has_words = False

    def __call__(self, text: str) -> None:
        self.has_words = self.has_words or not text.isspace()
        self._see(text)

    def tag(self, text: str, *, is_closer: bool) -> None:
        """A tag that means nothing here."""
        self.has_words = self.has_words or not is_closer
        self._see(text)

    def _see(self, text: str) -> None:
        self.is_blank = self.is_blank and not text.strip()
        line = text.rsplit("\n", 1)
        self.at_line_start = not line[-1].strip() and (len(line) > 1 or self.at_line_start)


@define(kw_only=True)
class _Behind:
    """What stands behind the end of a value, as far as it was searched."""

    cur: Cursor
    markup: Markup
    key: str
    lacks: bool
    closed: bool
    _text: _Text = field(init=False, factory=_Text)
    _ends: int = 0
    """Ends like the one that was taken."""
    _nested: int = 0
    """Calls that are open."""
    _passed: int = 0
    """Calls that opened."""
    _is_stray: bool = False
    """A closer stands behind the last end that belongs to nothing."""
    _has_words: bool = False
    """Words stand before an end."""
    _goes_on: bool = False

    def search(self) -> Steps:
        """Go over the tags up to one that shows that the end was one, or to the end of the answer."""
        while (yield from self.cur.until("<", self._text)):
            tag = yield from self.cur.tag()
            kind = self.markup.kind(tag, self.key)[0] if tag else "other"
            if kind in ("call_open", "next_call"):
                is_over = yield from self._at_call(tag)
            elif kind in ("close", "loose"):
                came_to = yield from self._at_closer(tag, kind)
                if came_to == "passed":
                    continue
                is_over = came_to == "over"
            else:
                self._is_stray = self._is_stray or kind == "call_close"
                is_over = kind == "section_open" and self.closed and self._text.is_blank
            if is_over:
                return
            self._pass(tag, kind)

    def finish(self, way: Way) -> Steps:
        """Where the search found another end, the value is read again up to that one, or is in doubt."""
        another = self._ends and not self._is_stray and self._has_words
        if (way.flat and (self._ends or self._is_stray)) or (another and self.closed and not self._goes_on):
            yield from doubt(self.cur)
        if another:
            hint = Way(skip=self._ends, flat=way.flat)
            raise Reject("closer inside the value", again=True, hint=hint, attempted=True)

    def _at_call(self, tag: str) -> Steps:
        """Whether the next call opens here; one that does not may be part of the value."""
        if not (yield from opens_call(self.cur, self.markup, self.key, tag)):
            return False
        self._passed += 1
        # In the middle of a line a call is rather talked about.
        is_next = self._text.at_line_start if self.closed else self._passed > _PASSED
        if is_next and (self.markup.distinct or not self._ends):
            return True
        self._nested += self.markup.distinct
        return False

    def _at_closer(self, tag: str, kind: Kind) -> Steps:
        """What the closer of a value shows: that the search is `over`, another end, `passed` by now, or nothing."""
        found = yield from closed_by(self.cur, self.markup, self.key, tag, body=True)
        if self.lacks and not self._nested and kind == "close" and found == "param":
            self._ends += 1
            self._is_stray, self._has_words, self._goes_on = False, True, True
            return "over"
        if found in ("call_close", "end"):
            return (yield from self._at_end(tag))
        self._is_stray = self._is_stray or (kind == "close" and not self._nested)
        return ""

    def _at_end(self, tag: str) -> Steps:
        """`C K`: the end of a call that opened behind the value, or another one that the value may have."""
        came_to: Literal["over", "passed"] = "over" if self.closed and self._nested == 1 else "passed"
        if came_to == "over":
            return came_to
        self._ends += not self._nested
        self._has_words = self._has_words or self._text.has_words
        self._is_stray = self._is_stray and self._nested > 0
        self._nested = max(0, self._nested - 1)
        yield from _skip_closers(self.cur, self.markup, self.key, tag)
        return came_to

    def _pass(self, tag: str | None, kind: Kind) -> None:
        """Go on behind a tag that means nothing here, or behind a `<` that opens none."""
        size = len(tag) if tag else 1
        if kind not in _UNSEEN or not self._text.at_line_start:
            self._text.tag(self.cur.text[self.cur.pos : self.cur.pos + size], is_closer=kind in CLOSERS)
        self.cur.pos += size


def _skip_closers(cur: Cursor, markup: Markup, key: str, tag: str) -> Steps:
    cur.pos += len(tag)
    yield from cur.ws()
    if (yield from cur.peek(1)) == "<":
        after = yield from cur.tag()
        if after and markup.kind(after, key)[0] == "call_close":
            cur.pos += len(after)
