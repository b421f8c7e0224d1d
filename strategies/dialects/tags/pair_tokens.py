"""Families that write keys and values as GLM does, between tags or tokens of their own.

    call   = OPEN NAME { ws pair } ws CLOSE
    K2     = "<ifm|tool_call>" ... "</ifm|tool_call>", each tag with "ifm|" before its word, in "<ifm|tool_calls>"
    IQuest = "<iquest_tool_call>" ... "</iquest_tool_call>", or "iquestcoder"; the tags inside are GLM's
    Spark  = "<|tool_call|>" ... "<|/tool_call|>"; the tags inside are GLM's
    LongCat = "<longcat_tool_call>" ... "</longcat_tool_call>", with "longcat_" before the word of each tag inside
    Solar  = "<|tool_call:start|>" ... "<|tool_call:end|>"
    pair   = "<|tool_arg:start|>" KEY "<|tool_arg:value|>" RAW "<|tool_arg:end|>"                         (Solar)

K2 may tell the type of a value in `<ifm|arg_type>` behind its key; K2 and LongCat may write JSON in place of the pairs.
Values are verbatim, and what is mended in GLM's calls is mended here. Bounds: those of `glm`; a section without a call
behind its opener is refused at once.
"""

import re
from collections.abc import Generator
from functools import partial

from attrs import evolve

from strategies.dialects.tags.form import NEVER, Call, Form, Typed
from strategies.dialects.tags.glm import FORM, Pairs, read_pairs, typed_by_value
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening, Parse
from strategies.grammar.json_payload import STOPS, read_objects
from strategies.text.cursor import Cursor, Reject
from strategies.text.turns import Turns
from strategies.writing.element_renderer import ParameterRenderer
from strategies.writing.token_renderer import JsonRenderer, named_object

__all__ = ["IQUEST", "K2_HORIZON", "LONGCAT", "SOLAR_OPEN2", "SPARK"]

# Types are those of JSON Schema, and may say what a list holds: `array[string]`.
_JSON_KINDS = frozenset({"integer", "number", "boolean", "object", "array", "null"})


def _parse(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments, *, pairs: Pairs
) -> Generator[Draft | None, None, None]:
    form = pairs.form
    cur.pos += len(opening.marker)
    if form.section_open.match(opening.marker):
        yield from cur.ws()
        tag = (yield from cur.tag()) if (yield from cur.peek(1)) == "<" else None
        if tag is None or not form.call.match(tag):
            raise Reject("no call inside")
        cur.pos += len(tag)
    yield from cur.ws()
    if (pairs.kind is not None or pairs is _LONGCAT) and (yield from cur.peek(1)) in ("{", "["):
        yield from read_objects(cur, context, opening, (form.closer,), stops=STOPS)
        return
    yield from read_pairs(cur, context, opening, arguments, undeclared=True, pairs=pairs)


def _parsing(pairs: Pairs) -> Parse:
    return partial(_parse, pairs=pairs)


def _typed_k2(call: Call, kind: str, key: str, text: str) -> Turns[Typed | None]:
    """What the tag before the value says, where the schema allows it."""
    word = kind.partition("[")[0].strip().lower()
    if word != "string" and word not in _JSON_KINDS:
        return (yield from typed_by_value(call, kind, key, text))
    told = yield from call.schema.reading_told(key, text, is_text=word == "string")
    return None if told is None else Typed(told.value, told.mends)


