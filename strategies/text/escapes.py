r"""What the backslashes in a written string stand for: escapes of its language, or themselves; never some and some.

A string with an escape that its language does not have (`C:\Users`: there is no `\U`) was never escaped, so all its
backslashes are literal. Where it also holds what looks escaped on purpose (a quote, a line break outside a path) there
are two readings, and `HalfEscaped` is raised: the call has to be asked for again. So it is where some quotes of a kind
are escaped and others are not, and where a path with a drive could be read as escapes (`C:\new`) beside a string that
was never escaped. Texts are walked once.
"""

import json
import re

from attrs import define, field

__all__ = ["Backslashes", "HalfEscaped"]

_JSON = re.compile(r"""\\(?:(?P<known>["'\\/nrt\t]|u[0-9a-fA-F]{4})|[bf]|(?P<strange>))""")
_PYTHON = re.compile(
    r"""\\(?:(?P<known>["'\\nrt]|\r?\n|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})|[abfv0-7]|(?P<strange>))"""
)
"""An escape that somebody meant, one that a pattern or a formula is just as likely to hold as itself, or none."""
_NAMES = r"[\w.~%$-]++(?: [A-Z(][\w.()-]*+(?!:))*+"
_PATH = re.compile(
    rf"(?:(?<!\w)(?P<root>[A-Za-z]:)|(?<![:\w\\])(?P<share>\\)(?=\\[\w.$-]++\\)|(?<![\w.~%$-])[\w.~%$-]++)(?:\\{_NAMES})++\\?"
)
_DRIVE = re.compile(r"(?<!\w)[A-Za-z]:\\[^\\/]")
_PAIR = re.compile(r"\\.", re.DOTALL)
_PYTHON_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{1,3})|(\r\n|.))", re.DOTALL
)
_LETTERS = {
    **{"\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"},
    **{"\n": "", "\r\n": ""},
}


class HalfEscaped(ValueError):
    """The string can be read as escaped and as not escaped."""

    def __init__(self) -> None:
        super().__init__("backslashes can be read in several ways")
        self.reason = str(self)


@define
class Backslashes:
    """The strings of one text."""

    _has_literal: bool = field(default=False, init=False)
    _has_path: bool = field(default=False, init=False)

    def json_text(self, body: str, *, or_python: bool = False) -> tuple[str, bool]:
        """What the body of a JSON string stands for, and whether it was read by another rule than JSON's.

        `or_python`: it stands in a Python literal, whose strings have escapes that JSON has not.
        """
        if or_python and _has_strange(body, _JSON) and not _has_strange(body, _PYTHON):
            return self.python_text(body)
        if not self._is_escaped(body, _JSON):
            return body, True
        mended = _PAIR.sub(_unneeded, body)
        return json.loads(f'"{mended}"', strict=False), mended != body

    def python_text(self, body: str) -> tuple[str, bool]:
        """The same for the body of a Python string."""
        if not self._is_escaped(body, _PYTHON):
            return body, any(match["strange"] is None for match in _PYTHON.finditer(body))
        return _PYTHON_ESCAPE.sub(_python_escape, body), False

    @property
    def are_mixed(self) -> bool:
        """Whether one string was not escaped and another, a path, may not have been."""
        return self._has_literal and self._has_path

    def _is_escaped(self, body: str, escapes: re.Pattern[str]) -> bool:
        known: list[re.Match[str]] = []
        strange: list[int] = []
        for match in escapes.finditer(body):
            if match["strange"] is not None:
                strange.append(match.start())
            elif match["known"]:
                known.append(match)
        quotes = {match["known"] for match in known if match["known"] in ('"', "'")}
        if not strange:
            if quotes and not quotes.isdisjoint(_PAIR.sub("", body)):
                raise HalfEscaped
            self._has_path = self._has_path or _DRIVE.search(body) is not None
            return True
        if quotes:
            raise HalfEscaped
        if known and "\n" not in body and not _are_in_paths(body, known, strange):
            raise HalfEscaped
        self._has_literal = True
        return False


def _are_in_paths(body: str, known: list[re.Match[str]], strange: list[int]) -> bool:
    r"""Whether what looks like an escape is a part of a path, as in `C:\new\Users`."""
    left = [match.start() for match in reversed(known)]
    odd = iter([*strange, len(body)])
    next_odd = next(odd)
    for path in _PATH.finditer(body):
        if left[-1] < path.start():
            return False
        while next_odd < path.start():
            next_odd = next(odd)
        is_path = path["root"] or path["share"] or next_odd < path.end()
        while left and left[-1] < path.end():
            if not is_path:
                return False
            left.pop()
        if not left:
            return True
    return False


def _has_strange(body: str, escapes: re.Pattern[str]) -> bool:
    return any(match["strange"] is not None for match in escapes.finditer(body))


def _unneeded(match: re.Match[str]) -> str:
    """An escape without the backslash that JSON does not want before it."""
    return match.group()[1:] if match.group()[1] in "'\t" else match.group()


def _python_escape(match: re.Match[str]) -> str:
    digits = match.group(1) or match.group(2) or match.group(3)
    if digits is not None:
        return chr(int(digits, 16))
    if match.group(4) is not None:
        return chr(int(match.group(4), 8))
    return _LETTERS.get(match.group(5), match.group())
