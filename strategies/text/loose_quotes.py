r"""Text with quotes in it that nothing escaped: whether it is all that stood between its two quotes.

Somebody who does not escape writes quotes in pairs around words, or a sign for inches. A quote too many at an edge, a
pair around nothing or around what gives a value, one glued to the wrong side of a word, and the name of a parameter
beside a quote say that the value's own quotes were damaged: what seems to be inside may be outside, so there is no
telling.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from strategies.text.turns import LONG, TURN, Turns

__all__ = ["may_be_torn", "with_escaped_quotes"]

_BLANK = re.compile(r"\\[nrt]")
_ESCAPE_IN_WORD = re.compile(r"(?<!\\)\w\\[trbfv]\w")
"""Beside quotes that were not escaped it is as likely a backslash that was not: of a path or a pattern."""
_LOST_QUOTE = re.compile(r'["“”] ?+, ?+(?:[\w.-]++["“”] ?+:|["“”][\w.-]++["“”]\w++ ?+: ?+["“”])')
"""A member whose name has lost the quote in front of it, or has one inside: `a", path": "b`, `a", "pat"h: "b`."""
_GLUED = re.compile(r"""\w(["“”'])[A-Za-z_]\w*+ ?+= ?+\1""")
"""Two arguments that have lost what stood between them: `title="a"code="b"`."""
_LONGEST_NAME = 80
# Models write code where a text belongs: what it comes to is neither of the strings, nor all that stands there.
_SUM = re.compile(r"\s++\+\s++(?:[\w.$()\[\]]{1,60}\s++\+\s++)*+")
"""What puts two strings together; between quotes of a text hardly anybody writes it."""
_JOINT = re.compile(r"\s++|\s*+(?:,|[+&%]|\|\|?|\.\.?)\s*+")
"""What may do so, or be a text of its own: a separator, a folder."""
_ENDED = re.compile(r"(?:\\[nrt]|[\w)\]};.!?])\Z")
_TAKES_A_TEXT = re.compile(r"(?<!\w)(?:-\w|[bfruBFRU]{1,2})\Z")
"""What a quote that opens stands right behind: `-F","`, `b" "`."""
_LONGEST_JOINT = 200
_FOREIGN = '<|"|>'
"""Gemma's quotes are no part of a text."""


def may_be_torn(body: str, quote: str, names: Iterable[str] = ()) -> Turns[bool]:
    """Whether the quotes inside `body` may be those around it; `names` are the parameters."""
    if len(body) > LONG:
        yield
    plain = _BLANK.sub(" ", body).strip()
    if any(pattern.search(plain) for pattern in (_LOST_QUOTE, _GLUED)) or _ESCAPE_IN_WORD.search(body) is not None:
        return True
    if _FOREIGN in body or _is_torn_at_edge(plain, quote) or _is_torn_at_edge(plain[::-1], quote):
        return True
    if (yield from _is_put_together(body.split(quote))):
        return True
    pattern = _beside_quotes(tuple(names))
    if pattern is None:
        return False
    for start in range(0, len(plain), LONG):
        if start:
            yield
        # A name may stand across the border of two steps.
        if pattern.search(plain, start, start + LONG + _LONGEST_NAME):
            return True
    return False


def _is_put_together(pieces: list[str]) -> Turns[bool]:
    """Whether the quotes that part these pieces may be the edges of several strings, with code between them."""
    for count, index in enumerate(range(1, len(pieces) - 1, 2), 1):
        if not count % TURN:
            yield
        joint = pieces[index]
        if len(joint) > _LONGEST_JOINT:
            continue
        if _SUM.fullmatch(joint):
            return True
        before = pieces[index - 1][-4:]
        if _JOINT.fullmatch(joint) and _ENDED.search(before) and not _TAKES_A_TEXT.search(before):
            return True
    return False


def _is_torn_at_edge(body: str, quote: str) -> bool:
    """Whether a quote that begins the text opens nothing."""
    if not body.startswith(quote):
        return False
    end = body.find(quote, 1)
    is_odd = body.count(quote) % 2 == 1
    quoted = body[1:end].strip()
    return is_odd or not quoted or quoted[-1] in "=:" or body[end + 1 : end + 2].isalnum()


@lru_cache(maxsize=256)
def _beside_quotes(names: tuple[str, ...]) -> re.Pattern[str] | None:
    """Any of the names with a quote before or behind it."""
    if not names:
        return None
    either = "|".join(map(re.escape, sorted(names)))
    return re.compile(rf"""["“”](?:{either})\b|\b(?:{either})["“”]""")


def with_escaped_quotes(body: str) -> str | None:
    """The body of a string with the quotes in it escaped: either all of them are, or none; else there is no telling."""
    plain = body.replace("\\\\", "")
    if '\\"' not in plain:
        return body.replace('"', '\\"')
    return None if '"' in plain.replace('\\"', "") else body
