"""What a dialect is: one row of the table, and what its grammar has to work with.

`parse` is a generator over a `Cursor` that stands on the opener. It yields a `Draft` for each call that is complete,
returns when its markup ends, and raises `Reject` when the text is no call. Whatever it consumed since the last draft
belongs to the next one, or is dropped markup when it returns.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from copy import copy
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Literal, Protocol

from attrs import define, evolve, frozen

from gateway.core.tools import Tool, ToolSet
from strategies.base import Options
from strategies.grammar.lexicon import line_of
from strategies.grammar.provenance import Provenance
from strategies.schema.known_tools import known
from strategies.schema.names import resolve
from strategies.schema.tool_schema import ToolSchema, schema_of
from strategies.text.cursor import Cursor
from strategies.text.dumping import dumps
from strategies.text.turns import Turns

__all__ = ["TAGS", "Arguments", "Context", "Dialect", "Draft", "Fence", "Level", "Opening", "Parse", "Renderer"]

TAGS = "generic_xml"
"""The dialect of one tag per tool."""

Level = Literal["A", "B", "C", "D", "E"]
"""Evidence: A special tokens, B strict inner grammar, C tag per tool, D bare data, E shell and patches."""


class Renderer(Protocol):
    """One dialect, written: the tools for the prompt, calls and results for the history."""

    @property
    def id(self) -> str: ...

    @property
    def result_separator(self) -> str:
        """What stands between two results in one message."""
        ...

    def tool_section(self, tools: Sequence[Tool], *, parallel: bool) -> str:
        """The rules, the tools and the form of a call."""
        ...

    def call(self, name: str, arguments: Mapping[str, Any], tool: Tool | None) -> str:
        """One call in the dialect's exact syntax; raises `CannotExpress`."""
        ...

    def calls(self, rendered: Sequence[str]) -> str:
        """Several calls of one message, joined."""
        ...

    def result(self, name: str, call_id: str, content: str, fmt: str) -> str:
        """One tool result as the model is shown it; `fmt` is `bracket` or `plain`."""
        ...


@frozen(kw_only=True)
class Draft:
    """A call as the grammar read it; the judge decides whether it is one."""

    name: str
    tool: Tool | None
    """The tool it means; None for a name that nobody declared (special-token dialects pass it on)."""
    arguments: dict[str, Any]
    form: str
    """Which base confidence applies (`strategies.grammar.confidence.FORMS`)."""
    mends: tuple[str, ...] = ()
    fault: str | None = None
    """The grammar itself found that a value cannot be right."""
    call_id: str | None = None
    end: int | None = None
    """Where the call ends, as an offset; None means here. What was read beyond it is given back."""


@frozen(kw_only=True)
class Fence:
    """The code fence that an opener stands in."""

    mark: str
    size: int
    info: str


_LINE_ENDS = "\n>]"
"""What may stand at the end of a line: a line break, or the last character of what ends reasoning."""


@define(kw_only=True, eq=False)
class Opening:
    """Where an opener stands: the text before it, shortened, and the opener itself."""

    marker: str
    before: str
    """The last characters of the text before it, at most `BEFORE` of them."""
    hint: object = None
    """What the dialect's last pass wants this one to know."""
    fence: Fence | None = None
    """The fence whose sole content may be calls; None outside of one."""
    earlier: frozenset[str] = frozenset()
    """The info strings of the fences before this one, as far as a dialect reads whole bodies of such fences."""
    behind_example: bool = False
    """A call stands before it that was announced as an example, and no more than a little word between."""
    behind_shown: bool = False
    """A call in bare data stands before it that is text, because words go on behind it."""

    @cached_property
    def line(self) -> str:
        """What stands before the opener on its own line; the line that opens a fence is none of its body."""
        line = line_of(self.before)
        if self.fence is not None and line.lstrip().startswith(self.fence.mark * self.fence.size):
            return ""
        return line

    @property
    def lead(self) -> str:
        """The text before the fence, or before the opener where there is none."""
        return self.before if self.fence is None else self.before.rstrip().rpartition("\n")[0]

    @property
    def starts_line(self) -> bool:
        # Asked for every marker: these few characters spare nearly all of them the look for the start of the line.
        near = self.before[-4:].rstrip(" ")
        if near and near[-1] not in _LINE_ENDS and self.fence is None:
            return False  # a word stands there, as it does before most of what is asked about
        # From four blanks on it is code: https://spec.commonmark.org/0.31.2/#indented-code-blocks
        return not self.line.strip(" ") and len(self.line) <= 3

    def again(self, hint: object) -> "Opening":
        """The same place, for another pass."""
        return evolve(self, hint=hint)

    @property
    def starts_message(self) -> bool:
        return not self.before.strip()


def _every(_name: str) -> bool:
    return True


class Arguments:
    """Receives a call's arguments as the grammar finds them; passes them on at once in `incremental` mode.

    `begin` is the commit point. Text pieces flow only for parameters that may be strings; every other value is given
    whole. The joined JSON of all pieces equals the dump of the collected arguments.
    """

    __slots__ = ("_emit", "_first", "_muted", "live", "takes")

    def __init__(self, emit: Callable[[str, str | None], bool] | None) -> None:
        self._emit = emit
        self._first = True
        self._muted = False
        self.live = False
        """The call has begun for the client: pieces are shown as they are given."""
        self.takes: Callable[[str], bool] = _every
        """Whether a member of this name is passed on."""

    def begin(self, name: str) -> None:
        """The commit point: from here on this can only become a call of `name`, or a visible failure."""
        # Once only: to the client a call begins once, whatever the grammar goes over again.
        if self._emit is not None and not self.live:
            self.live = self._emit(name, None)

    def piece(self, json: str) -> None:
        """The next characters of the argument JSON."""
        if self.live and self._emit is not None and not self._muted:
            self._emit("", json)

    def key(self, name: str) -> None:
        """The opening of one member: `{"key":` or `,"key":`."""
        # A member that the tool does not take is left out from its key on: nothing shown can be taken back.
        self._muted = not self.takes(name)
        if not self._muted:
            self.piece(("{" if self._first else ",") + dumps(name) + ":")
            self._first = False

    def close(self) -> None:
        """The end of the argument object."""
        self._muted = False
        self.piece("{}" if self._first else "}")

    def restart(self) -> None:
        """Ready for the next call of the same candidate."""
        self._first = True
        self._muted = False
        self.live = False
        self.takes = _every


