"""What a shell command consists of, as far as safety asks: its simple commands, its operators, its lines.

The text is walked once. Quotes, escapes, comments and heredocs are known; whatever else the shell's grammar has is an
operator. Nothing is expanded, and what cannot be told for certain is a fault.
"""

import re

from attrs import define, field

__all__ = ["Commands", "Heredocs", "ShellFault", "heredocs", "simple_commands"]

_HEREDOC = re.compile(r"""(?<!<)<<(-|~)?[ \t]*(['"]?)([A-Za-z_]\w*)\2""")
_FIRST = re.compile(r"[A-Za-z0-9_./+-]++(?=[ \t\n;&|<>()`]|\Z)")
_PLAIN = re.compile(r"[\w./+=:,@%*?~^!-]++")
_QUOTED = re.compile(r"""(?:[^"\\$`]|\\.|\$(?!\())*+""", re.DOTALL)
_REDIRECT = re.compile(r"[<>&|]++[ \t]*+[\w./+=:,@%~-]*+")
_MAX_DEPTH = 16


class ShellFault(ValueError):
    """The text is no command whose parts are certain."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@define
class Commands:
    """The first word of every simple command, and what else stands in the text."""

    words: list[str] = field(factory=list)
    operators: bool = False
    """There is chaining, a redirect, a substitution, or a second line."""
    lines: int = 0
    """Lines with a command; continuations and heredocs belong to theirs."""


def heredocs(line: str) -> list[tuple[str, bool, bool]]:
    """The end words of the heredocs that a line opens, whether tabs may stand before them, and whether quoted."""
    plain = _without_strings(line)
    return [(match.group(3), match.group(1) == "-", bool(match.group(2))) for match in _HEREDOC.finditer(plain)]


class Heredocs:
    """The heredocs that stand open in a text that comes in pieces; each line is looked at once."""

    __slots__ = ("_line", "_waiting", "stopped")

    def __init__(self) -> None:
        self._line: list[str] = []
        self._waiting: list[tuple[str, bool]] = []
        self.stopped = False
        """It was asked for while one stood open."""

    def add(self, text: str) -> None:
        *ended, rest = text.split("\n")
        for line in ended:
            self._line.append(line)
            self._end_line()
        if rest:
            self._line.append(rest)

    def _end_line(self) -> None:
        line = "".join(self._line).rstrip("\r")
        self._line.clear()
        if self._waiting:
            word, indented = self._waiting[0]
            if (line.lstrip("\t") if indented else line) == word:
                self._waiting.pop(0)
        elif "<<" in line:
            self._waiting = [(word, indented) for word, indented, _ in heredocs(line)]

    def stands_open(self) -> bool:
        """Whether one does, where the line ends here."""
        self._end_line()
        self.stopped = self.stopped or bool(self._waiting)
        return bool(self._waiting)


_STRINGS = re.compile(r"""(<<[-~]?[ \t]*)|'[^'\n]*+'|"(?:[^"\\\n]|\\.)*+"|(?:\A|(?<=\s))#[^\n]*+""")
_QUOTED_WORD = re.compile(r"""<<[-~]?[ \t]*['"]?[A-Za-z_]\w*['"]?""")


def _without_strings(line: str) -> str:
    """The line with strings and comments blanked, so that a heredoc in them is none."""
    out: list[str] = []
    at = 0
    while at < len(line):
        word = _QUOTED_WORD.match(line, at)
        match = word or _STRINGS.match(line, at)
        if match and match.end() > at:
            out.append(match.group() if word or match.group(1) else " " * (match.end() - at))
            at = match.end()
        else:
            out.append(line[at])
            at += 1
    return "".join(out)


def simple_commands(text: str) -> Commands:
    """The parts of a command; raises `ShellFault`."""
    return _Walk(text).walk()


