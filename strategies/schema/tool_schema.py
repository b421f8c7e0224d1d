"""What a tool's declared schema says about its arguments: read, convert, check them.

The facts come from `document`, the values from `values`; this module is what dialects and strategies use.
"""

import re
from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from weakref import KeyedRef

from attrs import frozen

from gateway.core.tools import Tool
from strategies.schema.document import BODY_PARAMETERS, Document, Prop, Schema, branches, has_type, required
from strategies.schema.values import Value, Walk, from_markup, judging, reading, reading_markup, unique
from strategies.text.strict_json import loading_strict
from strategies.text.tolerant_json import JsonFault, parsing
from strategies.text.turns import LONG, TURN, Turns, whole

__all__ = [
    "BODY_PARAMETERS",
    "WRAPPERS",
    "Adapted",
    "Listing",
    "Prop",
    "ToolSchema",
    "Value",
    "folded",
    "from_markup",
    "schema_of",
]

_SEPARATORS = re.compile(r"[-_ ]++")
WRAPPERS = frozenset({"arguments", "args", "input", "parameters", "params", "properties"})
"""Members that only say that they hold the arguments."""
_BARE = frozenset({"code", "command", "input", "query"})
_PROTOTYPE_KEYS = frozenset({"__proto__", "constructor", "prototype"})


@frozen
class Adapted:
    """Arguments brought to their types as far as that is certain."""

    arguments: dict[str, Any]
    mends: tuple[str, ...] = ()


def _unwrapped(schema: Schema) -> Schema:
    """The schema inside an object that one widespread library wraps around it, where nothing stands beside it."""
    # The AI SDK's own object, where a program has sent it as it is:
    # https://ai-sdk.dev/docs/reference/ai-sdk-core/json-schema
    inner = schema.get("jsonSchema")
    return inner if isinstance(inner, Mapping) and not schema.get("properties") else schema


def folded(name: str) -> str:
    """The name without case and separators, which models mix up."""
    return _SEPARATORS.sub("", name).casefold()