class Context:
    """What the grammars of one request know: its tools, their schemas, the settings, the prompted dialect."""

    __slots__ = (
        "_flowing",
        "_provenance",
        "_schemas",
        "family",
        "model",
        "options",
        "prompted",
        "restricted",
        "takes_unfit",
        "tools",
    )

    def __init__(
        self,
        *,
        tools: ToolSet,
        options: Options,
        model: str = "",
        prompted: str | None = None,
        restricted: bool = False,
        family: frozenset[str] = frozenset(),
        provenance: Provenance | None = None,
        flowing: frozenset[str] | None = None,
    ) -> None:
        self.tools = tools
        self.options = options
        self.model = model
        self.prompted = prompted
        self.restricted = restricted
        """`RECOVERY_TOOLS` applies: the model was not asked for this form."""
        self.family = family
        """The dialects that the model's family writes by training."""
        self.takes_unfit = False
        """The model was asked again: calls beyond doubt pass though their tools do not take them."""
        self._provenance = provenance
        self._flowing = flowing
        self._schemas: dict[str, ToolSchema] = {}

    def as_written(self) -> "Context":
        """The same for an answer that nothing better came of asking again for."""
        # A copy: this one is shared by all readers of the request.
        other = copy(self)
        other.takes_unfit = True
        return other

    def find(self, name: str) -> Tool | None:
        """The declared tool of exactly this name."""
        return self.tools.get(name)

    def resolve(self, name: str, *, aliases: bool = True) -> tuple[Tool, tuple[str, ...]] | None:
        """The declared tool this name means, and what had to be mended in it."""
        found = resolve(name, self.tools, aliases=aliases)
        return (found.tool, found.mends) if found else None

    def known(self, name: str) -> tuple[Tool, ...]:
        """Well-known tools of this name that the request did not declare, where those may be called."""
        # What the request declares wins over the list of ours: clients change the arguments of tools between versions.
        return () if name in self.tools or self.options.undeclared_tools == "text" else known(name)

    def schema(self, tool: Tool) -> ToolSchema:
        # Not kept here: the well-known ones are the same for all requests, and `schema_of` remembers them.
        if tool.known:
            return schema_of(tool)
        schema = self._schemas.get(tool.name)
        if schema is None:
            schema = self._schemas[tool.name] = schema_of(tool)
        return schema

    def flows(self, dialect: str, name: str) -> bool:
        """Whether a call may be shown while it is written: any, or only those of some tools in their own tags."""
        return self._flowing is None or (dialect == TAGS and name in self._flowing)

    @property
    def retells(self) -> bool:
        """The client reads calls in its own tags from the text itself: only those are shown while they are written."""
        return self._flowing is not None

    def is_read_by_client(self, dialect: str, name: str) -> bool:
        """Whether the client takes the call from the text, whatever is made of it here."""
        return self.retells and self.flows(dialect, name)

    def quoting(self, raw: str, name: str, arguments: Mapping[str, Any]) -> Turns[bool]:
        """Whether the call that stands in the answer as `raw` was copied from what the client sent, in turns."""
        return self._provenance is not None and (yield from self._provenance.quoting(raw, name, arguments))

    def may_recover(self, name: str) -> bool:
        globs = self.options.recovery_tools
        return not self.restricted or not globs or any(fnmatchcase(name, glob) for glob in globs)


Parse = Callable[[Cursor, Context, Opening, Arguments], Generator[Draft | None, None, None]]


def _anywhere(_context: Context, _opening: Opening) -> bool:
    return True


def _none(_context: Context) -> tuple[str, ...]:
    return ()


@frozen(kw_only=True)
class Dialect:
    """One row of the dialect table."""

    id: str
    family: str
    level: Level
    parse: Parse
    openers: Callable[[Context], tuple[str, ...]] = _none
    """The literal texts that may open a call of this dialect for this request, wherever they stand."""
    line_openers: Callable[[Context], tuple[str, ...]] = _none
    """Those that count only as the first text of a line."""
    may_open: Callable[[Context, Opening], bool] = _anywhere
    """Whether an opener at this place counts at all."""
    inline: bool = False
    """Its grammar itself says what an opener in the middle of a line of words comes to."""
    results: tuple[str, ...] = ()
    """What starts a tool result in this dialect: at a line start after a call, everything from it on is invented."""
    models: tuple[str, ...] = ()
    """Globs of the models that write this dialect by training; evidence, never a condition."""
    carriers: tuple[str, ...] = ("", "json", "xml", "tool_call", "tool_code", "tool", "tools", "function")
    """Info strings of code fences whose sole content may be a call of this dialect."""
    bodies: Callable[[Context], tuple[str, ...]] = _none
    """Info strings of code fences whose whole body this dialect reads itself; the opener is then empty."""
    renderer: "Renderer | None" = None
    example: str = ""
