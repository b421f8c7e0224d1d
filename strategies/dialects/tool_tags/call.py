"""One tag-per-tool call while it is read: what the tags around it mean, the values it has, the drafts it comes to."""

import re

from attrs import define, field

from gateway.core.tools import Tool
from strategies.dialects.tool_tags.nested_forms import adapt_forms
from strategies.grammar.closers import CALL_END, PARAMETER_END, Kind
from strategies.grammar.dialect import Context, Draft
from strategies.grammar.raw_value import Sink
from strategies.schema.names import resolve_parameter
from strategies.schema.tool_schema import Listing, ToolSchema, Value
from strategies.text.cursor import Cursor, Steps
from strategies.text.turns import Turns, whole

__all__ = [
    "CONTAINERS",
    "NOISE",
    "PARAMETER_CLOSERS",
    "PROTOTYPE_KEYS",
    "TagCall",
    "parameter_of",
    "tag_parts",
    "tools_named",
]

CONTAINERS = frozenset({"parameters", "arguments", "input", "params", "args", "properties", "tool_args", "tool_input"})
"""Tags that may stand around the parameters and mean nothing."""
PARAMETER_CLOSERS = ("</parameter>", "</param>", "</arg>", "</argument>")
_STRAY_CLOSERS = frozenset(
    {
        "</tool>",
        "</tool_call>",
        "</tool_use>",
        "</tools>",
        "</invoke>",
        "</function>",
        "</function_call>",
        "</function_calls>",
        "</action>",
        "</xml>",
    }
)
NOISE = frozenset({"</think>"})
"""What means nothing between parameters."""
_TAG_NAME = re.compile(r"<(/?)\s*([A-Za-z_][\w.:-]*)\s*(/?)>\Z")
_PARAMETER = re.compile(
    r"""<(?:parameter|param|arg|argument)(?:\s+name\s*)?\s*=\s*(["']?)([A-Za-z_][\w.:-]*)\1\s*(/?)>\Z"""
)
_NAMED_CALL = re.compile(r"<(tool|tool_call|function_call|tool_use|function)\s[^<>]{0,200}?\bname\s*=")
_OPENED = re.compile(r"<([A-Za-z_][\w.:-]*)>")
_MAX_RESOLVED = 64
PROTOTYPE_KEYS = frozenset({"__proto__", "constructor", "prototype"})
"""What no parameter is called that was not declared."""


_SOLE_ELEMENT = re.compile(r"\s*+<([\w-]{1,64})>([^<>]*+)</\1>\s*+")
_LONGEST_ELEMENT = 1 << 12


def tools_named(context: Context, name: str) -> tuple[Tool, ...]:
    """The tools that a tag of this name may mean: the declared one, else those a name like it stands for."""
    tool = context.find(name)
    if tool is not None:
        return (tool,)
    found = context.resolve(name)
    return (*((found[0],) if found else ()), *context.known(name))


def tag_parts(tag: str) -> tuple[bool, str, bool] | None:
    """Whether a plain tag closes, its name, and whether it is empty; spaces behind a `_` do not count."""
    match = _TAG_NAME.match(tag.replace("_ ", "_") if "_ " in tag else tag)
    return (bool(match[1]), match[2], bool(match[3])) if match else None


def parameter_of(tag: str) -> tuple[str, bool] | None:
    """The parameter that `<parameter=K>` or `<parameter name="K">` opens, and whether the tag is empty."""
    match = _PARAMETER.match(tag)
    return (match[2], bool(match[3])) if match else None


