"""Arguments of a structured call brought to what their tool takes, where there is one reading of them only.

A ladder, tried from the smallest step on, each rung with its name. What ends before a value is whole, what would have
to be chosen or left out, and what does not fit even then has no rung, so nothing here invents a value or loses one.
Texts are bounded, and each rung costs their length.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from attrs import frozen

from strategies.schema.document import properties
from strategies.schema.names import resolve_parameter
from strategies.schema.tool_schema import WRAPPERS, Prop, ToolSchema, folded
from strategies.schema.values import read_text
from strategies.structured.judge import Declared, NoJson, arguments_in
from strategies.text.dumping import dumps
from strategies.text.strict_json import float_of
from strategies.text.tolerant_json import JsonFault, parsing
from strategies.text.turns import Turns, whole

__all__ = ["MAX_CHARS", "Mended", "mended", "mending"]

MAX_CHARS = 1 << 18
"""Longer arguments are left as they are."""
_MAX_LAYERS = 3
"""How often arguments may have been encoded, or wrapped, once too often."""
_MANY = 10_000
"""Values from which on they are not looked at one by one."""
_MAX_STARTS = 16
"""Places at which a second copy may begin."""
_CERTAIN = frozenset(
    {
        *("trailing_comma", "python_literal", "control_chars", "odd_space", "literal_newline", "comment"),
        *("smart_quotes", "unquoted_keys", "bad_escape", "surplus_braces", "missing_comma"),
    }
)
"""The rungs of mended JSON on which nothing is chosen, closed or counted out."""
_FENCE = re.compile(r"\s*+(`{3,}|~{3,})[\w+-]*+[ \t]*+\r?\n(.*?)\r?\n?[ \t]*+\1\s*+", re.DOTALL)
_OPENER = r"<parameter(?:=|\s++name=)([\"']?)([\w.-]{1,64})\1\s*+>"
_BLOCK = re.compile(rf"\s*+{_OPENER}((?:(?!</?parameter).)*+)(?:</(?:parameter|\2)>|\Z)", re.DOTALL)
_TAIL = re.compile(r"\s*+(?:</function>\s*+)?(?:</(?:tool_call|invoke|function_calls)>\s*+)?\Z")
_HEAD = re.compile(r"((?:(?!</?parameter).)*+)</parameter>", re.DOTALL)
_SPECIAL = r"<\|[\w.-]{1,40}\|>|<｜[^<>\s]{1,40}｜>|`{3}"
_FRONT = re.compile(
    rf"(?:\s*+(?:<\|constrain\|>json|{_SPECIAL}(?:json)?|\[ARGS\]|<tool_call>|<function=([\w.-]{{1,64}})>))*+"
)
_BEHIND = re.compile(rf"(?:\s*+(?:{_SPECIAL}|</(?:tool_calls?|function(?:_calls?)?|invoke|parameter|s)>|[,;]))*+\s*+")
"""What parsers leave of a call's marks in front of its arguments and behind them."""
_NONE_AT_ALL = frozenset({"None", "undefined"})
"""How Python and JavaScript say that there is nothing."""
_EMPTY = frozenset({"{}", "null", '""'})
_MAX_BEGINNINGS = 8
"""How many beginnings may stand in front of what was begun."""
_LOSSY = frozenset({"argument_left_out"})
_NAMES = frozenset({"name", "tool", "tool_name", "function", "function_name"})
_NOTHING = frozenset({"", "null", "none", "undefined"})

Read = tuple[Mapping[str, Any], tuple[str, ...]]
"""Arguments, and the steps that led to them."""


@frozen
class Mended:
    """Arguments as they were meant, and the rungs that led there."""

    arguments: str
    steps: tuple[str, ...]


def mended(text: str, tool: Declared) -> Mended | None:
    """The arguments that a text which is none certainly means; `None` where that is not certain."""
    return whole(mending(text, tool))


def mending(text: str, tool: Declared) -> Turns[Mended | None]:
    """The same in turns."""
    # Each rung costs the text's length, and there are several.
    if len(text) > MAX_CHARS:
        return None
    for read in _read(text, tool, _MAX_LAYERS):
        yield
        found = (yield from _fitting(read[0], tool)) if read is not None else None
        if read is not None and found is not None:
            return Mended(dumps(found[0]), tuple(dict.fromkeys((*read[1], *found[1]))))
    return None


