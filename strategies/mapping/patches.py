"""Patches of GPT models: the envelope of `apply_patch`, read by an exact grammar and written from it.

    patch = "*** Begin Patch" section { section } "*** End Patch"
    section = "*** Add File: " PATH { "+" LINE }
            | "*** Delete File: " PATH
            | "*** Update File: " PATH [ "*** Move to: " PATH ] hunk { hunk }
    hunk = [ "@@" [ " " CONTEXT ] ] change { change } [ "*** End of File" ]
    change = ( " " | "-" | "+" ) LINE

Every part ends its line. The first hunk may leave its `@@` out; an empty line within a hunk is an empty line of the
file, and empty lines before a section or `@@` belong to nothing. White space behind a marker is let pass. Linear.
"""

from collections.abc import Iterator, Sequence

from attrs import define, field, frozen

__all__ = ["Add", "BadPatch", "Hunk", "Remove", "Section", "Update", "read_patch", "write_patch"]

BEGIN, END = "*** Begin Patch", "*** End Patch"
ADD, DELETE, UPDATE = "*** Add File: ", "*** Delete File: ", "*** Update File: "
MOVE, END_OF_FILE = "*** Move to: ", "*** End of File"


class BadPatch(ValueError):
    """A text that is no patch, and where it stops being one."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


@frozen
class Add:
    """A new file."""

    path: str
    lines: tuple[str, ...]


@frozen
class Remove:
    """A file that goes."""

    path: str


@frozen(kw_only=True)
class Hunk:
    """Lines that stand together, before and after; `context` is a line somewhere before them."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    context: str = ""
    at_end: bool = False


@frozen(kw_only=True)
class Update:
    """A file that changes."""

    path: str
    hunks: tuple[Hunk, ...]
    move: str | None = None


Section = Add | Remove | Update


def read_patch(text: str) -> tuple[Section, ...]:
    """The sections of a patch; raises `BadPatch`."""
    # Models that edit files of Windows write the patch's own lines with its ends, too.
    lines = text.replace("\r\n", "\n").strip().split("\n")
    if lines[0].rstrip() != BEGIN:
        raise BadPatch(f"the first line must be `{BEGIN}`", 1)
    if len(lines) < 2 or lines[-1].strip() != END:
        raise BadPatch(f"the last line must be `{END}`", len(lines))
    reading = _Reading(lines, end=len(lines) - 1)
    sections = []
    while (section := reading.section()) is not None:
        sections.append(section)
    if not sections:
        raise BadPatch("the patch changes no file", 2)
    return tuple(sections)


@define
class _Reading:
    lines: list[str]
    end: int
    _at: int = field(default=1, init=False)

    def section(self) -> Section | None:
        """The next section."""
        self._skip_empty()
        if self._at >= self.end:
            return None
        line = self.lines[self._at].rstrip()
        if line.startswith(ADD):
            return Add(self._path(ADD), tuple(self._added()))
        if line.startswith(DELETE):
            return Remove(self._path(DELETE))
        if line.startswith(UPDATE):
            return self._update()
        raise self._bad(f"a file's part must begin with `{ADD.strip()}`, `{UPDATE.strip()}` or `{DELETE.strip()}`")

    def _path(self, marker: str) -> str:
        path = self.lines[self._at][len(marker) :].strip()
        if not path:
            raise self._bad("the path is missing")
        self._at += 1
        return path

    def _added(self) -> Iterator[str]:
        while self._at < self.end and self.lines[self._at].startswith("+"):
            yield self.lines[self._at][1:]
            self._at += 1

    def _update(self) -> Update:
        path = self._path(UPDATE)
        move = self._path(MOVE) if self._at < self.end and self.lines[self._at].startswith(MOVE) else None
        hunks: list[Hunk] = []
        while self._skip_empty() and not self.lines[self._at].startswith("*** "):
            hunks.append(self._hunk(first=not hunks))
        if not hunks and move is None:
            raise self._bad(f"the part for `{path[:60]}` changes nothing")
        return Update(path=path, hunks=tuple(hunks), move=move)

    def _hunk(self, *, first: bool) -> Hunk:
        line = self.lines[self._at]
        context = ""
        if line.startswith("@@"):
            if line[2:3] not in ("", " "):
                raise self._bad("`@@` must be followed by a space and a line of the file, or by nothing")
            context = line[3:].strip()
            self._at += 1
        elif not first:
            raise self._bad("another change of the same file must begin with `@@`")
        old: list[str] = []
        new: list[str] = []
        start = self._at
        self._changes(old, new)
        if self._at == start:
            raise self._bad("a line of a change must begin with a space, `-` or `+`")
        at_end = self._at < self.end and self.lines[self._at].rstrip() == END_OF_FILE
        self._at += at_end
        return Hunk(old=tuple(old), new=tuple(new), context=context, at_end=at_end)

    def _changes(self, old: list[str], new: list[str]) -> None:
        empty = 0
        while self._at < self.end:
            # An empty line has lost the blank that says it stays:
            # https://github.com/openai/codex/blob/main/codex-rs/apply-patch/apply_patch_tool_instructions.md
            sign, rest = self.lines[self._at][:1], self.lines[self._at][1:]
            if sign and sign not in " -+":
                break
            if not sign:
                empty += 1
            else:
                old += [""] * empty + ([rest] if sign in " -" else [])
                new += [""] * empty + ([rest] if sign in " +" else [])
                empty = 0
            self._at += 1
        # Empty lines at the end of a hunk stand in front of the next part, and belong to nothing.
        self._at -= empty

    def _skip_empty(self) -> bool:
        """Past lines that belong to nothing; whether any line is left."""
        while self._at < self.end and not self.lines[self._at].strip():
            self._at += 1
        return self._at < self.end

    def _bad(self, reason: str) -> BadPatch:
        return BadPatch(reason, self._at + 1)


def write_patch(sections: Sequence[Section]) -> str:
    """The patch that says this; what stands the same at both ends of a hunk becomes its context."""
    return "\n".join((BEGIN, *(line for section in sections for line in _section(section)), END))


def _section(section: Section) -> Iterator[str]:
    match section:
        case Add(path, lines):
            yield f"{ADD}{path}"
            yield from (f"+{line}" for line in lines)
        case Remove(path):
            yield f"{DELETE}{path}"
        case Update():
            yield f"{UPDATE}{section.path}"
            if section.move is not None:
                yield f"{MOVE}{section.move}"
            for hunk in section.hunks:
                yield from _hunk(hunk)


def _hunk(hunk: Hunk) -> Iterator[str]:
    old, new = hunk.old, hunk.new
    shorter = min(len(old), len(new))
    head = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    tail = next((at for at in range(shorter - head) if old[-1 - at] != new[-1 - at]), shorter - head)
    yield f"@@ {hunk.context}".rstrip()
    yield from (f" {line}" for line in old[:head])
    yield from (f"-{line}" for line in old[head : len(old) - tail])
    yield from (f"+{line}" for line in new[head : len(new) - tail])
    yield from (f" {line}" for line in old[len(old) - tail :])
    if hunk.at_end:
        yield END_OF_FILE