class ToolSchema:
    """The parameters of one tool: reading, converting and checking their values."""

    __slots__ = ("_body_keys", "_declared", "_properties", "_spelt", "_views", "document", "name", "required", "root")

    def __init__(self, tool: Tool) -> None:
        self.name = tool.name
        self.root: Schema = _unwrapped(tool.parameters)
        self.document = Document(self.root)
        view = self.document.view(self.root)
        self._views = (view, *map(self.document.view, branches(view)))
        self.required: frozenset[str] = frozenset(required(view))
        self._declared: Mapping[str, Any] = self.document.every_property(view)
        # Of a hundred tools that are offered one or two are called: no more is made of a schema than is asked for.
        self._properties: Mapping[str, Prop] | None = None
        self._body_keys: tuple[str, ...] | None = None
        self._spelt: dict[str, list[str]] | None = None

    @property
    def properties(self) -> Mapping[str, Prop]:
        """The declared parameters."""
        if self._properties is None:
            prop = self.document.prop
            self._properties = MappingProxyType({name: prop(name, schema) for name, schema in self._declared.items()})
        return self._properties

    @property
    def body_keys(self) -> tuple[str, ...]:
        """Those that hold code or documents."""
        if self._body_keys is None:
            self._body_keys = tuple(name for name, prop in self.properties.items() if prop.body and prop.is_string)
        return self._body_keys

    @property
    def spelt(self) -> Mapping[str, Sequence[str]]:
        """The parameters by their names without case and separators."""
        if self._spelt is None:
            self._spelt = {}
            for name in self._declared:
                self._spelt.setdefault(folded(name), []).append(name)
        return self._spelt

    @property
    def view(self) -> Schema:
        """The whole schema with its reference followed and what `allOf` adds merged in."""
        return self._views[0]

    def prop(self, name: str) -> Prop:
        """The parameter of this name; an undeclared one is a string unless the schema says otherwise."""
        declared = self._declared
        return self.document.prop(name, declared[name] if name in declared else self._member(name))

    def declares(self, name: str) -> bool:
        """Whether the schema names this parameter, itself or by a pattern."""
        if name in self._declared:
            return True
        return any(self.document.patterned(view, name) not in (None, False) for view in self._views)

    def takes(self, name: str) -> bool:
        """Whether a parameter of this name may be given; a schema that says nothing of others takes them."""
        return name in self._declared or self._member(name) is not False

    def _member(self, name: str) -> Any:
        """What the schema says of a parameter that it does not name; alternatives rule out what none of them takes."""
        root, *alternatives = self._views
        found = self.document.member(root, name)
        if found is not None or not alternatives:
            return found
        others = [self.document.member(view, name) for view in alternatives]
        return next((other for other in others if other is not False), False)

    def from_text(self, name: str, text: str) -> Value:
        """One parameter's raw text as the value its type asks for."""
        # Asked for each parameter of each call: for most the text is the value.
        prop = self.prop(name)
        if prop.flows and (text in prop.enum if prop.enum is not None else True) and not branches(prop.schema):
            return Value(text)  # any text fits, or one of those that are named, and is the value
        return whole(self.reading(name, text))

    def reading(self, name: str, text: str) -> Turns[Value]:
        """The same in turns."""
        prop = self.prop(name)
        found = yield from reading(prop, text)
        if len(text) > LONG:
            yield
        return (yield from judging(prop, found, text))

    def reading_told(self, name: str, text: str, *, is_text: bool) -> Turns[Value | None]:
        """A raw text whose kind was written beside it, text or JSON; `None` where the schema rules that kind out."""
        prop = self.prop(name)
        # DeepSeek writes beside each parameter whether it is a string.
        if is_text:
            if not prop.is_string:
                return None
            found = (yield from reading(prop, text)).value
            return Value(found if isinstance(found, str) else text)
        try:
            value = yield from loading_strict(text.strip())
        except JsonFault:
            return None
        types = prop.document.types(prop.schema)
        adapted = yield from self.adapting({name: value})
        found = adapted.arguments.get(name, value)
        if types and not has_type(found if "number_as_text" in adapted.mends else value, types):
            return None
        return Value(found, adapted.mends) if name in adapted.arguments else None

    def from_texts(self, name: str, texts: Sequence[str]) -> Value:
        """The value of a parameter given several times, one item of its array each time."""
        prop = self.prop(name)
        if "array" not in prop.types:
            return Value("\n".join(texts), (), f"`{name}` is given {len(texts)} times")
        listing = Listing(self)
        whole(listing.adding(name, texts))
        return next(value for _, value in whole(listing.finishing()))

    def reading_tags(self, text: str) -> Turns[Adapted | None]:
        """All arguments as child tags; `None` if the text is no such markup."""
        found = yield from reading_markup(self.document.prop("", self.root), text)
        return Adapted(found.value, found.mends) if found is not None and isinstance(found.value, dict) else None

    def from_json(self, arguments: Mapping[str, Any]) -> Adapted:
        """Arguments with text turned into what the schema asks for where it excludes text, and numbers into text.

        An optional argument that is null against its type is left out.
        """
        return whole(self.adapting(arguments))

    def adapting(self, arguments: Mapping[str, Any]) -> Turns[Adapted]:
        """The same in turns."""
        mends: list[str] = []
        work = Walk(self.document, mends)
        kept: dict[str, Any] = {}
        for count, (key, value) in enumerate(arguments.items(), 1):
            if not count % TURN:
                yield
            # Clients in JavaScript merge arguments into objects: https://cwe.mitre.org/data/definitions/1321.html
            if key in _PROTOTYPE_KEYS and key not in self.properties:
                mends.append("prototype_key")
            elif value is None and self._is_spare(key):
                mends.append("null_dropped")
            else:
                kept[key] = yield from work.adapt(value, self.prop(key).schema, 1)
        return Adapted(kept, unique(mends))

    def _is_spare(self, key: str) -> bool:
        """An optional parameter that is given as null but cannot be null: it was meant to be absent."""
        prop = self.properties.get(key)
        if prop is None or key in self.required:
            return False
        types = self.document.types(prop.schema)
        return bool(types) and "null" not in types

    def leaves_out(self, name: str, text: str) -> bool:
        """Whether a text that is no value of an optional parameter says that it has none."""
        prop = self.properties.get(name)
        if prop is None or prop.is_string or not self._is_spare(name):
            return False
        word = text.strip().lower()
        # Nothing may also be an empty list, or a flag that is set: of a number it is no value at all.
        return word in ("null", "none", "undefined") or (not word and prop.types <= {"integer", "number"})

    def fill_missing(self, arguments: Mapping[str, Any]) -> Adapted:
        """Arguments with the default of each required one that is missing, or `null` where it may be null."""
        # Strict schemas of OpenAI require every parameter and let those be null that are not needed; models leave them
        # out. Its Agents SDK makes such schemas of Python's defaults, which stay where they were:
        # https://github.com/openai/openai-agents-python/blob/main/src/agents/strict_schema.py
        filled = dict(arguments)
        mends: list[str] = []
        for name, prop in self.properties.items():
            if name not in self.required or name in filled:
                continue
            # Only what the schema says itself: anything else would be a value that nobody gave.
            if "default" in prop.schema:
                filled[name] = prop.schema["default"]
                mends.append("default_filled")
            elif "null" in prop.types:
                filled[name] = None
                mends.append("null_filled")
        return Adapted(filled, unique(mends) if mends else ())

    def lacks(self, given: Container[str]) -> bool:
        """Whether anything required is missing that has no default and may not be null."""
        return any(name not in given and not self._is_known(self.prop(name)) for name in self.required)

    def _is_known(self, prop: Prop) -> bool:
        """Whether the schema says what a required parameter is that was left out."""
        return "default" in prop.schema or "null" in prop.types

    def open_container(self, value: Any) -> Adapted | None:
        """The arguments inside what stood where they belong: nothing, an object, its JSON as a string, a wrapper.

        `None` when there is no telling. The values themselves are left to `from_json`.
        """
        return whole(self.opening(value))

    def opening(self, value: Any) -> Turns[Adapted | None]:
        """The same in turns."""
        # Models leave arguments out, or write null for none: https://github.com/vllm-project/vllm/issues/35948
        if value is None:
            return Adapted({})
        if isinstance(value, str):
            return (yield from self._from_string(value))
        return self._unwrapped(value, ()) if isinstance(value, dict) else None

    def check(self, arguments: Mapping[str, Any]) -> str | None:
        """Why these arguments are not a call of this tool, in words; `None` if they are."""
        return whole(self.checking(arguments))

    def checking(self, arguments: Mapping[str, Any]) -> Turns[str | None]:
        """The same in turns."""
        return (yield from Walk(self.document, []).faulting(dict(arguments), self.root, "", 0))

    def _from_string(self, text: str) -> Turns[Adapted | None]:
        known = tuple(self.properties)
        try:
            parsed = yield from parsing(text, closed=True, body_keys=self.body_keys, known_keys=known)
        except JsonFault:
            return self._bare(text)
        if not text[parsed.end :].strip():
            if isinstance(parsed.value, dict):
                return self._unwrapped(parsed.value, ("stringified", *parsed.steps))
            # In a string as out of it, null says that there are none.
            if parsed.value is None:
                return Adapted({}, ("stringified", *parsed.steps))
        return self._bare(text)

    def _bare(self, text: str) -> Adapted | None:
        """A text alone is the one required string of a tool that takes a command or a query."""
        # What begins as JSON is broken JSON, and to run it as a command would be worse than to say so.
        if len(self.required) != 1 or text.lstrip()[:1] in ("", "{", "["):
            return None
        (name,) = self.required
        return Adapted({name: text}, ("bare_argument",)) if name in _BARE and self.prop(name).is_string else None

    def _unwrapped(self, arguments: dict[str, Any], mends: tuple[str, ...]) -> Adapted:
        if len(arguments) == 1:
            ((key, inner),) = arguments.items()
            # Templates show the arguments in a member of that name, and models repeat it inside of itself:
            # https://github.com/openclaw/openclaw/issues/40425
            if key in WRAPPERS and key not in self.properties and isinstance(inner, dict):
                if all(name in self.properties for name in inner):
                    return Adapted(inner, (*mends, "wrapped"))
        return Adapted(arguments, mends)