_K2 = Pairs(
    form=Form(
        call=re.compile(r"<ifm\|tool_call>\Z"),
        closer="</ifm|tool_call>",
        call_close=re.compile(r"</ifm\|tool_call>\Z"),
        param=re.compile(r"<ifm\|arg_key>\Z"),
        close=re.compile(r"</ifm\|arg_value>\Z"),
        section_open=re.compile(r"<ifm\|tool_calls>\Z"),
        section_close=re.compile(r"</ifm\|tool_calls>\Z"),
        edges="none",
        cdata_closers=("</ifm|arg_value>",),
        takes_section=True,
        typed=_typed_k2,
    ),
    key_open=re.compile(r"<ifm\|arg_key>\Z"),
    key_close=re.compile(r"</ifm\|arg_key>\Z"),
    value_open=re.compile(r"<ifm\|arg_value>\Z"),
    pair=re.compile(r"[^<>\s]{1,128}+\s*+<(?:/ifm\|arg_key|ifm\|arg_)"),
    kind=("<ifm|arg_type>", "</ifm|arg_type>"),
)
_IQUEST = Pairs(
    form=evolve(
        FORM,
        call=re.compile(r"<iquest(?:coder)?_tool_call>\Z"),
        closer="</iquest_tool_call>",
        call_close=re.compile(r"</iquest(?:coder)?_tool_call>\Z"),
        section_open=NEVER,
        section_close=NEVER,
        takes_section=False,
    ),
    key_open=re.compile(r"<arg_key>\Z"),
    key_close=re.compile(r"</arg_key>\Z"),
    value_open=re.compile(r"<arg_value>\Z"),
    pair=re.compile(r"[^<>\s]{1,128}+\s*+<(?:/arg_key|arg_value)"),
)
_SPARK = evolve(
    _IQUEST,
    form=evolve(
        _IQUEST.form,
        call=re.compile(r"<\|tool_call\|>\Z"),
        closer="<|/tool_call|>",
        call_close=re.compile(r"<(?:\|/|/\|)tool_call\|>\Z|</tool_call>\Z"),
        closes=re.compile(r"</|<\|/"),
    ),
    ends_line=True,
)
_LONGCAT = Pairs(
    form=Form(
        call=re.compile(r"<longcat_tool_call>\Z"),
        closer="</longcat_tool_call>",
        call_close=re.compile(r"</longcat_tool_call>\Z"),
        param=re.compile(r"<longcat_arg_key>\Z"),
        close=re.compile(r"</longcat_arg_value>\Z"),
        edges="none",
        cdata_closers=("</longcat_arg_value>",),
        typed=typed_by_value,
    ),
    key_open=re.compile(r"<longcat_arg_key>\Z"),
    key_close=re.compile(r"</longcat_arg_key>\Z"),
    value_open=re.compile(r"<longcat_arg_value>\Z"),
    pair=re.compile(r"[^<>\s]{1,128}+\s*+<(?:/longcat_arg_key|longcat_arg_value)"),
)
_SOLAR = Pairs(
    form=Form(
        call=re.compile(r"<\|tool_call:start\|>\Z"),
        closer="<|tool_call:end|>",
        call_close=re.compile(r"<\|tool_call:end\|>\Z"),
        param=re.compile(r"<\|tool_arg:start\|>\Z"),
        close=re.compile(r"<\|tool_arg:end\|>\Z"),
        closes=re.compile(r"<\|tool_(?:arg|call):end\|>\Z|</"),
        edges="none",
        cdata_closers=("<|tool_arg:end|>",),
        typed=typed_by_value,
    ),
    key_open=re.compile(r"<\|tool_arg:start\|>\Z"),
    key_close=NEVER,
    value_open=re.compile(r"<\|tool_arg:value\|>\Z"),
    pair=re.compile(r"[^<>\s]{1,128}+<\|tool_arg:value\|>"),
    shares=True,
)


