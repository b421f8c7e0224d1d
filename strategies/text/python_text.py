"""Calls written as Python: `f(a="x", n=1)`, several on lines, in a list, printed or assigned.

    text      = statement { ( newline | ";" | "," ) statement }
    statement = [ NAME "=" ] ( "[" call { "," call } "]" | "print(" call ")" | call )
    call      = NAME { ( "." | ":" | "/" ) NAME } "(" [ argument { "," argument } ] ")"
    argument  = [ NAME "=" ] value
    value     = string | number | True | False | None | true | false | null | list | tuple | dict

Anything else in a value - a name, an operator, an f-string, another call - is code, not data, and refused. Strings may
hold raw line breaks; one with an invalid escape was never escaped. The text is walked once; nesting is bounded, so the
recursion is. `bracketed` finds the end of such an expression while it arrives.
"""

import re
from collections.abc import Callable
from typing import Any

from attrs import evolve, field, frozen

from strategies.text.cursor import Cursor, Reject, Steps
from strategies.text.escapes import Backslashes, HalfEscaped, has_surrogates
from strategies.text.loose_quotes import may_be_torn
from strategies.text.numbers import written
from strategies.text.turns import TURN, Turns, whole

__all__ = ["PythonCall", "PythonFault", "bracketed", "parse_calls", "read_calls", "reading_calls"]

_MAX_DEPTH = 64
_SPACE = re.compile(r"(?:[ \t\r\n\f]++|#[^\n]*+|\\\r?\n)*+")
_INLINE_SPACE = re.compile(r"[ \t]*+")
_IDENTIFIER = re.compile(r"[^\W\d]\w*+")
_CALLEE = re.compile(r"[^\W\d]\w*+(?:-\w++)*+(?:[.:/][^\W\d]\w*+(?:-\w++)*+)*+")
_DOTTED = re.compile(r"[^\W\d]\w*+(?:\.[^\W\d]\w*+)*+")
_TARGET = re.compile(r"[^\W\d]\w*+[ \t]*+=(?!=)[ \t]*+")
_STRING_START = re.compile(r"""([rRbBuUfFtT]{0,2})("(?:"")?|'(?:'')?)""")
_NUMBER = re.compile(
    r"[-+]?(?:0[xX][0-9a-fA-F_]++|0[oO][0-7_]++|0[bB][01_]++"
    r"|(?:[0-9][0-9_]*+(?:\.[0-9_]*+)?|\.[0-9][0-9_]*+)(?:[eE][-+]?[0-9]++)?)"
)
_SET = re.compile(r"\s*+[,}]")
_GOES_ON = re.compile(r"[\w\\/$]")
"""What directly behind a quote shows that it was no end: an operator would have a space or its sign there."""
_LOOSE_ENDS = re.compile(
    r"\s*+(?:,\s*+[^\W\d]\w*+\s*+=(?!=)|\)\s*+\]?\s*+[\"'`]?\s*+\Z|\)\s*+[,;\n]\s*+[^\W\d][\w.]*+\()"
)
_KEYWORD_INSIDE = re.compile(r"(?:\A|[,(])\s*+[^\W\d]\w*+\s*+=\s*+[\"']")
"""What looks like the next argument may be it: a quote was lost before."""
_TO_DOUBLE_QUOTE = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_TO_SINGLE_QUOTE = re.compile(r"[^'\\]*+(?:\\.[^'\\]*+)*+'", re.DOTALL)
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]")
_SEPARATOR = re.compile(r"[ \t]*+(?:[;,\r\n]|#[^\n]*+|\Z)")
_STRING_BODIES = {
    "'": re.compile(r"[^'\\]*+(?:\\.[^'\\]*+)*+", re.DOTALL),
    '"': re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL),
    "'''": re.compile(r"[^'\\]*+(?:(?:\\.|'(?!''))[^'\\]*+)*+", re.DOTALL),
    '"""': re.compile(r'[^"\\]*+(?:(?:\\.|"(?!""))[^"\\]*+)*+', re.DOTALL),
}
# Models that speak JSON all day write its words in Python, too.
_WORDS: dict[str, Any] = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
_CLOSERS = {"(": ")", "[": "]", "{": "}"}


class PythonFault(ValueError):
    """The text is not made of calls whose arguments are plain data."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@frozen(kw_only=True)
class PythonCall:
    """One call as it was written."""

    name: str
    arguments: dict[str, Any] = field(factory=dict)
    positional: tuple[Any, ...] = ()
    mends: tuple[str, ...] = ()


def parse_calls(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Names and arguments of all the calls that `text` consists of; raises `PythonFault`."""
    found = read_calls(text)
    if any(call.positional for call in found):
        raise PythonFault("positional argument")
    return [(call.name, call.arguments) for call in found]