def _read(text: str, tool: Declared, layers: int) -> Iterator[Read | None]:
    """The objects that a text may stand for, the likeliest first, and how each was read; `None` ends a turn."""
    try:
        told = _told(text)
    except NoJson:
        yield from _mended_json(text, tool, layers)
        return
    if isinstance(told, dict):
        yield told, ()
    elif told is None or told == []:
        # Clients take neither for an object: https://github.com/1jehuang/jcode/issues/225
        yield {}, ("no_arguments",)
    elif isinstance(told, list):
        yield from _listed(told, tool, layers)
    elif isinstance(told, str) and layers:
        # Servers encode what the model wrote, and some models write what is encoded already:
        # https://github.com/tashfeenahmed/freellmapi/pull/193
        yield from _behind("double_encoded", _read(told, tool, layers - 1))


def _told(text: str) -> Any:
    """What a text of JSON says; its numbers remember how they were written, as they may be meant as texts."""
    told = arguments_in(text)
    # Each number and object costs a call, all in one turn.
    if not isinstance(told, dict | list) or not told or text.count(",") > _MANY:
        return told
    notes: list[str] = []
    try:
        told = json.loads(
            text, object_pairs_hook=partial(_members, notes=notes), parse_float=partial(float_of, notes=notes)
        )
    except (ValueError, RecursionError) as error:  # more digits, or deeper, than Python takes
        raise NoJson(str(error)) from None
    if notes:
        raise NoJson("a number is out of range, or a name has two values")
    return told


def _members(pairs: list[tuple[str, Any]], notes: list[str]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs) and any(members[name] != value for name, value in pairs):
        notes.append("two_values")
    return members


def _listed(told: list[Any], tool: Declared, layers: int) -> Iterator[Read | None]:
    """The arguments that stand in a list alone, or the list that is the only one of them."""
    item = told[0] if len(told) == 1 else None
    if isinstance(item, dict):
        yield item, ("list_unwrapped",)
    elif isinstance(item, str) and item and layers:
        yield from _behind("list_unwrapped", _read(item, tool, layers - 1))
    known = tool.schema.properties
    if len(known) == 1:
        ((name, prop),) = known.items()
        if prop.types == {"array"}:
            yield {name: told}, ("bare_argument",)


def _behind(step: str, reads: Iterator[Read | None]) -> Iterator[Read | None]:
    """The same, found behind one more step."""
    yield from (read and (read[0], (step, *read[1])) for read in reads)


def _mended_json(text: str, tool: Declared, layers: int) -> Iterator[Read | None]:
    fenced = _FENCE.fullmatch(text)
    if fenced is not None and layers:
        yield from _behind("fence", _read(fenced[2], tool, layers - 1))
        return
    in_tags = _tagged(text, tool.schema)
    if in_tags is not None:
        yield in_tags, ("parameter_tags",)
        return
    if text.strip() in _NONE_AT_ALL:
        yield {}, ("no_arguments",)
        return
    inner = _within_marks(text, tool) if layers else None
    if inner is not None:
        yield from _behind("markup", _read(inner, tool, layers - 1))
        return
    once = _one_of_copies(text, tool) or _in_double_braces(text)
    if once is not None:
        yield once, ("copies_joined",)
        return
    if text.lstrip().startswith('{\\"') and layers:  # encoded once too often, and the quotes around it lost
        yield from _read(f'"{text.strip()}"', tool, layers)
        return
    work = parsing(text, closed=True)
    while True:
        try:
            next(work)
        except StopIteration as end:
            parsed = end.value
            break
        except JsonFault:
            return
        yield None
    # A mend that had to choose is no certain one, and a structured call is changed only where there is one reading.
    if _CERTAIN.issuperset(parsed.steps) and isinstance(parsed.value, dict) and not text[parsed.end :].strip():
        yield parsed.value, parsed.steps


def _within_marks(text: str, tool: Declared) -> str | None:
    """The arguments without the marks of a call that stand around them; `None` where none do.

    Parsers of several servers cut a call out of its marks and leave some: https://github.com/anomalyco/opencode/issues/37297
    """
    front = _FRONT.match(text)
    start = front.end() if front is not None else 0
    if front is not None and front[1] not in (None, tool.schema.name):
        return None
    end = text.rfind("}") + 1
    if end <= start or _BEHIND.fullmatch(text, end) is None:
        end = len(text)
    inner = text[start:end]
    return inner if inner.strip() and len(inner) < len(text.strip()) else None


def _in_double_braces(text: str) -> dict[str, Any] | None:
    """The object in a pair of braces too many, as templates write them."""
    text = text.strip()
    return _object(text[1:-1]) if text.startswith("{{") and text.endswith("}}") else None