@define
class TagCall:
    """A call under way; as `Markup` it tells the reader of raw values what a tag means inside one."""

    tag: str
    tool: Tool
    schema: ToolSchema
    context: Context
    mends: list[str] = field(factory=list)
    values: dict[str, object] = field(factory=dict)
    texts: dict[str, list[str]] = field(factory=dict)
    last_body: str | None = None
    """The closing tag of the last value, if that was a document."""
    by_attribute: bool = False
    """The parameter under way was opened by `<parameter=K>`."""
    container: str = ""
    is_structured: bool = False
    """The parameters stand in `<args>`, to be brought to the schema when all are read."""
    last_tag: str = ""
    """What its last value ends with, if that is a tag."""
    is_closed: bool = False
    """Its closer was read with those of its last value."""
    sink: Sink | None = None
    """What takes the value under way."""
    end: int | None = None
    """Where the call ends, if that is known already."""
    stub: str = ""
    distinct: bool = False
    ends: tuple[str, ...] = field(init=False)
    name_run: re.Pattern[str] | None = None
    pair: re.Pattern[str] | None = None
    _faults: dict[str, str] = field(factory=dict)
    _resolved: dict[str, str] = field(factory=dict)
    """What names of tags came to, as long as no parameter has been added."""

    _listing: Listing = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.ends = (f"</{self.tag}>",)
        self._listing = Listing(self.schema)

    def mean(self, tool: Tool) -> None:
        """The tag turns out to mean this tool."""
        self.tool, self.schema = tool, self.context.schema(tool)
        self._listing = Listing(self.schema)
        self._resolved.clear()

    # As `Markup`

    def kind(self, tag: str, key: str) -> tuple[Kind, str]:
        if tag == f"</{key}>" or (self.by_attribute and tag in PARAMETER_CLOSERS):
            return "close", key
        parts = tag_parts(tag)
        if parts is None and tag.startswith("</"):
            return self._closer(tag, "", key)
        # Inside `<args>` any tag is the structure's own: https://github.com/RooCodeInc/Roo-Code/issues/10358
        if self.is_structured and key == "args":
            return ("call_close", "") if parts and parts[:2] == (True, self.tag) else ("other", "")
        if parts is None:
            # MiniCPM5 puts nothing around its calls, so the next one follows where a closer of this one is damaged.
            named_call = _NAMED_CALL.match(tag)
            if named_call and named_call[1] == self.tag:
                return "call_open", self.tag
            named = parameter_of(tag)
            return ("param", self.parameter(named[0])) if named else ("other", "")
        closes, name, empty = parts
        if closes:
            return self._closer(tag, name, key)
        if empty:
            return "param", self.parameter(name)
        if name == self.tag:
            return "call_open", name
        parameter = self.parameter(name)
        # Kilo opens the next call without closing the last:
        # https://github.com/Kilo-Org/kilocode/blob/b2e5191b0e50d14dc66cbf9c0f4ff0989f2bc6bd/src/core/assistant-message/AssistantMessageParser.ts
        is_other = parameter not in self.schema.properties and name in self.context.tools
        return ("next_call" if is_other else "param"), parameter

    def _closer(self, tag: str, name: str, key: str) -> tuple[Kind, str]:
        if name == key:
            return "close", key
        if name == self.tag:
            return "call_close", ""
        if tag in _STRAY_CLOSERS or (name and name == self.container):
            return "stray_close", ""
        if tag in NOISE:
            return "noise", ""
        if CALL_END.match(tag):
            return "stray_close", ""
        if PARAMETER_END.match(tag) and not self.is_parameter(name):
            return "foreign", ""
        if not self.is_parameter(name):
            return "other", ""
        return ("loose" if self.sink is not None and self.sink.is_plain else "other_close"), name

    def may_follow(self, name: str) -> bool:
        if name in self.schema.properties:
            return name not in self.texts or "array" in self.schema.prop(name).types
        return not self.schema.properties

    def declares(self, name: str) -> bool:
        return name in self.schema.properties

    def is_alien(self, name: str) -> bool:
        return bool(name) and name not in self.schema.properties and name not in self.texts

    def counts(self, name: str) -> bool:
        return name in self.schema.properties

    def next_tool(self, tag: str) -> Tool | None:
        """The tool whose call the tag opens, if it opens no parameter of this one."""
        # One with the name as an attribute is read from its own opener.
        kind, name = self.kind(tag, "") if tag_parts(tag) else ("other", "")
        if kind not in ("call_open", "next_call") or self.parameter(name) in self.schema.properties:
            return None
        return self.tool if kind == "call_open" else self.context.find(name)

    # Names and values

    def parameter(self, name: str) -> str:
        """The schema's name of a parameter written as `name`."""
        if name in self.schema.properties:
            return name
        found = self._resolved.get(name)
        if found is None:
            found = resolve_parameter(name, self.schema, self.texts)[0]
            if len(self._resolved) < _MAX_RESOLVED:
                self._resolved[name] = found
        return found

    def is_parameter(self, name: str) -> bool:
        return self.parameter(name) in self.schema.properties

    def is_closer(self, tag: str) -> bool:
        """Whether the tag closes this call; a wrong one that is taken for it costs."""
        parts = tag_parts(tag)
        if parts and parts[0] and parts[1] == self.tag:
            return True
        if tag not in _STRAY_CLOSERS and not CALL_END.match(tag):
            return False
        self.mends.append("call_closer_wrong")
        return True

    def store(self, key: str, text: str) -> None:
        """Keep a value; given again it joins a list, else the last that is not empty counts."""
        whole(self.storing(key, text))

    def storing(self, key: str, text: str) -> Turns[None]:
        """The same in turns."""
        if key in PROTOTYPE_KEYS and key not in self.schema.properties:
            self.mends.append("prototype_key")
            return
        self._resolved.clear()
        texts = self.texts.setdefault(key, [])
        prop = self.schema.prop(key)
        # `<file><path>.</path></file>`, which one tool has, for others: https://github.com/Kilo-Org/kilocode/pull/4099
        inner = None if prop.body or not prop.is_string else _SOLE_ELEMENT.fullmatch(text[:_LONGEST_ELEMENT])
        if inner is not None and self.parameter(inner[1]) == key:
            self.mends.append("element_unwrapped")
            text = inner[2].strip()
        if not texts or "array" in prop.types:
            texts.append(text)
        elif prop.body and prop.is_string:
            self._repeat_body(key, texts[0], text)
            return
        else:
            self.mends.append("parameter_repeated")
            texts[:] = [text if text.strip() else texts[0]]
        self._faults.pop(key, None)
        if fault := self._misplaced(key, text):
            self._faults[key] = fault
        if len(texts) == 1:
            found = yield from self.schema.reading(key, texts[0])
            if found.fault and key not in self.values and self.schema.leaves_out(key, texts[0]):
                self.mends.append("null_dropped")
            else:
                self._found(key, found)
        else:
            yield from self._listing.adding(key, texts)

    def _found(self, key: str, found: Value) -> None:
        self.mends += found.mends
        self.values[key] = found.value
        if found.fault:
            self._faults[key] = found.fault

    def _repeat_body(self, key: str, first: str, text: str) -> None:
        """Of two documents the first counts, unless one of them is empty: then there is no telling."""
        self.mends.append("parameter_repeated")
        # An empty one may be a slip, or the wish to empty the file: that must not be guessed.
        if bool(first.strip()) != bool(text.strip()):
            self._faults[key] = f"`{key}` is given twice, once empty"

    def _misplaced(self, key: str, text: str) -> str | None:
        """A tag that nobody knows holds a parameter of the tool: it cannot be told where that belongs."""
        if key in self.schema.properties or not self.schema.properties:
            return None
        inner = next((match[1] for match in _OPENED.finditer(text) if match[1] in self.schema.properties), None)
        return f"`{inner}` stands inside `{key}`" if inner else None

    def take(self, arguments: dict[str, object]) -> None:
        """Keep values that have their types already."""
        self.values.update(arguments)
        self.texts.update({key: [""] for key in arguments})
        self._resolved.clear()

    @property
    def is_spoilt(self) -> bool:
        return bool(self._faults)

    def drafts(self, cur: Cursor, end: int | None = None) -> Steps:
        """The calls that the values stand for: one, or one per file."""
        for key, found in (yield from cur.work(self._listing.finishing())):
            self._found(key, found)
        forms = adapt_forms(self.tool.name, self.schema, self.values)
        adapted = forms != [self.values]
        for values in forms:
            yield Draft(
                name=self.tool.name,
                tool=self.tool,
                arguments=values,
                form="tag",
                mends=tuple(self.mends),
                fault=None if adapted else next(iter(self._faults.values()), None),
                end=end,
            )