# https://github.com/ggml-org/llama.cpp/blob/master/common/parsers/k2-horizon.cpp
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/k2_horizon_tool_parser.py
K2_HORIZON = Dialect(
    id="k2_horizon",
    family="k2_horizon",
    level="A",
    openers=lambda _context: ("<ifm|tool_calls>", "<ifm|tool_call>"),
    parse=_parsing(_K2),
    results=("<|ifm|im_start|>tool",),
    models=("k2-horizon*", "k2-v3*"),
    renderer=ParameterRenderer(
        id="k2_horizon",
        marker="<ifm|tool_calls>",
        parse=_parsing(_K2),
        opening="<ifm|tool_calls>\n",
        closing="\n</ifm|tool_calls>",
        call_open=lambda name: f"<ifm|tool_call>{name}\n",
        call_close="</ifm|tool_call>",
        param=lambda key, _value, text: f"<ifm|arg_key>{key}</ifm|arg_key>\n<ifm|arg_value>{text}</ifm|arg_value>\n",
        tokens=("<ifm|", "</ifm|", "<|ifm|"),
    ),
    example=(
        "<ifm|tool_calls>\n<ifm|tool_call>read\n<ifm|arg_key>filePath</ifm|arg_key>\n"
        "<ifm|arg_value>src/app.py</ifm|arg_value>\n</ifm|tool_call>\n</ifm|tool_calls>"
    ),
)
# https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/function_call/iquest_q1_detector.py
IQUEST = Dialect(
    id="iquest",
    family="iquest",
    level="A",
    openers=lambda _context: ("<iquest_tool_call>", "<iquestcoder_tool_call>"),
    parse=_parsing(_IQUEST),
    results=("<tool_response>",),
    models=("iquest*",),
    renderer=ParameterRenderer(
        id="iquest",
        marker="<iquest_tool_call>",
        parse=_parsing(_IQUEST),
        call_open=lambda name: f"<iquest_tool_call>{name}",
        call_close="</iquest_tool_call>",
        param=lambda key, _value, text: f"<arg_key>{key}</arg_key><arg_value>{text}</arg_value>",
        answer=lambda _name, _call_id, content: f"<tool_response>{content}</tool_response>",
        tokens=("<iquest", "</iquest", "<|iquest_", "<tool_response>", "</tool_response>"),
    ),
    example=("<iquest_tool_call>read<arg_key>filePath</arg_key><arg_value>src/app.py</arg_value></iquest_tool_call>"),
)
# Granite's token in front of GLM's pairs: https://github.com/theroyallab/tabbyAPI/pull/480
SPARK = Dialect(
    id="spark",
    family="spark",
    level="A",
    openers=lambda _context: ("<|tool_call|>",),
    parse=_parsing(_SPARK),
    models=("spark*",),
    renderer=ParameterRenderer(
        id="spark",
        marker="<|tool_call|>",
        parse=_parsing(_SPARK),
        call_open=lambda name: f"<|tool_call|>\n{name}",
        call_close="\n<|/tool_call|>",
        param=lambda key, _value, text: f"<arg_key>{key}</arg_key><arg_value>{text}</arg_value>",
        tokens=("<|tool_call|>", "<|/tool_call|>"),
    ),
    example="<|tool_call|>\nread<arg_key>filePath</arg_key><arg_value>src/app.py</arg_value>\n<|/tool_call|>",
)
# As vLLM reads it, and as Ollama and MLX do:
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/longcat_tool_parser.py
# https://github.com/ollama/ollama/blob/main/model/parsers/longcatflash.go
LONGCAT = Dialect(
    id="longcat",
    family="longcat",
    level="A",
    openers=lambda _context: ("<longcat_tool_call>",),
    parse=_parsing(_LONGCAT),
    models=("longcat*",),
    renderer=JsonRenderer(
        id="longcat",
        body=lambda name, arguments: f"<longcat_tool_call>\n{named_object(name, arguments)}\n</longcat_tool_call>",
        between="\n",
        tokens=("<longcat_",),
    ),
    example='<longcat_tool_call>\n{"name": "read", "arguments": {"filePath": "src/app.py"}}\n</longcat_tool_call>',
)
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/solar_open2_tool_parser.py
SOLAR_OPEN2 = Dialect(
    id="solar_open2",
    family="solar",
    level="A",
    openers=lambda _context: ("<|tool_call:start|>",),
    parse=_parsing(_SOLAR),
    results=("<|tool_response:start|>",),
    models=("solar-open2*", "solar-open-2*", "solar-pro-4*", "solar-pro4*"),
    renderer=ParameterRenderer(
        id="solar_open2",
        marker="<|tool_call:start|>",
        parse=_parsing(_SOLAR),
        call_open=lambda name: f"<|tool_call:start|>{name}\n",
        call_close="<|tool_call:end|>",
        param=lambda key, _value, text: f"<|tool_arg:start|>{key}<|tool_arg:value|>{text}<|tool_arg:end|>\n",
        answer=lambda _name, _call_id, content: f"<|tool_response:start|>{content}<|tool_response:end|>",
        tokens=("<|tool_", "<|im:", "<|think:"),
    ),
    example=(
        "<|tool_call:start|>read\n<|tool_arg:start|>filePath<|tool_arg:value|>src/app.py<|tool_arg:end|>\n"
        "<|tool_call:end|>"
    ),
)