def _one_of_copies(text: str, tool: Declared, beginnings: int = _MAX_BEGINNINGS) -> dict[str, Any] | None:
    """The object that stands here twice, or behind empty ones or its own beginnings.

    vLLM's last piece once brought all of the arguments again, its first an empty object:
    https://github.com/vllm-project/vllm/issues/51697 https://github.com/ogx-ai/ogx/pull/5462
    """
    text = text.strip()
    # An empty one behind is no other call where the tool takes none without arguments.
    if text.endswith("{}") and tool.fault({}) is not None and (found := _object(text[:-2])):
        return found
    at = text.find("{", 1)
    for _ in range(_MAX_STARTS):
        if at < 0:
            return None
        before, behind = text[:at].rstrip(), text[at:]
        begins = behind.startswith(before)
        if before in _EMPTY or begins or (before.endswith("}") and 2 * at >= len(text) - 2):
            found = _object(behind)
            if found is not None and (before in _EMPTY or begins or _object(before) == found):
                return found
            if begins and beginnings:
                return _one_of_copies(behind, tool, beginnings - 1)
        at = text.find("{", at + 1)
    return None


def _object(text: str) -> dict[str, Any] | None:
    try:
        told = _told(text)
    except NoJson:
        return None
    return told if isinstance(told, dict) else None


def _tagged(text: str, schema: ToolSchema) -> dict[str, Any] | None:
    """Arguments that are the tags of a parameter each; a server gave up on them."""
    found: dict[str, Any] = {}
    return found if text.lstrip().startswith("<parameter") and _take_blocks(text, 0, schema, found) else None


def _take_blocks(text: str, at: int, schema: ToolSchema, found: dict[str, Any]) -> bool:
    """Read one parameter after the other, up to the end; false where one of them is not certain."""
    while (block := _BLOCK.match(text, at)) is not None:
        name = block[2]
        if name in found or not schema.declares(name):
            return False
        value = schema.from_text(name, _laid_out(block[3]))
        if value.fault is not None:
            return False
        found[name] = value.value
        at = block.end()
    return _TAIL.match(text, at) is not None


def _laid_out(text: str) -> str:
    """Without the line break on each side that belongs to the tags."""
    text = text[1:] if text.startswith("\n") else text
    return text[:-1] if text.endswith("\n") else text


# The object is read: its names and values brought to the schema.


def _fitting(value: Mapping[str, Any], tool: Declared) -> Turns[tuple[dict[str, Any], tuple[str, ...]] | None]:
    """The arguments as the tool takes them; `None` where nobody can tell."""
    steps: tuple[str, ...] = ()
    parting = _swallowed(value, tool.schema)
    if parting is not None:
        parted, is_doubtful = parting
        # A file may hold such tags: where the whole value fits as well, nobody can tell what was meant.
        if parted is None or (is_doubtful and _typed(value, tool) is not None):
            return None
        value, steps = parted, ("parameter_tags",)
    for change in (_as_it_is, _renamed, _unwrapped, _renamed, _spelt):
        yield
        value, more = change(value, tool.schema)
        steps = (*steps, *more)
        # A step that changed nothing need not be held against the schema again.
        found = _typed(value, tool) if more or change is _as_it_is else None
        if found is not None:
            return found[0], (*steps, *found[1])
    return None


def _typed(value: Mapping[str, Any], tool: Declared) -> tuple[dict[str, Any], tuple[str, ...]] | None:
    if tool.fault(value) is None:
        return dict(value), ()
    adapted = tool.schema.from_json(value)
    filled = tool.schema.fill_missing(adapted.arguments)
    if not _LOSSY.isdisjoint(adapted.mends) or tool.fault(filled.arguments) is not None:
        return None
    return filled.arguments, (*adapted.mends, *filled.mends)


def _as_it_is(value: Mapping[str, Any], schema: ToolSchema) -> Read:
    del schema
    return value, ()


def _renamed(value: Mapping[str, Any], schema: ToolSchema) -> Read:
    """Names in another case or spelling, each of which can mean one parameter only."""
    taken = set(value) & set(schema.properties)
    out: dict[str, Any] = {}
    steps: list[str] = []
    for name, item in value.items():
        meant, mends = resolve_parameter(name, schema, taken)
        taken.add(meant)
        steps += mends
        out[meant] = item
    # Two names that mean one parameter would lose a value.
    return (out, tuple(steps)) if len(out) == len(value) else (value, ())


