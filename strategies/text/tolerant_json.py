"""JSON as models write it: strict first, then a ladder of mends, each named, none of them a guess about content.

`parse` reads one value where it begins and says where it ends and what had to be mended. Valid JSON is read by the
standard decoder alone. Anything else goes through one tolerant reader that walks the text once and notes each mend it
needs; only an unescaped quote inside a value costs a second walk. A string that never closes is never closed for it,
unknown text is never dropped, and nesting is bounded before anything recurses. `parsing` does the same in turns.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from strategies.text.entities import TwoReadings, attribute_value
from strategies.text.escapes import Backslashes, HalfEscaped
from strategies.text.loose_quotes import may_be_torn, with_escaped_quotes
from strategies.text.strict_json import (
    SPACE,
    JsonFault,
    Parsed,
    decode,
    decoder,
    float_of,
    int_of,
    may_hold_surrogates,
    note,
    refusing_surrogates,
    repeated,
    skip,
)
from strategies.text.turns import LONG, TURN, Turns, at_once, half_read, letting_go

__all__ = ["CHOSEN", "JsonFault", "Parsed", "parse", "parsing"]

CHOSEN: frozenset[str] = frozenset(
    {"inner_quotes", "missing_braces"},
)
"""The steps that had to choose between readings; every other step is a plain mend."""

_PLAIN_SPACE = " \t\r\n"
_JSON_STRING = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)
_PYTHON_STRING = re.compile(r"'([^'\\]*+(?:\\.[^'\\]*+)*+)'", re.DOTALL)
_WITH_APOSTROPHES = re.compile(r"'((?:[^'\\]++|\\.|(?<=\w)'(?=\w))*+)'", re.DOTALL)
_APOSTROPHE = re.compile(r"'(?<=\w')(?=\w)")  # the quote first: it is found without a look at each letter
# Code in arguments comes with its line breaks as they are:
# https://github.com/minpeter/ai-sdk-tool-call-middleware/issues/298
_CONTROLS = tuple(map(chr, range(32)))
"""Each is looked for by itself: that is ten times as fast in a long text as a class of them."""
# An end such as `}"` looks like a string in which a brace was closed, not like a value that lacks one.
_BRACE_IN_STRING = re.compile(r"[}\]]\s*+[\"'”][\s}\]]*+\Z")
_NEXT_MEMBER = re.compile(r'\s*+,\s*+"[^"\\\n]{1,64}+"\s*+:')
_PLAIN_DECODER = json.JSONDecoder()
_TO_QUOTE = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_NUMBER = re.compile(r"[-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]++)?")
_STRICT_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?")
_PLAIN = r'(?:"[^"\\\x00-\x1f]*+"|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?|true|false|null)'
_COMMA = r"[ \t\r\n]*+,[ \t\r\n]*+"
_PLAIN_ITEMS = re.compile(rf"(?:{_PLAIN}{_COMMA}){{1,{TURN}}}+")
_PLAIN_MEMBERS = re.compile(rf'(?:"[^"\\\x00-\x1f]*+"[ \t\r\n]*+:[ \t\r\n]*+{_PLAIN}{_COMMA}){{1,{TURN}}}+')
# JavaScript reads an octal number, Python none at all, people a decimal one: no reading is sure.
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]")
_WORD = re.compile(r"[-+]?[A-Za-z_$][A-Za-z0-9_$]*+")
_BARE_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*+(?=\s*+:)")
_LITERAL_SPACE = re.compile(r"(?:\\[nrt][ \t\r\n]*+)++")
_ODD_SPACE = re.compile("[\ufeff\u00a0 \t\r\n]++")
_LINE_COMMENTS = re.compile(r"(?://[^\r\n]*+[ \t\r\n]*+)++")
_SURPLUS = re.compile(r"(?:[\s}\]]|<!--(?:(?!-->).)*+-->)++\Z", re.DOTALL)
# JSON has none of them, and clients refuse an answer that does: https://www.rfc-editor.org/rfc/rfc8259#section-6
_NON_FINITE = {
    "NaN": "NaN",
    "Infinity": "Infinity",
    "-Infinity": "-Infinity",
    "+Infinity": "Infinity",
}
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
# Templates that render arguments by Python's `str` teach models to write them so:
# https://github.com/waybarrios/vllm-mlx/issues/63
_PYTHON_WORDS: dict[str, Any] = {"True": True, "False": False, "None": None}
_ESCAPED = re.compile(r'[{\[][{\[\s]*+\\"')
_SHOWN = re.compile(r"[{\[][{\[\s]*+&(?:quot|#34);")
_ALL_ESCAPED = re.compile(r'(?:[^"\\]++|\\")*+')
_SMART_QUOTES = {"“": "”", "”": "”", "„": "“", "‘": "’", "’": "’"}


def parsing(
    text: str,
    *,
    start: int = 0,
    closed: bool = False,
    body_keys: Sequence[str] = (),
    known_keys: Sequence[str] = (),
    max_depth: int = 64,
) -> Turns[Parsed]:
    """The value that begins at the first non-space from `start`, read in turns.

    `closed` says that the model ended the text there; `body_keys` are the string parameters that may hold code,
    `known_keys` all parameters: they delimit a value with unescaped quotes.
    """
    start = skip(SPACE, text, start)
    parsed = yield from decode(text, start, max_depth)
    if parsed is None and closed:
        parsed = (yield from _written_twice(text, start, max_depth)) or (yield from _as_markup(text, start, max_depth))
    if parsed is None:
        parsed = yield from _mend(text, start, closed, body_keys, known_keys, max_depth)
    if may_hold_surrogates(text, start, parsed.end):
        yield from refusing_surrogates(parsed.value)
    if closed and parsed.end < len(text) and isinstance(parsed.value, dict | list):
        return _without_surplus(text, parsed)
    return parsed


parse = at_once(parsing)


def _written_twice(text: str, start: int, max_depth: int) -> Turns[Parsed | None]:
    """An object or a list in which each quote is escaped, and nothing else: it is a string without its quotes."""
    # https://github.com/sgl-project/sglang/pull/12456
    if _ESCAPED.match(text, start) is None or _ALL_ESCAPED.fullmatch(text, start) is None:
        return None
    inner = yield from decode(text[start:].replace('\\"', '"'), 0, max_depth)
    if inner is None or inner.steps:
        return None
    return Parsed(inner.value, len(text), ("escaped_twice",))


def _as_markup(text: str, start: int, max_depth: int) -> Turns[Parsed | None]:
    """An object or a list in which each quote is an entity, as a page would show it."""
    if _SHOWN.match(text, start) is None or text.find('"', start) >= 0:
        return None
    try:
        shown = attribute_value(text[start:])
    except TwoReadings as doubt:
        raise JsonFault(str(doubt)) from None
    inner = yield from decode(shown, 0, max_depth)
    if inner is None or inner.steps or shown[inner.end :].strip():
        return None
    return Parsed(inner.value, len(text), ("html_escaped",))


def _without_surplus(text: str, parsed: Parsed) -> Parsed:
    if skip(SPACE, text, parsed.end) == len(text):
        return parsed
    match = _SURPLUS.match(text, parsed.end)
    if match is None:
        return parsed
    steps = list(parsed.steps)
    if "<!--" in match.group():
        note(steps, "comment")
    if "}" in match.group() or "]" in match.group():
        note(steps, "surplus_braces")
    return Parsed(parsed.value, len(text), tuple(steps))


# The rest of the ladder: one tolerant reader that notes what it needed.


def _mend(
    text: str,
    start: int,
    closed: bool,
    body_keys: Sequence[str],
    known_keys: Sequence[str],
    max_depth: int,
) -> Turns[Parsed]:
    reason = "never read"
    # From the surest to the most daring: each is a pass of its own, tried only where the one before found a fault.
    for way in ("strictly", "apostrophes", "loosely"):
        # Two values with lost quotes could exchange their ends.
        if (way == "apostrophes" and not _APOSTROPHE.search(text, start)) or (way == "loosely" and len(body_keys) != 1):
            continue
        if len(text) > LONG:
            yield
        reader = _Reader(text, start, closed=closed, max_depth=max_depth)
        if way == "apostrophes":
            reader.has_apostrophes = True
        elif way == "loosely":
            reader.quote_loosely(body_keys[0], known_keys)
        try:
            return (yield from reader.read())
        except JsonFault as fault:
            reason = fault.reason
            held = half_read(fault) if len(text) > LONG else []
        # Not before the fault is gone, whose frames hold it all.
        yield from letting_go(held)
    # Whoever goes on from here looks through all of it once more.
    if len(text) > LONG:
        yield
    raise JsonFault(reason)


class _Reader:
    """Walks the text once; each method reads one thing at the position and leaves it behind that thing."""

    __slots__ = (
        *("_at", "_backslashes", "_closed", "_decoder", "_left", "_loose_end", "_loose_key", "_max_depth"),
        *("_loose_names", "_notes", "_open", "_text", "has_apostrophes"),
    )

    def __init__(self, text: str, start: int, *, closed: bool, max_depth: int) -> None:
        self._text = text
        self._at = start
        self._closed = closed
        self._open: list[str] = []
        """The brackets that are open here."""
        self._max_depth = max_depth
        self._notes: list[str] = []
        self._backslashes = Backslashes()
        self._decoder = decoder(self._notes, strict=True)
        self._left = TURN
        """How many values are read before the others of the process have their turn."""
        self.has_apostrophes = False
        self._loose_key: str | None = None
        self._loose_end: re.Pattern[str] | None = None
        self._loose_names: Collection[str] = ()

    def quote_loosely(self, body_key: str, known_keys: Collection[str]) -> None:
        """Let the value of `body_key` hold unescaped quotes, if it can be delimited in exactly one way."""
        ends = [r"\s*+[}\]][\s}\]]*+\Z"] if self._closed else [r"\s*+\}[\s}\]]*+\Z"]
        self._loose_names = known_keys
        others = "|".join(re.escape(key) for key in known_keys if key != body_key)
        if others:
            ends.append(rf'\s*+,\s*+"(?:{others})"\s*+:')
        self._loose_key = body_key
        self._loose_end = re.compile("|".join(ends))

    def read(self) -> Turns[Parsed]:
        self._space()
        value = yield from self._value()
        if self._backslashes.are_mixed:
            raise JsonFault(HalfEscaped().reason)
        # Python allows a comma behind the last item: beside its other signs it is no second mend.
        notes = [note for note in self._notes if note != "trailing_comma" or "python_literal" not in self._notes]
        return Parsed(value, self._at, tuple(notes))

    def _space(self) -> None:
        text = self._text
        while True:
            following = text[self._at : self._at + 1]
            if not following:
                return
            # Asked first: JSON that is laid out has a run of these before each member.
            if following in _PLAIN_SPACE:
                self._at = skip(SPACE, text, self._at)
            elif following == "/":
                self._comment()
            elif following == "\\":
                self._odd_space(_LITERAL_SPACE, "literal_newline")
            elif following in ("\ufeff", "\u00a0"):
                self._odd_space(_ODD_SPACE, "odd_space")
            else:
                return

    def _odd_space(self, pattern: re.Pattern[str], step: str) -> None:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise JsonFault("stray backslash")
        self._at = match.end()
        note(self._notes, step)

    def _comment(self) -> None:
        text = self._text
        if text.startswith("//", self._at):
            self._at = skip(_LINE_COMMENTS, text, self._at)
        elif text.startswith("/*", self._at):
            end = text.find("*/", self._at + 2)
            if end < 0:
                raise JsonFault("comment never ends")
            self._at = end + 2
        else:
            raise JsonFault("stray slash")
        note(self._notes, "comment")

    def _value(self) -> Turns[Any]:
        self._left -= 1
        if self._left < 0:
            self._left = TURN
            yield
        char = self._text[self._at : self._at + 1]
        if char == "{":
            return (yield from self._nested(self._object))
        if char == "[":
            return (yield from self._nested(self._array))
        if char and char in "\"'“”„‘’":
            return (yield from self._string())
        return self._number() if char and char in "-+.0123456789" else self._word()

    def _nested(self, read: Callable[[], Turns[Any]]) -> Turns[Any]:
        self._open.append(self._text[self._at])
        # Before anything recurses: https://cwe.mitre.org/data/definitions/674.html
        if len(self._open) > self._max_depth:
            raise JsonFault("too deep")
        self._at += 1
        self._space()
        value = yield from read()
        self._open.pop()
        return value

    def _object(self) -> Turns[dict[str, Any]]:
        if self._text.startswith("{{", self._at - 1):
            return (yield from self._doubled())
        result: dict[str, Any] = {}
        more = not self._ends("}")
        while more:
            for key, value in self._plain_members():
                self._add(result, key, value)
            if self._ends("}"):
                note(self._notes, "trailing_comma")
                return result
            key = yield from self._key()
            self._add(result, key, (yield from self._member(key)))
            more = self._goes_on("}")
        return result

    def _doubled(self) -> Turns[dict[str, Any]]:
        """An object with two braces for each of its own, as the formats of Python's texts want them written."""
        # https://docs.python.org/3/library/string.html#format-string-syntax
        if self._text.startswith("{", self._at + 1):
            raise JsonFault("not a key")
        note(self._notes, "doubled_braces")
        found: dict[str, Any] = yield from self._nested(self._object)
        if not self._ends("}"):
            raise JsonFault("missing comma or closing brace")
        return found

    def _add(self, result: dict[str, Any], key: str, value: Any) -> None:
        if key in result:
            note(self._notes, repeated(result[key], value))
        result[key] = value

    def _array(self) -> Turns[list[Any]]:
        result: list[Any] = []
        more = not self._ends("]")
        while more:
            result.extend(self._plain_items())
            if self._ends("]"):
                note(self._notes, "trailing_comma")
                return result
            result.append((yield from self._value()))
            more = self._goes_on("]")
        return result

    def _plain_items(self) -> list[Any]:
        """The items ahead that need no mend, with their commas: read at the standard decoder's speed."""
        return self._plain(_PLAIN_ITEMS, "[%s]") or []

    def _plain_members(self) -> Iterable[tuple[str, Any]]:
        """The same for the members of an object, unless one of them may hold unescaped quotes."""
        found = self._plain(_PLAIN_MEMBERS, "{%s}") if self._loose_key is None else None
        return found.items() if found else ()

    def _plain(self, pattern: re.Pattern[str], frame: str) -> Any:
        match = pattern.match(self._text, self._at)
        if match is None:
            return None
        self._at = match.end()
        found = self._decoder.decode(frame % match.group().rstrip(", \t\r\n"))
        self._left -= len(found)
        self._space()
        return found

    def _member(self, key: str) -> Turns[Any]:
        self._space()
        if not self._text.startswith(":", self._at):
            raise JsonFault("missing colon")
        self._at += 1
        self._space()
        if key == self._loose_key and self._text.startswith('"', self._at):
            return (yield from self._loose_string())
        return (yield from self._value())

    def _ends(self, closer: str) -> bool:
        if self._text.startswith(closer, self._at):
            self._at += 1
            return True
        return False

    def _goes_on(self, closer: str) -> bool:
        """Behind a member: whether another one follows."""
        while True:
            before = self._at
            self._space()
            if self._ends(closer):
                return False
            if self._text.startswith(",", self._at):
                self._at += 1
                self._space()
                return True
            if self._at == len(self._text):
                return self._ends_unclosed()
            # A brace too many inside a list only: in an object it may be the object's own end.
            if self._text[self._at] != "}" or "{" in self._open:
                break
            note(self._notes, "surplus_braces")
            self._at += 1
        # On one line a missing comma looks just like an unescaped quote; behind a text that ends in a comma, the two
        # may have changed places.
        swapped = self._text[before - 2 : before] == ',"'
        if self._text.startswith('"', self._at) and "\n" in self._text[before : self._at] and not swapped:
            note(self._notes, "missing_comma")
            return True
        # Objects of a list joined without one: https://github.com/NousResearch/hermes-agent/issues/72488
        if closer == "]" and self._text.startswith("{", self._at) and self._text[before - 1] == "}":
            note(self._notes, "missing_comma")
            return True
        raise JsonFault("missing comma or closing brace")

    def _ends_unclosed(self) -> bool:
        if (
            not self._closed
            # Braces that were taken for surplus before may be those that are missing here.
            or "surplus_braces" in self._notes
            or _BRACE_IN_STRING.search(self._text, max(0, self._at - 99))
        ):
            raise JsonFault("never closed")
        # Models stop a brace short, or write one too many: https://github.com/ml-explore/mlx-lm/issues/1264
        note(self._notes, "missing_braces")
        return False

    def _key(self) -> Turns[str]:
        if self._text[self._at : self._at + 1] in ('"', "'", *_SMART_QUOTES):
            return (yield from self._string())
        match = _BARE_KEY.match(self._text, self._at)
        if match is None:
            raise JsonFault("not a key")
        note(self._notes, "unquoted_keys")
        self._at = match.end()
        return match.group()

    def _string(self) -> Turns[str]:
        quote = self._text[self._at]
        # An empty string and a quote look the same, but no reading of JSON has a quote there.
        if self._text.startswith(quote * 3, self._at) and quote in "\"'":
            return (yield from self._triple_string(quote * 3))
        if quote == '"':
            return (yield from self._json_text(self._matched(_JSON_STRING)))
        if quote == "'":
            note(self._notes, "python_literal")
            body = self._matched(_WITH_APOSTROPHES if self.has_apostrophes else _PYTHON_STRING)
            if _APOSTROPHE.search(body):
                note(self._notes, "apostrophes")
            return (yield from self._python_text(body))
        return (yield from self._smart_string(_SMART_QUOTES[quote]))

    def _matched(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise JsonFault("string never closed")
        self._at = match.end()
        return match.group(1)

    def _triple_string(self, quotes: str) -> Turns[str]:
        end = self._text.find(quotes, self._at + 3)
        if end < 0:
            raise JsonFault("string never closed")
        body = self._text[self._at + 3 : end]
        self._at = end + 3
        note(self._notes, "python_literal")
        return (yield from self._python_text(body))

    def _smart_string(self, closer: str) -> Turns[str]:
        end = self._text.find(closer, self._at + 1)
        if end < 0:
            raise JsonFault("string never closed")
        body = self._text[self._at + 1 : end]
        self._at = end + 1
        note(self._notes, "smart_quotes")
        return (yield from self._json_text(self._escaped(body)))

    def _escaped(self, body: str) -> str:
        text = with_escaped_quotes(body)
        if text is None:
            raise JsonFault("quotes are escaped and not escaped")
        return text

    def _loose_string(self) -> Turns[str]:
        end = yield from self._loose_quote(self._at + 1)
        body = self._text[self._at + 1 : end]
        if (yield from may_be_torn(body, '"', self._loose_names)):
            raise JsonFault("inner quotes can be read in several ways")
        self._at = end + 1
        note(self._notes, "inner_quotes")
        return (yield from self._json_text(self._escaped(body)))

    def _loose_quote(self, position: int) -> Turns[int]:
        """The one quote from `position` on that can be the end of the value."""
        pattern = self._loose_end
        # All ends are looked for, not the first: that there is exactly one is the whole evidence.
        found = stranger = -1
        while pattern is not None and (match := _TO_QUOTE.match(self._text, position)):
            position = match.end()
            self._left -= 1
            if self._left < 0:
                self._left = TURN
                yield
            if not pattern.match(self._text, match.end()):
                stranger = match.end() if _NEXT_MEMBER.match(self._text, match.end()) else stranger
                continue
            if found >= 0:
                raise JsonFault("inner quotes can be read in several ways")
            found = match.end() - 1
        if found < 0:
            raise JsonFault("string never closed")
        # What follows an earlier quote reads as members of other names, to the end: the value may have ended there.
        if stranger >= 0 and self._ends_in_members(stranger):
            raise JsonFault("inner quotes can be read in several ways")
        return found

    def _ends_in_members(self, position: int) -> bool:
        """Whether the text goes on with nothing but further members, whatever their names."""
        members = "{" + self._text[position:].lstrip()[1:]
        try:
            _, end = _PLAIN_DECODER.raw_decode(members)
        # The decoder recurses in C, and what is read here has not been bounded.
        except (ValueError, RecursionError):
            return False
        return not members[end:].strip("}] \t\r\n")

    def _json_text(self, body: str) -> Turns[str]:
        if any(map(body.__contains__, _CONTROLS)):
            note(self._notes, "control_chars")
        if "\\" not in body:
            return body
        try:
            text, is_mended = yield from self._backslashes.json_text(body, or_python="python_literal" in self._notes)
        except HalfEscaped as doubt:
            raise JsonFault(doubt.reason) from None
        if is_mended:
            note(self._notes, "bad_escape")
        return text

    def _python_text(self, body: str) -> Turns[str]:
        try:
            text, is_mended = (yield from self._backslashes.python_text(body)) if "\\" in body else (body, False)
        except HalfEscaped as doubt:
            raise JsonFault(doubt.reason) from None
        if is_mended:
            note(self._notes, "bad_escape")
        return text

    def _number(self) -> Any:
        match = _NUMBER.match(self._text, self._at)
        if match is None:
            return self._word()
        digits = match.group()
        following = self._text[match.end() : match.end() + 1]
        # `12px`, `1.2.3`, a date: text without quotes, of which half would be lost.
        if _LEADING_ZERO.match(digits) or following.isalnum() or (following and following in "_."):
            raise JsonFault("not a number")
        self._at = match.end()
        if not _STRICT_NUMBER.fullmatch(digits):
            note(self._notes, "python_literal")
        return int_of(digits, self._notes) if digits.lstrip("+-").isdigit() else float_of(digits, self._notes)

    def _word(self) -> Any:
        match = _WORD.match(self._text, self._at)
        word = match.group() if match else ""
        self._at += len(word)
        if word in _WORDS:
            return _WORDS[word]
        if word in _NON_FINITE:
            note(self._notes, "non_finite")
            return _NON_FINITE[word]
        if word in _PYTHON_WORDS:
            note(self._notes, "python_literal")
            return _PYTHON_WORDS[word]
        raise JsonFault("not a value" if self._at < len(self._text) or word else "value missing")
