r"""The patterns of a schema, matched in linear time: a stranger's regular expression never backtracks here.

    pattern = branch { "|" branch }
    branch  = { ( "(" [ "?:" ] pattern ")" | set | "." | escape | character | "^" | "$" ) [ repeat ] }
    repeat  = ( "*" | "+" | "?" | "{" n [ "," [ m ] ] "}" ) [ "?" ]

The dialect is ECMA's as far as names of arguments need it; a pattern with anything else (references, assertions,
properties of Unicode) is not understood, and says nothing. The states of all readings are followed at once, and each
step is remembered, so a text costs its length. Bounds: the size of a pattern, of its automaton and of the text.

It is our own and not RE2 (https://github.com/google/re2), which is as safe and not much faster here (1.5 us for 2.4 a
name, 3.5 for 12 a pattern): RE2's dialect is Perl's. Of the cases here it answered twelve otherwise: it knows no
`\u0062`, reads `[]` and `\b` in a set in another way, and its white space is narrower, while patterns that mean
something else to a script (`a{`, `(?<n>a)`, `\p{L}`) were read as if they did not.
"""

from functools import lru_cache

from attrs import define, field, frozen

__all__ = ["Pattern", "pattern_of"]

_MAX_SOURCE = 256
_MAX_STATES = 256
_MAX_TEXT = 128
_MAX_NESTING = 24
_MAX_REPEATS = 64
_MAX_REMEMBERED = 4096

Ranges = tuple[tuple[int, int], ...]

_DIGITS: Ranges = ((48, 57),)
_WORDS: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACES: Ranges = (
    *((9, 13), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029)),
    *((0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)),
)
_LINE_ENDS: Ranges = ((10, 10), (13, 13), (0x2028, 0x2029))
_CLASSES = {"d": _DIGITS, "w": _WORDS, "s": _SPACES}
_CONTROLS = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "0": 0}
_HEX = frozenset("0123456789abcdefABCDEF")
_COUNT = frozenset("0123456789")
_TOP = 0x10FFFF


class _Unknown(Exception):
    """The pattern holds what is not understood here."""


def _inverse(ranges: Ranges) -> Ranges:
    found: list[tuple[int, int]] = []
    start = 0
    for low, high in sorted(ranges):
        if low > start:
            found.append((start, low - 1))
        start = max(start, high + 1)
    return (*found, (start, _TOP)) if start <= _TOP else tuple(found)


@frozen
class _State:
    """Takes a character in `ranges` to the next state; without ranges it is a fork, or an edge of the text."""

    ranges: Ranges | None = None
    edge: str = ""
    out: tuple[int, ...] = ()


@define
class _Builder:
    """Reads a pattern into parts; a part builds its states in front of the state that is behind it."""

    source: str
    at: int = 0
    states: list[_State] = field(factory=lambda: [_State()])

    def add(self, state: _State) -> int:
        if len(self.states) >= _MAX_STATES:
            raise _Unknown
        self.states.append(state)
        return len(self.states) - 1

    def alternatives(self, depth: int) -> "_Part":
        if depth > _MAX_NESTING:
            raise _Unknown
        found = [self._branch(depth)]
        while self._takes("|"):
            found.append(self._branch(depth))
        return found[0] if len(found) == 1 else _Either(tuple(found))

    def _branch(self, depth: int) -> "_Part":
        found: list[_Part] = []
        while self.at < len(self.source) and self.source[self.at] not in "|)":
            found.append(self._repeated(self._atom(depth)))
        return _Row(tuple(found))

    def _takes(self, sign: str) -> bool:
        if self.source.startswith(sign, self.at):
            self.at += len(sign)
            return True
        return False

    def _next(self) -> str:
        if self.at >= len(self.source):
            raise _Unknown
        self.at += 1
        return self.source[self.at - 1]

    def _atom(self, depth: int) -> "_Part":
        sign = self._next()
        if sign == "(":
            if self._takes("?") and not self._takes(":"):
                raise _Unknown
            inner = self.alternatives(depth + 1)
            if not self._takes(")"):
                raise _Unknown
            return inner
        if sign in "^$":
            return _Edge(sign)
        if sign == ".":
            return _Set(_inverse(_LINE_ENDS))
        if sign == "[":
            return _Set(self._set())
        if sign == "\\":
            return _Set(self._escape())
        # As ECMA's strict grammar has it; scripts in a browser would take a lone brace as itself.
        if sign in "*+?{}":
            raise _Unknown
        return _Set(((ord(sign), ord(sign)),))

    def _escape(self) -> Ranges:
        sign = self._next()
        if sign.lower() in _CLASSES:
            ranges = _CLASSES[sign.lower()]
            return ranges if sign.islower() else _inverse(ranges)
        if sign in "xu":
            code = self._code(2 if sign == "x" else 4)
        elif sign in _CONTROLS:
            code = _CONTROLS[sign]
        elif sign.isalnum():
            raise _Unknown
        else:
            code = ord(sign)
        return ((code, code),)

    def _code(self, size: int) -> int:
        digits = self.source[self.at : self.at + size]
        if len(digits) != size or not _HEX.issuperset(digits):
            raise _Unknown
        self.at += size
        return int(digits, 16)

    def _set(self) -> Ranges:
        negated = self._takes("^")
        found: list[tuple[int, int]] = []
        while not self._takes("]"):
            low = self._member()
            if len(low) == 1 and low[0][0] == low[0][1] and self._is_range():
                self.at += 1
                high = self._member()
                if len(high) != 1 or high[0][0] != high[0][1] or high[0][0] < low[0][0]:
                    raise _Unknown
                low = ((low[0][0], high[0][0]),)
            found += low
        return _inverse(tuple(found)) if negated else tuple(found)

    def _is_range(self) -> bool:
        return self.source.startswith("-", self.at) and self.source[self.at + 1 : self.at + 2] not in ("]", "")

    def _member(self) -> Ranges:
        sign = self._next()
        if sign != "\\":
            return ((ord(sign), ord(sign)),)
        # In a set it is the backspace, elsewhere the edge of a word.
        if self._takes("b"):
            return ((8, 8),)
        return self._escape()

    def _repeated(self, part: "_Part") -> "_Part":
        if self._takes("*"):
            least, most = 0, None
        elif self._takes("+"):
            least, most = 1, None
        elif self._takes("?"):
            least, most = 0, 1
        elif self._takes("{"):
            least, most = self._counts()
        else:
            return part
        # A lazy repeat finds another match, but none more or fewer.
        self._takes("?")
        return _Repeat(part, least, most)

    def _counts(self) -> tuple[int, int | None]:
        least = self._count()
        most: int | None = least
        if self._takes(","):
            most = None if self.source.startswith("}", self.at) else self._count()
        if not self._takes("}") or (most is not None and most < least):
            raise _Unknown
        return least, most

    def _count(self) -> int:
        start = self.at
        while self.at < len(self.source) and self.source[self.at] in _COUNT:
            self.at += 1
        digits = self.source[start : self.at]
        # Counts are unrolled into states, and of very many digits Python reads none.
        if not digits or len(digits) > 3 or int(digits) > _MAX_REPEATS:
            raise _Unknown
        return int(digits)