class _Walk:
    """Walks the text once, with a stack of what is open: `"`, a backtick, or `)` for a substitution or subshell."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._found = Commands()
        self._open: list[str] = []
        self._expects = True
        """The next word is the first of a simple command."""
        self._line_counts = False
        self._waiting: list[tuple[str, bool, bool]] = []

    def walk(self) -> Commands:
        while self._at < len(self._text):
            if self._open and self._open[-1] == '"':
                self._in_quotes()
            else:
                self._in_command()
        if self._open or self._waiting:
            raise ShellFault("something is never closed")
        return self._found

    def _in_quotes(self) -> None:
        match = _QUOTED.match(self._text, self._at)
        self._at = match.end() if match else self._at
        if self._text.startswith('"', self._at):
            self._open.pop()
            self._at += 1
        elif self._at < len(self._text):
            self._substitution()

    def _in_command(self) -> None:
        char = self._text[self._at]
        if char in " \t":
            self._at += 1
        elif char == "\n":
            self._newline()
        elif self._text.startswith("\\\n", self._at):
            self._at += 2
        # A `#` within a word is a letter of it.
        elif char == "#" and self._text[self._at - 1 : self._at] in ("", " ", "\t", "\n", ";"):
            end = self._text.find("\n", self._at)
            self._at = len(self._text) if end < 0 else end
        elif char in "`$" and self._text.startswith(("`", "$("), self._at):
            self._substitution()
        elif char in "<>":
            self._redirect()
        elif char in ";&|()":
            self._operator(char)
        elif self._expects:
            self._first_word()
        else:
            self._rest_of_word(char)

    def _newline(self) -> None:
        self._at += 1
        for word, indented, quoted in self._waiting:
            self._skip_heredoc(word, indented=indented, quoted=quoted)
        self._waiting.clear()
        self._expects = True
        self._line_counts = False

    def _skip_heredoc(self, word: str, *, indented: bool, quoted: bool) -> None:
        while self._at < len(self._text):
            end = self._text.find("\n", self._at)
            end = len(self._text) if end < 0 else end
            line = self._text[self._at : end]
            self._at = min(end + 1, len(self._text))
            if (line.lstrip("\t") if indented else line) == word:
                return
            # The shell carries out what stands there in a heredoc whose end word is not quoted.
            if not quoted and ("$(" in line or "`" in line):
                raise ShellFault("substitution in a heredoc")
        raise ShellFault("heredoc never ends")

    def _redirect(self) -> None:
        match = _HEREDOC.match(self._text, self._at)
        if match:
            self._waiting.append((match.group(3), match.group(1) == "-", bool(match.group(2))))
            self._at = match.end()
            return
        self._found.operators = True
        if self._text.startswith(("<(", ">("), self._at):
            self._at += 2
            self._push(")")
            return
        match = _REDIRECT.match(self._text, self._at)
        self._at = match.end() if match else self._at + 1

    def _operator(self, char: str) -> None:
        self._found.operators = True
        self._at += 1
        if char == "(":
            self._push(")")
        elif char == ")":
            self._pop(")")
        else:
            self._expects = True

    def _substitution(self) -> None:
        self._found.operators = True
        if self._text.startswith("$(", self._at):
            self._at += 2
            self._push(")")
            return
        self._at += 1
        if self._open and self._open[-1] == "`":
            self._pop("`")
        else:
            self._push("`")

    def _push(self, closer: str) -> None:
        # A backtick closes the one before it: without an escape they cannot nest.
        if len(self._open) >= _MAX_DEPTH or (closer in self._open and closer == "`"):
            raise ShellFault("nested too deep")
        self._open.append(closer)
        self._expects = True

    def _pop(self, closer: str) -> None:
        if not self._open or self._open.pop() != closer:
            raise ShellFault("brackets do not match")
        self._expects = False

    def _first_word(self) -> None:
        """The word that says what runs: only where it is written out."""
        match = _FIRST.match(self._text, self._at)
        if match is None:
            raise ShellFault("the command is not written out")
        self._found.words.append(match.group())
        self._at = match.end()
        self._expects = False
        if not self._line_counts:
            self._line_counts = True
            self._found.lines += 1
            self._found.operators |= self._found.lines > 1

    def _rest_of_word(self, char: str) -> None:
        if char == '"':
            self._open.append(char)
            self._at += 1
        elif char == "'":
            end = self._text.find("'", self._at + 1)
            if end < 0:
                raise ShellFault("quote never closed")
            self._at = end + 1
        elif char == "\\":
            self._at += 2
        # What stands between such quotes has escapes of its own, and may be any command.
        elif char == "$" and self._text.startswith("$'", self._at):
            raise ShellFault("quoting of a special kind")
        else:
            match = _PLAIN.match(self._text, self._at)
            self._at = match.end() if match else self._at + 1
