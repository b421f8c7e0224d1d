"""Where does a JSON value end? Found while it arrives, cut anywhere, without building it.

The scanner counts braces and brackets outside strings and knows strings with their escapes, nothing else: whether
what it walked over is valid JSON is for a parser to say. It never recurses, looks at each character a bounded number
of times, and refuses nesting beyond its bound, so that a parser which does recurse may safely follow it.
"""

import re

__all__ = ["JsonScanner", "JsonTooDeep"]

# Possessive: a value in the making is scanned again with each piece, and must not be backtracked into.
_QUIET = re.compile(r'(?:[^"{}\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"|\{\}|\[\])*+', re.DOTALL)
"""What can be passed in one go inside a container: plain characters, whole strings, empty containers."""
_FLAT = re.compile(r'(?:[^"{}\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+', re.DOTALL)
"""The same at the deepest level, where an empty container is one too many."""
_STRING_BODY = re.compile(r"[^\"\\]*+(?:\\.[^\"\\]*+)*+", re.DOTALL)
_OPENING, _BRACKETS = "{[", "{}[]"
_SCALAR = re.compile(r"[-+.0-9A-Za-z]*+")


class JsonTooDeep(ValueError):
    """The value nests deeper than the bound."""


class JsonScanner:
    """Finds the end of one JSON value that begins at the first character fed."""

    __slots__ = ("_depth", "_escaped", "_in_string", "_is_done", "_is_scalar", "_is_started", "_max_depth")

    def __init__(self, max_depth: int = 64) -> None:
        self._max_depth = max_depth
        self._depth = 0
        self._is_started = False
        self._is_scalar = False
        self._in_string = False
        self._escaped = False
        self._is_done = False

    @property
    def is_done(self) -> bool:
        """The end of the value was found."""
        return self._is_done

    @property
    def is_scalar(self) -> bool:
        """The value is a number or a word: only what follows it, or the end of the text, can end it."""
        return self._is_scalar

    @property
    def is_container(self) -> bool:
        """The value is an object or a list, which is still open."""
        return self._depth > 0

    @property
    def open_brackets(self) -> int | None:
        """How many braces and brackets are open; None inside a string or a word."""
        return None if self._in_string or self._is_scalar else self._depth

    def feed(self, text: str, start: int = 0) -> int:
        """The index just behind the value in `text`, or -1 when all of `text` belongs to a value still open."""
        if self._is_done:
            return start
        if start >= len(text):
            return -1
        if not self._is_started:
            start = self._begin(text, start)
        end = self._end_of_scalar(text, start) if self._is_scalar else self._end_of_value(text, start)
        self._is_done = end >= 0
        return end

    def _begin(self, text: str, start: int) -> int:
        self._is_started = True
        first = text[start]
        if first == '"':
            self._in_string = True
        elif first in _OPENING:
            self._depth = 1
            if not self._max_depth:
                raise self._too_deep()
        else:
            self._is_scalar = True
            return start
        return start + 1

    def _too_deep(self) -> JsonTooDeep:
        return JsonTooDeep(f"nested deeper than {self._max_depth}")

    def _end_of_scalar(self, text: str, start: int) -> int:
        match = _SCALAR.match(text, start)
        end = match.end() if match else start
        # `12` may go on with `3`.
        return -1 if end == len(text) else end

    def _end_of_value(self, text: str, position: int) -> int:
        size = len(text)
        while position < size:
            if self._in_string:
                position = self._leave_string(text, position)
                if not self._in_string and not self._depth:
                    return position
                continue
            char = text[position]
            # Of nested lists one bracket follows the other: to look for what is quiet between them costs the most.
            if char not in _BRACKETS:
                match = (_QUIET if self._depth < self._max_depth else _FLAT).match(text, position)
                position = match.end() if match else position
                if position == size:
                    break
                char = text[position]
            position += 1
            if char == '"':
                self._in_string = True
            elif char in _OPENING:
                self._depth += 1
                if self._depth > self._max_depth:
                    raise self._too_deep()
            else:
                self._depth -= 1
                if not self._depth:
                    return position
        return -1

    def _leave_string(self, text: str, position: int) -> int:
        if self._escaped:
            self._escaped = False
            return position + 1
        match = _STRING_BODY.match(text, position)
        position = match.end() if match else position
        if position == len(text):
            return position
        if text[position] == '"':
            self._in_string = False
        else:
            self._escaped = True
        return position + 1
