"""MiniMax: M2 writes invoke tags in a block of its own, M1 JSON lines, M3 tags behind a token.

    M2   = "<minimax:tool_call>" ws { invoke ws } "</minimax:tool_call>"
    M1   = "<tool_calls>" ws { object ws [ "," ] } "</tool_calls>"
    M3   = N "<tool_call>" ws { N '<invoke name="F">' { node } N "</invoke>" ws } N "</tool_call>"
    node = N "<" KEY ">" ( RAW | { node } ) N "</" KEY ">"                  N = "]<]minimax[>["

In M3 each structural tag carries N, so a plain tag in a value is data; lists hold `item` nodes. The first parameter's
opener may be missing, though not damaged: its closer has the name. Bounds: nodes nest 64 deep at most.
"""

import re
from collections import Counter
from collections.abc import Generator
from typing import Any

from strategies.dialects.tags.form import NEVER, Call, Form, begin_call, draft_of, group, show_value
from strategies.dialects.tags.invoke import INVOKE, invoke_open, invoke_param, read_invoke
from strategies.grammar.closers import ends_with_closer
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.json_payload import marked_json
from strategies.grammar.raw_value import Sink, doubt
from strategies.schema.document import Prop
from strategies.schema.names import resolve_parameter
from strategies.schema.values import reading
from strategies.text.cursor import Cursor, Reject, Steps
from strategies.text.tape import Taken
from strategies.text.turns import Turns
from strategies.writing.element_renderer import ParameterRenderer
from strategies.writing.token_renderer import JsonRenderer, json_text

__all__ = ["MINIMAX_M1", "MINIMAX_M2", "MINIMAX_M3"]

# One token of the vocabulary, which no file holds by chance: https://github.com/ggml-org/llama.cpp/issues/24523
_MARK = "]<]minimax[>["
_MAX_NESTING = 64
_AT_ONCE = 100
"""Nodes that are made values of in one turn."""
_NODE = re.compile(r"<(/?)([^\s<>/][^\s<>]{0,127})\s*>\Z")
_FORM = Form(
    call=INVOKE.call, closer=f"{_MARK}</invoke>", call_close=NEVER, param=NEVER, close=NEVER, property_tags=False
)

Node = str | list[tuple[str, "Node"]]