@frozen
class _Set:
    ranges: Ranges

    def build(self, builder: _Builder, behind: int) -> int:
        return builder.add(_State(ranges=self.ranges, out=(behind,)))


@frozen
class _Edge:
    edge: str

    def build(self, builder: _Builder, behind: int) -> int:
        return builder.add(_State(edge=self.edge, out=(behind,)))


@frozen
class _Row:
    parts: "tuple[_Part, ...]"

    def build(self, builder: _Builder, behind: int) -> int:
        for part in reversed(self.parts):
            behind = part.build(builder, behind)
        return behind


@frozen
class _Either:
    parts: "tuple[_Part, ...]"

    def build(self, builder: _Builder, behind: int) -> int:
        return builder.add(_State(out=tuple(part.build(builder, behind) for part in self.parts)))


@frozen
class _Repeat:
    part: "_Part"
    least: int
    most: int | None

    def build(self, builder: _Builder, behind: int) -> int:
        if self.most is None:
            fork = builder.add(_State())
            builder.states[fork] = _State(out=(self.part.build(builder, fork), behind))
            first = fork
        else:
            first = behind
            for _ in range(self.most - self.least):
                first = builder.add(_State(out=(self.part.build(builder, first), behind)))
        for _ in range(self.least):
            first = self.part.build(builder, first)
        return first


_Part = _Set | _Edge | _Row | _Either | _Repeat
_END = 0
"""The state in which a text is found to match."""


class Pattern:
    """A pattern that is understood."""

    __slots__ = ("_first", "_states", "_steps")

    def __init__(self, states: tuple[_State, ...], first: int) -> None:
        self._states = states
        self._first = first
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, text: str, longest: int = _MAX_TEXT) -> bool | None:
        """Whether the pattern is found anywhere in the text; None where the text is too long to say."""
        if len(text) > longest:
            return None
        held = self._reached([self._first], at_start=True, at_end=not text)
        for index, sign in enumerate(text):
            # A schema's patterns are not anchored:
            # https://json-schema.org/understanding-json-schema/reference/regular_expressions
            if _END in held:
                return True
            held = self._step(held, sign, at_end=index == len(text) - 1)
        return _END in held

    def _step(self, held: frozenset[int], sign: str, *, at_end: bool) -> frozenset[int]:
        key = (held, sign + "$" if at_end else sign)
        found = self._steps.get(key)
        if found is None:
            code = ord(sign)
            moved = [out for index in held for out in self._taken(index, code)]
            # A match may begin at every character, so the first state is among those that are held.
            found = self._reached([*moved, self._first], at_start=False, at_end=at_end)
            if len(self._steps) >= _MAX_REMEMBERED:
                self._steps.clear()
            self._steps[key] = found
        return found

    def _taken(self, index: int, code: int) -> tuple[int, ...]:
        state = self._states[index]
        if state.ranges is None or not any(low <= code <= high for low, high in state.ranges):
            return ()
        return state.out

    def _reached(self, left: list[int], *, at_start: bool, at_end: bool) -> frozenset[int]:
        """The states that need a character, and the end, as far as they are reached without one."""
        seen: set[int] = set()
        while left:
            index = left.pop()
            if index in seen:
                continue
            seen.add(index)
            state = self._states[index]
            is_open = not state.edge or (at_start if state.edge == "^" else at_end)
            if state.ranges is None and is_open:
                left += state.out
        return frozenset(index for index in seen if index == _END or self._states[index].ranges is not None)


@lru_cache(maxsize=256)
def pattern_of(source: str) -> Pattern | None:
    """The pattern that a schema names; None where it is not understood."""
    if len(source) > _MAX_SOURCE:
        return None
    builder = _Builder(source)
    try:
        part = builder.alternatives(0)
        if builder.at != len(source):
            return None
        first = part.build(builder, _END)
    except _Unknown:
        return None
    return Pattern(tuple(builder.states), first)