def _swallowed(value: Mapping[str, Any], schema: ToolSchema) -> tuple[dict[str, Any] | None, bool] | None:
    """The arguments with those that stand in the value of another, behind its closing tag; `None` where none do.

    No arguments where they cannot be told apart; and whether the value may be meant as it is: a file may hold tags.
    A parser that takes another tag for the end swallows them: https://github.com/anthropics/claude-code/issues/83088
    """
    out = dict(value)
    is_doubtful = False
    for name, item in value.items():
        end = _HEAD.match(item) if isinstance(item, str) else None
        if end is None:
            continue
        is_body = schema.prop(name).body
        more: dict[str, Any] = {}
        if _take_blocks(item, end.end(), schema, more) and not set(more) & set(out):
            head = schema.from_text(name, end[1].removesuffix("\n"))
            out |= {name: item if head.fault is not None else head.value, **more}
            is_doubtful = is_doubtful or is_body
        elif not is_body:
            return None, True
    return (out, is_doubtful) if out != value else None


def _unwrapped(value: Mapping[str, Any], schema: ToolSchema) -> Read:
    """The arguments in an object, or its JSON, that only says that they are some, or that is the call again.

    Templates show them so, and a fault that is told in these words teaches a model to wrap them once more:
    https://github.com/openclaw/openclaw/issues/142304 https://github.com/ollama/ollama/pull/17486
    """
    steps: tuple[str, ...] = ()
    for _ in range(_MAX_LAYERS):
        inner = _inner(value, schema, _MAX_LAYERS)
        if inner is None:
            break
        value, steps = inner, ("wrapped",)
    return value, steps


def _inner(value: Mapping[str, Any], schema: ToolSchema, layers: int) -> Mapping[str, Any] | None:
    holders = [name for name in value if name in WRAPPERS or name == schema.name]
    # A parameter that the schema declares is one, whatever its name says.
    if len(holders) != 1 or len(value) > 2 or not schema.properties.keys().isdisjoint(value):
        return None
    (holder,) = holders
    labels = [name for name in value if name != holder]
    if not all(name in _NAMES and value[name] == schema.name for name in labels):
        return None
    inner = value[holder]
    if isinstance(inner, str):
        try:
            inner = arguments_in(inner)
        except NoJson:
            return None
    if not isinstance(inner, dict):
        return None
    is_known = all(resolve_parameter(name, schema, ())[0] in schema.properties for name in inner)
    return inner if labels or is_known or (layers and _inner(inner, schema, layers - 1) is not None) else None


def _spelt(value: Mapping[str, Any], schema: ToolSchema) -> Read:
    """Values that can mean one thing only by what their parameter takes."""
    out: dict[str, Any] = {}
    steps: list[str] = []
    for name, item in value.items():
        prop = schema.properties.get(name)
        if isinstance(item, str) and schema.leaves_out(name, item):
            # `"None"` for a number that need not be given: https://github.com/anthropics/claude-code/issues/95239
            steps.append("null_dropped")
            continue
        out[name] = item
        if prop is None:
            continue
        found: tuple[Any, str] | None = None
        if isinstance(item, str) and prop.enum is not None:
            found = _member(prop, item)
        elif prop.types == {"array"} and not isinstance(item, list):
            found = _as_list(prop, item)
        if found is not None:
            out[name] = found[0]
            steps.append(found[1])
    return out, tuple(steps)


def _member(prop: Prop, text: str) -> tuple[str, str] | None:
    """The enumerated word in another case or with other separators, if there is one only.

    https://github.com/basher83/Zammad-MCP/issues/201
    """
    members = prop.enum or ()
    if text in members or not (spelling := folded(text.strip())):
        return None
    same = [word for word in members if isinstance(word, str) and folded(word) == spelling]
    return (same[0], "enum_spelling") if len(same) == 1 else None


def _as_list(prop: Prop, item: Any) -> tuple[list[Any], str] | None:
    """The list of the one item that stands in its place.

    A text that may itself be a list is none, nor is an object that may be a list in another form.
    """
    if isinstance(item, str):
        if item.strip().lower() in _NOTHING:
            return None
        found = read_text(prop, item)
        return (found.value, "item_alone") if isinstance(found.value, list) else None
    if isinstance(item, dict):
        inner = prop.item(0)
        if not item or not item.keys() <= properties(inner.document.view(inner.schema)).keys():
            return None
    return None if item is None else ([item], "item_alone")