def _parse_block(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    yield from read_invoke(cur, context, opening, arguments, INVOKE, undeclared=True)


def _parse_lines(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    yield from _LINES(cur, context, opening, arguments)


_LINES = marked_json(("</tool_calls>",), form="hermes")


def _parse_nodes(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    if (yield from cur.lit(f"{_MARK}<tool_call>")):
        yield from cur.ws()
    found = INVOKE.call.match(tag) if (yield from cur.lit(_MARK)) and (tag := (yield from cur.tag())) else None
    if found is None:
        raise Reject("no invoke")
    cur.pos += len(found.group())
    call = Call.of(_FORM, context, group(found, "name"))
    begin_call(call, arguments)
    if not found.group("empty"):
        while (yield from _parameter(cur, call, arguments)):
            pass
    yield from _skip_section(cur)
    yield (yield from draft_of(cur, call))


def _parameter(cur: Cursor, call: Call, arguments: Arguments) -> Steps:
    """One parameter; False at the call's end."""
    yield from cur.ws()
    if (yield from cur.at_end()):
        if cur.cut:
            raise Reject("cut", attempted=True)
        call.mends.append("call_closer_missing")
        return False
    if not (yield from cur.lit(_MARK)):
        yield from doubt(cur, "text between parameters")
    match = yield from _tag(cur)
    if match is None:
        # The first parameter comes without its opener, every time: https://github.com/vllm-project/vllm/issues/51073
        yield from _unopened(cur, call, arguments)
        return True
    closes, written = match.groups()
    cur.pos += len(match.group())
    if closes:
        if written == "tool_call":
            call.mends.append("call_closer_missing")
        elif written != "invoke":
            yield from doubt(cur, "closed by another tag")
        return False
    key, mends = resolve_parameter(written, call.schema, call.texts)
    call.mends += mends
    prop = call.schema.prop(key)
    is_prototype = call.is_prototype(key)
    flows = prop.flows and not mends and not is_prototype and key not in call.texts
    sink = Sink(arguments, key, body=True, flows=flows, trim=False, entities=False)
    node = yield from _node(cur, written, sink, 0)
    if not isinstance(node, str):
        cur.made.append(node)
    while (yield from cur.lit(f"{_MARK}</{written}>")):
        call.mends.append("closer_repeated")
    if isinstance(node, str) and ends_with_closer(node, written):
        yield from doubt(cur, "value not closed")
    if is_prototype:
        call.mends.append("prototype_key")
        return True
    if arguments.live and key in call.texts:
        raise Reject("parameter given twice")
    yield from cur.work(_storing(call, key, node, prop))
    if arguments.live:
        if key in call.values:
            yield from cur.work(sink.closing(call.values[key]))
    return True


def _tag(cur: Cursor) -> Steps:
    tag = (yield from cur.tag()) if (yield from cur.peek(1)) == "<" else None
    return _NODE.match(tag) if tag else None


def _node(cur: Cursor, name: str, sink: Any, depth: int) -> Steps:
    """What stands up to the closer of `name`: text, or nodes."""
    if depth > _MAX_NESTING:
        raise Reject("nested_too_deep", blind=True)
    pieces = Taken(cur)

    def take(text: str) -> None:
        pieces.add(text)
        if sink is not None:
            sink(text)

    children: list[tuple[str, Node]] = []
    while True:
        if not (yield from cur.until(_MARK, take)):
            raise Reject("value not closed", attempted=True, inside=True)
        cur.pos += len(_MARK)
        match = yield from _tag(cur)
        if match is None:
            take(_MARK)
            continue
        closes, tag = match.groups()
        cur.pos += len(match.group())
        if not closes:
            # Objects and lists come as nested nodes where others write JSON:
            # https://github.com/ml-explore/mlx-lm/issues/1416
            children.append((tag, (yield from _node(cur, tag, None, depth + 1))))
        elif tag == name:
            break
        else:
            yield from doubt(cur, "closed by another tag")
    text = pieces.text()
    if children and text.strip():
        yield from doubt(cur, "text between values")
    return children or text


def _unopened(cur: Cursor, call: Call, arguments: Arguments) -> Steps:
    """A value whose opener is missing: the closer behind it has the name."""
    pieces = Taken(cur)
    if call.texts or not (yield from cur.until(_MARK, pieces.add)):
        yield from doubt(cur, "value not opened")
    cur.pos += len(_MARK)
    match = yield from _tag(cur)
    if match is None or not match.group(1) or match.group(2) not in call.schema.properties:
        yield from doubt(cur, "value not opened")
    key, text = match.group(2), pieces.text().strip()
    if key in text[: len(key) + 1] or _is_left_of(key, text):
        yield from doubt(cur, "value not opened")
    cur.pos += len(match.group())
    call.mends.append("value_tag")
    yield from cur.work(call.storing(key, text))
    show_value(call, key, arguments)


def _is_left_of(key: str, text: str) -> bool:
    """Whether the text begins with what may be left of its opener: `d<ir>` or `<pth>`."""
    begun = text[: len(key) + 5]
    return ">" in begun and (Counter(key) - Counter(begun)).total() <= _LOST


_LOST = 2
"""So many letters of a name may be lost where it is still told by the others."""


def _storing(call: Call, key: str, node: Node, prop: Prop) -> Turns[None]:
    if isinstance(node, str):
        yield from call.storing(key, node)
        return
    value = yield from _valued(node, prop)
    if key in call.texts:
        call.mends.append("parameter_repeated" if value == call.values.get(key) else "parameter_chosen")
    call.texts.setdefault(key, []).append("")
    call.values[key] = value


def _valued(node: Node, prop: Prop) -> Turns[Any]:
    """The object or list that the nodes spell, its leaves typed by the schema."""
    if isinstance(node, str):
        return (yield from reading(prop, node)).value
    names = {name for name, _ in node}
    # An object with one key called `item` looks the same, so the schema has the word.
    if names == {"item"} and ("array" in prop.types or "object" not in prop.types):
        items: list[Any] = []
        for index, (_, child) in enumerate(node):
            if index % _AT_ONCE == _AT_ONCE - 1:
                yield
            items.append((yield from _valued(child, prop.item(index))))
        return items
    declared = prop.document.every_property(prop.schema)
    found: dict[str, Any] = {}
    for index, (name, child) in enumerate(node):
        if index % _AT_ONCE == _AT_ONCE - 1:
            yield
        schema = declared.get(name, prop.schema.get("additionalProperties"))
        found[name] = yield from _valued(child, prop.document.prop(name, schema))
    return found


def _skip_section(cur: Cursor) -> Steps:
    """The block's closer behind a call."""
    cur.anchor = start = cur.offset
    yield from cur.ws()
    if not (yield from cur.lit(f"{_MARK}</tool_call>")):
        if (yield from cur.starts(_MARK)) and not (yield from cur.starts(f"{_MARK}<tool_call>")):
            is_next = yield from cur.starts(f"{_MARK}<invoke")
            if not is_next:
                yield from doubt(cur, "text behind the call")
        cur.back(start)
    cur.anchor = None


def _written(key: str, value: Any) -> str:
    """A value as nodes: mappings and lists nest; what cannot be a tag stays JSON."""
    left: list[Any] = [(key, value)]
    pieces: list[str] = []
    while left:
        step = left.pop()
        if isinstance(step, str):
            pieces.append(step)
            continue
        name, held = step
        pieces.append(f"{_MARK}<{name}>")
        left.append(f"{_MARK}</{name}>")
        if isinstance(held, dict) and held and all(_NODE.match(f"<{inner}>") for inner in held):
            left += reversed(held.items())
        elif isinstance(held, list) and held:
            left += [("item", inner) for inner in reversed(held)]
        else:
            pieces.append(held if isinstance(held, str) else json_text(held))
    return "".join(pieces)


def _result(_name: str, _call_id: str, content: str) -> str:
    return f"<response>{content}</response>"


# https://huggingface.co/MiniMaxAI/MiniMax-M2/blob/main/docs/tool_calling_guide.md
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/minimax_m2_tool_parser.py
MINIMAX_M2 = Dialect(
    id="minimax_m2",
    family="invoke",
    level="A",
    openers=lambda _context: ("<minimax:tool_call>",),
    parse=_parse_block,
    results=("<response>",),
    models=("minimax-m2*",),
    renderer=ParameterRenderer(
        id="minimax_m2",
        marker="<minimax:tool_call>",
        parse=_parse_block,
        opening="<minimax:tool_call>\n",
        closing="\n</minimax:tool_call>",
        call_open=invoke_open,
        call_close="</invoke>",
        param=invoke_param,
        answer=_result,
        # The last two end and begin turns in its template.
        tokens=("<response>", "</response>", "[e~[", "]~b]"),
    ),
    example=(
        '<minimax:tool_call>\n<invoke name="read">\n<parameter name="filePath">a.py</parameter>\n</invoke>\n'
        "</minimax:tool_call>"
    ),
)
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/minimax_tool_parser.py
MINIMAX_M1 = Dialect(
    id="minimax_m1",
    family="tool_call",
    level="B",
    openers=lambda _context: ("<tool_calls>",),
    parse=_parse_lines,
    models=("minimax-m1*",),
    renderer=JsonRenderer(
        id="minimax_m1",
        opening="<tool_calls>\n",
        closing="\n</tool_calls>",
        between="\n",
        answer=lambda _name, _call_id, content: f"tool result: {content}\n\n",
    ),
    example='<tool_calls>\n{"name": "read", "arguments": {"filePath": "a.py"}}\n</tool_calls>',
)
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/minimax_m3_tool_parser.py
MINIMAX_M3 = Dialect(
    id="minimax_m3",
    family="minimax_m3",
    level="A",
    openers=lambda _context: (f"{_MARK}<tool_call>", f"{_MARK}<invoke"),
    parse=_parse_nodes,
    models=("minimax-m3*",),
    renderer=ParameterRenderer(
        id="minimax_m3",
        marker=f"{_MARK}<tool_call>",
        parse=_parse_nodes,
        opening=f"{_MARK}<tool_call>\n",
        closing=f"\n{_MARK}</tool_call>",
        call_open=lambda name: f'{_MARK}<invoke name="{name}">',
        call_close=f"{_MARK}</invoke>",
        param=lambda key, value, _text: _written(key, value),
        answer=_result,
        tokens=(_MARK, "<response>", "</response>"),
    ),
    example=(
        f'{_MARK}<tool_call>\n{_MARK}<invoke name="read">{_MARK}<filePath>a.py{_MARK}</filePath>{_MARK}</invoke>\n'
        f"{_MARK}</tool_call>"
    ),
)
