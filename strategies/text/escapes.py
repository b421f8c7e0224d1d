r"""What the backslashes in a written string stand for: escapes of its language, or themselves; never some and some.

A string with an escape that its language does not have (`C:\Users`: there is no `\U`) was never escaped, so all its
backslashes are literal. Where it also holds what looks escaped on purpose (a quote, a line break outside a path) there
are two readings, and `HalfEscaped` is raised: the call has to be asked for again. So it is where some quotes of a kind
are escaped and others are not, where a path with a drive could be read as escapes (`C:\new`) beside a string that
was never escaped, and where one backslash of several seems to have been lost (`C:\\Users\new`). Texts are walked once.
"""

import json
import re

from attrs import define, field

from strategies.text.turns import LONG, TURN, Turns, replaced

__all__ = ["Backslashes", "HalfEscaped", "has_surrogates", "lost_backslash"]

_JSON = re.compile(r"""\\(?:(?P<known>["'\\/nrt\t]|u[0-9a-fA-F]{4})|[bf]|(?P<strange>))""")
_PYTHON = re.compile(
    r"""\\(?:(?P<known>["'\\nrt]|\r?\n|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})|[abfv0-7]|(?P<strange>))"""
)
"""An escape that somebody meant, one that a pattern or a formula is just as likely to hold as itself, or none."""
_NAMES = r"[\w.~%$-]++(?: [A-Z(][\w.()-]*+(?!:))*+"
_PATH = re.compile(
    rf"(?:(?<!\w)(?P<root>[A-Za-z]:)|(?<![:\w\\])(?P<share>\\)(?=\\[\w.$-]++\\)|(?<![\w.~%$-])[\w.~%$-]++)(?:\\{_NAMES})++\\?"
)
_BREAK = re.compile(r"\\[nrt](?:[A-Z]|[\w.~%$-]?(?![\w.~%$-]))")
"""Before a capital letter or a lone one a line break is as likely as the first letter of a name, inside a path, too."""
_DRIVE = re.compile(r":(?<=(?<!\w)[A-Za-z]:)\\[^\\/]")
"""The colon comes first: it is found at once in a long text, which a letter is not."""
_TORN_PATH = re.compile(
    r":(?<=(?<!\w)[A-Za-z]:)(?:(?:\\\\[\w.~%$-]++)*+\\[nrt][\w.~%$-]++\\\\\w"
    r"|(?<=(?<![^\"'])[A-Za-z]:)(?:\\\\[\w.~%$-]++)++(?:\\[nrt][\w.~%$-]++)++(?![^\"']))"
)
"""A path whose backslashes are escaped but for one within, or for the last ones where it is all of the string."""
_JSON_STRING = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)(?:"|\\?\Z)', re.DOTALL)
_JSON_ONLY = re.compile(r"""(?:[^\\]++|\\(?:["'\\/nrt\tbf]|u[0-9a-fA-F]{4}))*+""")
_PYTHON_ONLY = re.compile(
    r"""(?:[^\\]++|\\(?:["'\\nrtabfv0-7]|\r?\n|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4}))*+"""
)
"""A string all of whose escapes are its language's."""
_PYTHON_KNOWN = re.compile(
    r"""\\(?:["'\\nrtabfv0-7]|\r?\n|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})"""
)
_ESCAPED_BACKSLASH = re.compile(r"(?<=[^\s\"'=(,:\\])\\\\[^\\]")
"""Inside a word two of them were meant as one; before it they begin the name of a share."""
_UNLIKE_CODEC = re.compile(r"\\(?:\r\n|[4-7][0-7]{2})")
"""What the library's codec reads otherwise, or warns of."""
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

    def json_text(self, body: str, *, or_python: bool = False) -> Turns[tuple[str, bool]]:
        """What the body of a JSON string stands for, and whether it was read by another rule than JSON's.

        `or_python`: it stands in a Python literal, whose strings have escapes that JSON has not.
        """
        if or_python and not _is_whole(_JSON_ONLY, body) and _is_whole(_PYTHON_ONLY, body):
            return (yield from self.python_text(body))
        if not (yield from self._is_escaped(body, _JSON, _JSON_ONLY)):
            return body, True
        mended = body
        if "\\'" in body or "\\\t" in body:
            mended = yield from replaced(_PAIR, body, _unneeded)
        # `strict=False`: raw line breaks have been told as a mend by whoever asks, and are no fault here.
        return json.loads(f'"{mended}"', strict=False), mended != body

    def python_text(self, body: str) -> Turns[tuple[str, bool]]:
        """The same for the body of a Python string."""
        if not (yield from self._is_escaped(body, _PYTHON, _PYTHON_ONLY)):
            return body, _PYTHON_KNOWN.search(body) is not None
        if _UNLIKE_CODEC.search(body):
            return (yield from replaced(_PYTHON_ESCAPE, body, _python_escape)), False
        # `latin-1` first: the codec takes bytes for characters up to 255, and the rest stands there as escapes.
        return body.encode("latin-1", "backslashreplace").decode("unicode_escape"), False

    @property
    def are_mixed(self) -> bool:
        """Whether one string was not escaped and another, a path, may not have been."""
        return self._has_literal and self._has_path

    def _is_escaped(self, body: str, escapes: re.Pattern[str], only: re.Pattern[str]) -> Turns[bool]:
        if len(body) > LONG:
            yield
        has_strange = not _is_whole(only, body)
        if len(body) > LONG:
            yield
        plain = body.replace("\\\\", "")
        quotes = [quote for quote in "\"'" if f"\\{quote}" in plain]
        if not has_strange:
            if any(quote in plain.replace(f"\\{quote}", "") for quote in quotes) or _lost_one(body, plain):
                raise HalfEscaped
            self._has_path = self._has_path or _DRIVE.search(body) is not None
        elif quotes or _ESCAPED_BACKSLASH.search(body):
            raise HalfEscaped
        elif "\n" not in body and not (yield from _are_paths(body, escapes)):
            raise HalfEscaped
        else:
            self._has_literal = True
        if len(body) > LONG:
            yield
        return not has_strange


def lost_backslash(text: str) -> bool:
    """Whether a string of this valid JSON seems to have lost one of its backslashes; for most texts a glance tells."""
    if "\\\\" not in text or not _lost_one(text, text.replace("\\\\", "")):
        return False
    return any(_lost_one(body, body.replace("\\\\", "")) for body in _JSON_STRING.findall(text))


def _lost_one(body: str, plain: str) -> bool:
    """Whether a backslash was lost where others are escaped: nobody writes the controls that it then stands for."""
    if len(plain) == len(body):
        return False
    return "\\b" in plain or "\\f" in plain or _TORN_PATH.search(body) is not None


def _is_whole(only: re.Pattern[str], body: str) -> bool:
    match = only.match(body)
    return match is not None and match.end() == len(body)


def _are_paths(body: str, escapes: re.Pattern[str]) -> Turns[bool]:
    """Whether all that looks like an escape that somebody meant is a part of a path."""
    known: list[re.Match[str]] = []
    strange: list[int] = []
    for count, match in enumerate(escapes.finditer(body), 1):
        if match["strange"] is not None:
            strange.append(match.start())
        elif match["known"]:
            known.append(match)
        if not count % TURN:
            yield
    return not known or (yield from _are_in_paths(body, known, strange))


def _are_in_paths(body: str, known: list[re.Match[str]], strange: list[int]) -> Turns[bool]:
    r"""Whether what looks like an escape is a part of a path, as in `C:\new\Users`."""
    left = [match.start() for match in reversed(known)]
    odd = iter([*strange, len(body)])
    next_odd = next(odd)
    for count, path in enumerate(_PATH.finditer(body), 1):
        if not count % TURN:
            yield
        if left[-1] < path.start():
            return False
        while next_odd < path.start():
            next_odd = next(odd)
        # `app.py\n\d+` is a line break before a pattern; names of folders have more than one letter.
        is_named = next_odd < path.end() and body[next_odd + 1 : next_odd + 3].isalnum()
        is_path = path["root"] or path["share"] or is_named
        while left and left[-1] < path.end():
            if not is_path or _BREAK.match(body, left[-1]):
                return False
            left.pop()
        if not left:
            return True
    return False


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


def has_surrogates(text: str) -> bool:
    """Whether a half of a pair stands alone in it; the encoder finds one much faster than a pattern does."""
    # Python decodes half of a pair and cannot encode it again: https://www.rfc-editor.org/rfc/rfc8259#section-8.2
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