_known: dict[int, tuple[ToolSchema, KeyedRef[int, Tool]]] = {}
"""By the identity of tools that live."""


def _gone(tool: KeyedRef[int, Tool]) -> None:
    # Ids are given again once an object is gone, so the entry has to go with it.
    _known.pop(tool.key, None)


def schema_of(tool: Tool) -> ToolSchema:
    """The schema of this tool, made once; it is kept as long as the tool is."""
    found = _known.get(id(tool))
    if found is None:
        found = _known[id(tool)] = ToolSchema(tool), KeyedRef(tool, _gone, id(tool))
    return found[0]


class Listing:
    """Parameters of arrays that are given several times, one item each time; each text is read once."""

    __slots__ = ("_items", "_schema", "_texts")

    def __init__(self, schema: ToolSchema) -> None:
        self._schema = schema
        self._items: dict[str, list[Value]] = {}
        self._texts: dict[str, Sequence[str]] = {}

    def adding(self, name: str, texts: Sequence[str]) -> Turns[None]:
        """All texts of the parameter so far."""
        prop = self._schema.prop(name)
        items = self._items.setdefault(name, [])
        self._texts[name] = texts
        # Each text is read once, however often one more comes: two thousand of them took seconds.
        for index in range(len(items), len(texts)):
            text = texts[index] if prop.is_string else texts[index].strip()
            items.append((yield from reading(prop.item(index), text)))

    def finishing(self) -> Turns[list[tuple[str, Value]]]:
        """Each parameter with its value."""
        given: list[tuple[str, Value]] = []
        for name, items in self._items.items():
            mends = [mend for item in items for mend in item.mends]
            found = Value([item.value for item in items], unique(mends))
            text = "\n".join(self._texts[name])
            given.append((name, (yield from judging(self._schema.prop(name), found, text))))
        return given
