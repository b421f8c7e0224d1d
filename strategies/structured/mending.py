"""Arguments of a structured call brought to what their tool takes, where there is one reading of them only.

A ladder, tried from the smallest step on, each rung with its name. What ends before a value is whole, what would have
to be chosen or left out, and what does not fit even then has no rung, so nothing here invents a value or loses one.
Texts are bounded, and each rung costs their length.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import frozen

from strategies.schema.names import resolve_parameter
from strategies.schema.tool_schema import ToolSchema
from strategies.structured.judge import Declared, NoJson, arguments_in
from strategies.text.dumping import dumps
from strategies.text.tolerant_json import JsonFault, parsing
from strategies.text.turns import Turns, whole

__all__ = ["MAX_CHARS", "Mended", "mended", "mending"]

MAX_CHARS = 1 << 18
"""Longer arguments are left as they are."""
_MAX_LAYERS = 3
"""How often arguments may have been encoded once too often."""
_MAX_STARTS = 16
"""Places at which a second copy may begin."""
_CERTAIN = frozenset(
    {
        *("trailing_comma", "python_literal", "control_chars", "odd_space", "literal_newline", "comment"),
        *("smart_quotes", "unquoted_keys", "bad_escape", "surplus_braces", "missing_comma"),
    }
)
"""The rungs of mended JSON on which nothing is chosen, closed or counted out."""
_LOSSY = frozenset({"argument_left_out"})
_FENCE = re.compile(r"\s*+(`{3,}|~{3,})[\w+-]*+[ \t]*+\r?\n(.*?)\r?\n?[ \t]*+\1\s*+", re.DOTALL)
_OPENER = r"<parameter(?:=|\s++name=)([\"']?)([\w.-]{1,64})\1\s*+>"
_BLOCK = re.compile(rf"\s*+{_OPENER}((?:(?!</?parameter).)*+)(?:</(?:parameter|\2)>|\Z)", re.DOTALL)
_TAIL = re.compile(r"\s*+(?:</function>\s*+)?(?:</(?:tool_call|invoke|function_calls)>\s*+)?\Z")
_HEAD = re.compile(r"((?:(?!</?parameter).)*+)</parameter>", re.DOTALL)


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
        found = (yield from _fitted(read[0], tool)) if read is not None else None
        if read is not None and found is not None:
            return Mended(dumps(found[0]), tuple(dict.fromkeys((*read[1], *found[1]))))
    return None


Read = tuple[Mapping[str, Any], tuple[str, ...]]


def _read(text: str, tool: Declared, layers: int) -> Iterator[Read | None]:
    """The objects that a text may stand for, the likeliest first, and how each was read; `None` ends a turn."""
    try:
        told = arguments_in(text)
    except NoJson:
        yield from _mended_json(text, tool, layers)
        return
    if isinstance(told, dict):
        yield told, ()
    elif isinstance(told, str) and layers:
        # Servers encode what the model wrote, and some models write what is encoded already:
        # https://github.com/tashfeenahmed/freellmapi/pull/193
        yield from _behind("double_encoded", _read(told, tool, layers - 1))


def _behind(step: str, reads: Iterator[Read | None]) -> Iterator[Read | None]:
    """The same, found behind one more step."""
    yield from (read and (read[0], (step, *read[1])) for read in reads)


def _mended_json(text: str, tool: Declared, layers: int) -> Iterator[Read | None]:
    fenced = _FENCE.fullmatch(text)
    if fenced is not None and layers:
        yield from _behind("fence", _read(fenced[2], tool, layers - 1))
        return
    tagged = _tagged(text, tool.schema)
    if tagged is not None:
        yield tagged, ("parameter_tags",)
        return
    once = _one_of_copies(text)
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


def _one_of_copies(text: str) -> dict[str, Any] | None:
    """The object that stands here twice, or behind an empty one or its own beginning.

    vLLM's last piece once brought all of the arguments again, its first an empty object:
    https://github.com/vllm-project/vllm/issues/51697 https://github.com/ogx-ai/ogx/pull/5462
    """
    text = text.strip()
    at = text.find("{", 1)
    for _ in range(_MAX_STARTS):
        if at < 0:
            return None
        before, behind = text[:at].rstrip(), text[at:]
        if before == "{}" or behind.startswith(before) or (before.endswith("}") and 2 * at >= len(text) - 2):
            found = _object(behind)
            if found is not None and (before == "{}" or behind.startswith(before) or _object(before) == found):
                return found
        at = text.find("{", at + 1)
    return None


def _object(text: str) -> dict[str, Any] | None:
    try:
        told = arguments_in(text)
    except NoJson:
        return None
    return told if isinstance(told, dict) else None


def _tagged(text: str, schema: ToolSchema) -> dict[str, Any] | None:
    """Arguments that are the tags of a parameter each, as Qwen3-Coder writes them; a server gave up on them."""
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


def _fitted(value: Mapping[str, Any], tool: Declared) -> Turns[tuple[dict[str, Any], tuple[str, ...]] | None]:
    """The arguments as the tool takes them, by as few steps as will do."""
    steps: tuple[str, ...] = ()
    swallowed = _swallowed(value, tool.schema)
    if swallowed is not None:
        parted, is_doubtful = swallowed
        # A file may hold such tags: where the whole value fits as well, nobody can tell what was meant.
        if parted is None or (is_doubtful and _typed(value, tool) is not None):
            return None
        value, steps = parted, ("parameter_tags",)
    for change in (_as_it_is, _renamed, _unwrapped):
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
    """The arguments in an object that only says that they are some, or that is the call again."""
    held = set(value) - {"name"}
    names = {"arguments", "parameters"} & held
    if "name" in value and len(value) == 2 and names and not set(value) & set(schema.properties):
        inner = value[names.pop()]
        if value["name"] == schema.name and isinstance(inner, dict):
            return inner, ("wrapped",)
    found = schema.open_container(dict(value))
    return (found.arguments, found.mends) if found is not None else (value, ())
