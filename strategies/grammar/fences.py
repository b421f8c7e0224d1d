"""The body of a code fence, line by line, for dialects that read it themselves."""

import re

from strategies.grammar.dialect import Fence
from strategies.grammar.lexicon import END_TOKENS
from strategies.text.cursor import Cursor, Sink, Steps

__all__ = ["closes_here", "read_line", "read_rest"]

_INDENT = re.compile(r" *")
_RUNS = {"`": re.compile(r"`*"), "~": re.compile(r"~*")}
_BLANKS = re.compile(r"[ \t\r]*")


def closes_here(cur: Cursor, fence: Fence) -> Steps:
    """Whether the line that begins here closes the fence."""
    outer, start = cur.anchor, cur.offset
    if outer is None:
        cur.anchor = start
    closes = False
    if len((yield from cur.match(_INDENT, 4))) <= 3 and (yield from cur.starts(fence.mark)):
        run = yield from cur.match(_RUNS[fence.mark], 256)
        if len(run) >= fence.size:
            yield from cur.match(_BLANKS, 256)
            while (yield from cur.lits(END_TOKENS)):
                yield from cur.match(_BLANKS, 256)
            closes = (yield from cur.peek(1)) in ("", "\n")
    cur.back(start)
    cur.anchor = outer
    return closes


def read_line(cur: Cursor, sink: Sink) -> Steps:
    """Hand one line to `sink`, with its line break; False when the answer ends without one."""
    if not (yield from cur.until("\n", sink)):
        return False
    sink("\n")
    cur.pos += 1
    return True


def read_rest(cur: Cursor, fence: Fence, sink: Sink) -> Steps:
    """Hand everything up to the line that closes the fence to `sink`; False when the answer ends first."""
    while (yield from read_line(cur, sink)):
        if (yield from closes_here(cur, fence)):
            return True
    return False