def read_calls(text: str, *, constructors: bool = False) -> list[PythonCall]:
    """All the calls that `text` consists of; raises `PythonFault`.

    A dict that is a call's sole positional argument is its arguments. `constructors` takes `Name(k=v)` as a value for
    an object of its keywords.
    """
    return whole(reading_calls(text, constructors=constructors))


def reading_calls(text: str, *, constructors: bool = False) -> Turns[list[PythonCall]]:
    """The same in turns."""
    return _Reader(text, constructors=constructors).read()


class _Reader:
    """Walks the text once; each method reads one thing at the position and leaves it behind that thing."""

    __slots__ = ("_at", "_backslashes", "_constructors", "_depth", "_left", "_mends", "_text")

    def __init__(self, text: str, *, constructors: bool) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._left = TURN
        """How many values are read before the others of the process have their turn."""
        self._constructors = constructors
        self._mends: list[str] = []
        self._backslashes = Backslashes()

    def read(self) -> Turns[list[PythonCall]]:
        self._space()
        quote = self._quoted()
        found: list[PythonCall] = []
        while self._at < len(self._text) and not (quote and self._text.startswith(quote, self._at)):
            found += yield from self._statement()
            if quote:
                self._space()
                continue
            if not _SEPARATOR.match(self._text, self._at):
                raise PythonFault("text behind a call")
            self._separators()
        if quote:
            self._at += len(quote)
            self._space()
            if self._at < len(self._text):
                raise PythonFault("text behind a call")
        if not found:
            raise PythonFault("no call")
        if self._backslashes.are_mixed:
            raise PythonFault(HalfEscaped().reason)
        return found

    def _quoted(self) -> str:
        """The calls stand in quotes as a whole."""
        # A code span or a quotation of the whole: what stands inside is still a call and nothing else.
        for quote in ("`", '"', "'"):
            if self._text.startswith(quote, self._at) and self._text.rstrip().endswith(quote):
                self._at += 1
                self._mends.append("quoted_call")
                return quote
        return ""

    def _space(self) -> None:
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _separators(self) -> None:
        while True:
            self._space()
            if self._text[self._at : self._at + 1] not in (";", ","):
                return
            self._at += 1

    def _lit(self, text: str) -> bool:
        if self._text.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _statement(self) -> Turns[list[PythonCall]]:
        target = _TARGET.match(self._text, self._at)
        if target:
            self._at = target.end()
        if self._lit("await "):
            self._inline_space()
        return (yield from self._list()) if self._lit("[") else [(yield from self._printed())]

    def _inline_space(self) -> None:
        match = _INLINE_SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _list(self) -> Turns[list[PythonCall]]:
        found: list[PythonCall] = []
        self._space()
        while not self._lit("]"):
            if self._at == len(self._text) and found:
                self._mends.append("missing_bracket")
                # The bracket is the list's: the call before it is complete, but whoever judges it should know.
                found[-1] = evolve(found[-1], mends=(*found[-1].mends, *self._taken()))
                break
            found.append((yield from self._printed()))
            self._space()
            if self._lit(","):
                self._space()
            elif self._at < len(self._text) and self._text[self._at] != "]":
                raise PythonFault("missing comma")
        return found

    def _printed(self) -> Turns[PythonCall]:
        """A call, or a call inside `print`."""
        start = self._at
        name = self._callee()
        # Code models print what a call returns: `print(get_weather(city="Rome"))` is the call.
        if name == "print":
            self._space()
            match = _CALLEE.match(self._text, self._at)
            if match and self._text.startswith("(", match.end()):
                self._descend()
                call: PythonCall = yield from self._printed()
                self._depth -= 1
                self._space()
                if self._lit(","):
                    self._space()
                if not self._lit(")"):
                    raise PythonFault("more than a call is printed")
                return call
            self._at = start
            name = self._callee()
        return (yield from self._call(name))

    def _callee(self) -> str:
        match = _CALLEE.match(self._text, self._at)
        if match is None:
            raise PythonFault("no call")
        self._at = match.end()
        self._inline_space()
        if not self._lit("("):
            raise PythonFault("no call")
        return match.group()

    def _call(self, name: str) -> Turns[PythonCall]:
        arguments, positional = yield from self._arguments()
        # `search({"query": "x"})`: as those write who know the tool from its JSON.
        if len(positional) == 1 and not arguments and isinstance(positional[0], dict):
            arguments, positional = positional[0], []
        return PythonCall(name=name, arguments=arguments, positional=tuple(positional), mends=self._taken())

    def _taken(self) -> tuple[str, ...]:
        mends = tuple(dict.fromkeys(self._mends))
        self._mends.clear()
        return mends

    def _arguments(self) -> Turns[tuple[dict[str, Any], list[Any]]]:
        """What stands between the brackets of a call."""
        self._descend()
        arguments: dict[str, Any] = {}
        positional: list[Any] = []
        self._space()
        while not self._lit(")"):
            key = self._keyword()
            if key is None:
                if arguments:
                    raise PythonFault("positional argument behind a keyword")
                positional.append((yield from self._value()))
            elif key in arguments:
                raise PythonFault(f"`{key}` is given twice")
            else:
                arguments[key] = yield from self._value()
            self._comma(")")
        self._depth -= 1
        return arguments, positional

    def _keyword(self) -> str | None:
        match = _IDENTIFIER.match(self._text, self._at)
        if match is None:
            return None
        at = self._at
        self._at = match.end()
        self._space()
        # Two equals signs compare, and what is compared is code.
        if self._text.startswith("=", self._at) and not self._text.startswith("==", self._at):
            self._at += 1
            self._space()
            return match.group()
        self._at = at
        return None

    def _comma(self, closer: str) -> None:
        self._space()
        if self._lit(","):
            self._space()
        elif not self._text.startswith(closer, self._at):
            raise PythonFault("not a plain value")

    def _descend(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise PythonFault("too deep")

    def _value(self) -> Turns[Any]:
        self._left -= 1
        if self._left < 0:
            self._left = TURN
            yield
        string = _STRING_START.match(self._text, self._at)
        if string:
            return (yield from self._strings())
        char = self._text[self._at : self._at + 1]
        if char in ("[", "("):
            return (yield from self._sequence("]" if char == "[" else ")"))
        if char == "{":
            return (yield from self._dict())
        number = _NUMBER.match(self._text, self._at)
        return self._number(number.group()) if number else (yield from self._word())

    def _sequence(self, closer: str) -> Turns[Any]:
        self._at += 1
        self._descend()
        self._space()
        found: list[Any] = []
        commas = 0
        while not self._lit(closer):
            found.append((yield from self._value()))
            before = self._at
            self._comma(closer)
            commas += "," in self._text[before : self._at]
        self._depth -= 1
        # One value in brackets is that value: only a comma makes a tuple of it.
        return found[0] if closer == ")" and len(found) == 1 and not commas else found

    def _dict(self) -> Turns[dict[str, Any] | list[Any]]:
        start = self._at
        self._at += 1
        self._descend()
        self._space()
        found: dict[str, Any] = {}
        while not self._lit("}"):
            key = yield from self._value()
            # A set is the nearest that Python has to a list of different things.
            if not found and _SET.match(self._text, self._at):
                self._at = start
                self._depth -= 1
                found_items: list[Any] = yield from self._sequence("}")
                return found_items
            # JSON has text alone for keys; a whole number is written as one, and so read back.
            if isinstance(key, bool) or not isinstance(key, str | int):
                raise PythonFault("a key is no text")
            self._space()
            if not self._lit(":"):
                raise PythonFault("missing colon")
            self._space()
            if str(key) in found:
                raise PythonFault(f"`{key}` is given twice")
            found[str(key)] = yield from self._value()
            self._comma("}")
        self._depth -= 1
        return found

    def _number(self, digits: str) -> int | float:
        self._at += len(digits)
        told = digits
        following = self._text[self._at : self._at + 1]
        if following.isalnum() or (following and following in "_."):
            raise PythonFault("not a number")
        if _LEADING_ZERO.match(digits) and digits.lstrip("+-").replace("_", "").isdigit():
            self._mends.append("leading_zero")
            # Python 3 refuses `007`; nobody who writes a day or a month means an octal number.
            digits = digits[:1].strip("0123456789") + (digits.lstrip("+-0_") or "0")
        # Base 0 reads the prefixes and underscores of Python's own numbers.
        try:
            return written(int(digits, 0), told)
        except ValueError:
            pass
        try:
            value = float(digits)
        except ValueError:
            raise PythonFault("not a number") from None
        # Neither infinite nor not a number: both give something else than nought.
        if value - value != 0:
            raise PythonFault("number out of range")
        return written(value, told)

    def _word(self) -> Turns[Any]:
        match = _DOTTED.match(self._text, self._at)
        word = match.group() if match else ""
        following = self._text[self._at + len(word) : self._at + len(word) + 1]
        if word in _WORDS:
            self._at += len(word)
            return _WORDS[word]
        # `Point(x=1)` is data that some models write for an object; a small letter is a function, and that is code.
        if self._constructors and following == "(" and word.rsplit(".", 1)[-1][:1].isupper():
            self._at += len(word) + 1
            arguments, positional = yield from self._arguments()
            if not positional:
                return arguments
        raise PythonFault("not a plain value")

    def _strings(self) -> Turns[str]:
        """One string, or several that stand side by side; where they touch, a quote is more likely not escaped."""
        parts: list[str] = []
        end = -1
        while match := _STRING_START.match(self._text, self._at):
            if self._at == end:
                raise PythonFault("inner quotes can be read in several ways")
            prefix, quotes = match.group(1).lower(), match.group(2)
            if set(prefix) - {"r", "u"}:
                raise PythonFault("not a plain string")
            parts.append((yield from self._string(match, quotes, raw="r" in prefix)))
            end = self._at
            self._space()
        # Strings that stand side by side are one in Python, unless a quote in them was lost.
        if len(parts) > 1 and not {"inner_quotes", "control_chars"}.isdisjoint(self._mends):
            raise PythonFault("inner quotes can be read in several ways")
        return "".join(parts)

    def _string(self, start: re.Match[str], quotes: str, *, raw: bool) -> Turns[str]:
        plain = _STRING_BODIES[quotes].match(self._text, start.end())
        end = plain.end() if plain else start.end()
        if not self._text.startswith(quotes, end):
            raise PythonFault("string never closed")
        if len(quotes) == 1 and _GOES_ON.match(self._text, end + 1):
            end = yield from self._loose_end(start.end(), quotes)
            self._mends.append("inner_quotes")
            if f"\\{quotes}" in self._text[start.end() : end]:
                raise PythonFault("quotes are escaped and not escaped")
            if (yield from _is_doubtful(self._text[start.end() : end], quotes)):
                raise PythonFault("inner quotes can be read in several ways")
        body = self._text[start.end() : end]
        self._at = end + len(quotes)
        if len(quotes) == 1 and "\n" in body.replace("\\\n", "").replace("\\\r\n", ""):
            self._mends.append("control_chars")
        return body if raw or "\\" not in body else (yield from self._unescaped(body))

    def _unescaped(self, body: str) -> Turns[str]:
        try:
            text, is_mended = yield from self._backslashes.python_text(body)
        except HalfEscaped as doubt:
            raise PythonFault(doubt.reason) from None
        if is_mended:
            self._mends.append("bad_escape")
        return _paired(text)

    def _loose_end(self, start: int, quote: str) -> Turns[int]:
        """The one quote that can end a value which holds unescaped ones."""
        found = -1
        while match := (_TO_DOUBLE_QUOTE if quote == '"' else _TO_SINGLE_QUOTE).match(self._text, start):
            start = match.end()
            self._left -= 1
            if self._left < 0:
                self._left = TURN
                yield
            if not _LOOSE_ENDS.match(self._text, start):
                continue
            if found >= 0:
                raise PythonFault("inner quotes can be read in several ways")
            found = start - 1
        if found < 0:
            raise PythonFault("string never closed")
        return found


def _is_doubtful(body: str, quote: str) -> Turns[bool]:
    """Whether the string may have ended before; code inside it has both its quotes."""
    if (yield from may_be_torn(body, quote)):
        return True
    return body.count(quote) % 2 == 1 and _KEYWORD_INSIDE.search(body) is not None


def _paired(text: str) -> str:
    """The text with the surrogates that were written one by one as the characters they are."""
    if not has_surrogates(text):
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise PythonFault("surrogate") from None


_STOP = re.compile(r"""[()\[\]{}"'#]""")
_STRING_STOPS = {quote: re.compile(rf"[\\{quote}]") for quote in "\"'"}


def bracketed(cur: Cursor, sink: Callable[[str], object]) -> Steps:
    """Hand text to `sink` up to and with the bracket that closes the next one; False when the answer ends first."""
    expected: list[str] = []
    while True:
        if not (yield from cur.until_match(_STOP, 0, sink)):
            return False
        char = cur.text[cur.pos]
        if char == "#":
            yield from cur.until("\n", sink)
            continue
        if char in "\"'":
            if not (yield from _long_string(cur, char, sink)):
                return False
            continue
        sink(char)
        cur.pos += 1
        if char in _CLOSERS:
            expected.append(_CLOSERS[char])
            if len(expected) > _MAX_DEPTH:
                raise Reject("nested_too_deep", blind=True)
        elif not expected or expected.pop() != char:
            raise Reject("brackets do not match")
        elif not expected:
            return True


def _long_string(cur: Cursor, quote: str, sink: Callable[[str], object]) -> Steps:
    """One string with its quotes; False when the answer ends inside it."""
    closer = quote * 3 if (yield from cur.starts(quote * 3)) else quote
    sink(closer)
    cur.pos += len(closer)
    while True:
        if not (yield from cur.until_match(_STRING_STOPS[quote], 0, sink)):
            return False
        if cur.text[cur.pos] == "\\":
            pair = yield from cur.peek(2)
            sink(pair)
            cur.pos += len(pair)
        elif (yield from cur.lit(closer)):
            sink(closer)
            return True
        else:
            sink(quote)
            cur.pos += 1
