"""GLM 4.5 and later, Laguna, Ling: keys and values as sibling tags behind a bare name.

    call = "<tool_call>" NAME { ws pair } ws "</tool_call>"
    pair = "<arg_key>" KEY "</arg_key>" ws "<arg_value>" RAW "</arg_value>"

Values are verbatim. Every tag may carry a suffix behind a colon, and `<tool_sep>` may follow the name (Hy3). Also read:
tags that were lost or doubled, a key without a value, a stray closer behind the name, JSON in place of the pairs, a
missing closer. Bounds: a name that is not followed by one of these tags or by JSON is refused at once.
"""

import re
from collections.abc import Generator

from attrs import evolve, frozen

from strategies.dialects.tags.form import (
    NEVER,
    Call,
    Form,
    Typed,
    begin_call,
    draft_of,
    read_call_end,
    read_parameter,
)
from strategies.grammar.closers import CALL_END, PARAMETER_END
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.json_bodies import attribute_arguments, json_arguments, python_arguments
from strategies.grammar.json_payload import read_objects
from strategies.grammar.lexicon import REASONING_ENDS
from strategies.grammar.raw_value import Way, doubt
from strategies.schema.names import resolve_parameter
from strategies.text.cursor import Cursor, Reject, Steps, pass_over
from strategies.text.strict_json import JsonFault, loading_strict
from strategies.text.turns import Turns
from strategies.writing.element_renderer import ParameterRenderer

__all__ = ["FORM", "GLM", "GLM_BARE", "LAGUNA_USER", "Pairs", "read_pairs", "typed_by_value"]

_SUFFIX = r"(?::[^<>]{1,40})?>\Z"
# TeleChat calls them parameters:
# https://github.com/NVIDIA/TensorRT-LLM/blob/main/tensorrt_llm/serve/tool_parser/xing4_0_parser.py
_ARG = "(?:arg|param)_"
_NAME_RUN = re.compile(r"[\w.:/-]*")
_KEY_RUN = re.compile(r"[^<>\r\n]*")
_SEPARATOR = re.compile(rf"<tool_sep{_SUFFIX}")
_KEY = "<arg_key>"


@frozen(kw_only=True)
class Pairs:
    """How keys and values are written inside a call of this form."""

    form: Form
    key_open: re.Pattern[str]
    key_close: re.Pattern[str]
    value_open: re.Pattern[str]
    pair: re.Pattern[str]
    """What stands behind a key's opener that is no mere mention of it."""
    kind: tuple[str, str] | None = None
    """The tags around a value's type, which may stand in front of it."""
    shares: bool = False
    """The value's opener is all that ends a key."""
    type_word: str = ""
    """What may stand before the name, on a line of its own."""
    ends_line: bool = False
    """The call's closer stands on a line of its own, although its pairs do not."""


def typed_by_value(call: Call, _tag: str, key: str, text: str) -> Turns[Typed | None]:
    """A value of a parameter whose type nobody knows: JSON if it is an object or a list."""
    prop = call.schema.properties.get(key)
    if prop is not None and prop.document.types(prop.schema):
        return None
    # `5` or `true` may be text as well; only an object or a list cannot be meant otherwise.
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = yield from loading_strict(text.strip())
    except JsonFault:
        return None
    return Typed(value) if isinstance(value, dict | list) else None


FORM = Form(
    call=re.compile(rf"<tool_call{_SUFFIX}"),
    closer="</tool_call>",
    call_close=re.compile(rf"</tool_call{_SUFFIX}"),
    param=re.compile(rf"<(?:{_ARG}key|tool_sep){_SUFFIX}"),
    close=re.compile(rf"</{_ARG}value{_SUFFIX}"),
    section_open=re.compile(rf"<tool_calls{_SUFFIX}"),
    section_close=re.compile(rf"</tool_calls{_SUFFIX}"),
    wrong_close=NEVER,
    edges="none",
    cdata_closers=("</arg_value>", "</param_value>"),
    takes_section=True,
    typed=typed_by_value,
)
PAIRS = Pairs(
    form=FORM,
    key_open=re.compile(rf"<{_ARG}key{_SUFFIX}"),
    key_close=re.compile(rf"</{_ARG}key{_SUFFIX}"),
    value_open=re.compile(rf"<{_ARG}value{_SUFFIX}"),
    # A key without its closer, or with another one, may still be a key; a word that only mentions the tag is none.
    pair=re.compile(rf"[^<>\s]{{1,128}}+\s*+<(?:/{_ARG}key|{_ARG}value|/[\w.:-]{{1,60}}+>\s*+<{_ARG}value)"),
    # https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/step_audio_2_tool_parser.py
    type_word="function",
)


def _parse(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    tag = yield from cur.tag()
    if tag is None or not FORM.call.match(tag):
        raise Reject("no call")
    cur.pos += len(tag)
    # GLM 5.3 loses the opener and writes it behind the name, where a key's should be:
    # https://github.com/ormandj/sglang-glm53-flash-sm120/issues/5
    glued = _GLUED_NAME.search(opening.before[-128:])
    if glued is not None and context.find(glued.group()) is not None and (yield from _ends_key(cur)):
        call = Call.of(FORM, context, glued.group())
        call.mends += ("call_opener_missing", "key_tag")
        yield from _read_named(cur, context, call, (yield from _key(cur)), opening, arguments, PAIRS)
        return
    yield from read_pairs(cur, context, opening, arguments, undeclared=context.prompted == GLM.id)


_GLUED_NAME = re.compile(r"[\w.:/-]+\Z")


def _ends_key(cur: Cursor) -> Steps:
    """Whether a key and its closer come next."""
    cur.anchor = start = cur.offset
    key = yield from cur.match(_KEY_RUN, 128)
    tag = (yield from cur.tag()) if (yield from cur.peek(1)) == "<" else None
    cur.back(start)
    cur.anchor = None
    return bool(key.strip()) and tag is not None and PAIRS.key_close.match(tag) is not None


def read_pairs(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments, *, undeclared: bool, pairs: Pairs = PAIRS
) -> Generator[Draft | None, None, None]:
    """The call behind its opener: the name, the pairs, the closer; `undeclared` lets pass names of no tool."""
    # https://github.com/usestrix/strix/issues/254
    yield from _notice_breaks(cur, "\\n")
    yield from cur.ws()
    name = yield from cur.match(_NAME_RUN, 128)
    if name and name == pairs.type_word and context.find(name) is None and (yield from cur.ws()):
        name = yield from cur.match(_NAME_RUN, 128)
    if not name:
        raise Reject("no name")
    yield from _notice_breaks(cur, "\\n<")
    call, key = yield from _named(cur, context, name, pairs)
    call.name_run, call.pair = _NAME_RUN, pairs.pair
    # `<tool_call>` stands for several families; a word behind it is a name only where it is one.
    if call.tool is None and not undeclared:
        yield from pass_over(call.name, _read_named(cur, context, call, key, opening, Arguments(None), pairs))
    yield from _read_named(cur, context, call, key, opening, arguments, pairs)


def _read_named(
    cur: Cursor, context: Context, call: Call, key: str, opening: Opening, arguments: Arguments, pairs: Pairs
) -> Generator[Draft | None, None, None]:
    """The call behind its name, and behind its first key where that is read already."""
    before: list[Draft] = []
    # https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/function_call/glm53_flash_detector.py
    if (yield from cur.peek(2)) == ">{":
        cur.pos += 1
        call.mends.append("name_cleaned")
    call.in_lines = (yield from cur.ws()) > 0 or pairs.ends_line
    yield from _gap(cur)
    first = "" if key else (yield from cur.peek(1))
    if first == "{":
        yield from json_arguments(cur, call, pairs.form.closer, opening.hint)
        yield from cur.ws()
        # https://github.com/nullclaw/nullclaw/blob/main/src/agent/dispatcher.zig
        if (yield from _skip(cur, pairs.form.close)):
            call.mends.append("stray_closer")
    # As GLM shortens its calls:
    # https://github.com/zeroclaw-labs/zeroclaw/blob/master/crates/zeroclaw-tool-call-parser/src/lib.rs
    elif first == "(" and pairs is PAIRS:
        yield from python_arguments(cur, call)
        # https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/function_call/multi_format_detector.py
        while name := (yield from _next_python(cur)):
            before.append((yield from draft_of(cur, call)))
            call = Call.of(pairs.form, context, name)
            if call.tool is None:
                raise Reject("unknown tool", name=name, attempted=True)
            yield from python_arguments(cur, call)
    elif first.isalpha() and pairs is PAIRS and (yield from attribute_arguments(cur, call)):
        yield from cur.lits(("/>", ">"))
    else:
        yield from _pairs(cur, call, key, Way.of(opening.hint), arguments, pairs)
    end = yield from read_call_end(cur, call, Way.of(opening.hint))
    # All of them or none: half of what belongs together is worse than nothing.
    last = yield from draft_of(cur, call, end)
    yield from before
    yield last


def _next_python(cur: Cursor) -> Steps:
    """The name of another call in Python behind one, if one follows; it is consumed."""
    cur.anchor = start = cur.offset
    yield from cur.match(_SEPARATORS, 256)
    name: str = yield from cur.match(_NAME_RUN, 128)
    if not name or not (yield from cur.starts("(")):
        name = ""
        cur.back(start)
    cur.anchor = None
    return name


_SEPARATORS = re.compile(r"[ \t\r\n;,]*")


def _notice_breaks(cur: Cursor, marker: str) -> Steps:
    r"""Whether line breaks are written as a literal `\n`: around the name, where no backslash belongs."""
    if (yield from cur.starts(marker)):
        cur.literal_breaks = True


def _named(cur: Cursor, context: Context, name: str, pairs: Pairs) -> Steps:
    """The call, and the first key where its opener was lost: the name runs into it, or it stands on the next line."""
    call = Call.of(pairs.form, context, name)
    cur.anchor = start = cur.offset
    yield from cur.ws()
    # The call's own opener may stand in the place of the key's: https://github.com/getsigit/sigit/pull/95
    yield from _skip(cur, pairs.form.call, spaces=False)
    key = yield from cur.match(_KEY_RUN, 128)
    tag = (yield from cur.tag()) if (yield from cur.peek(1)) == "<" else None
    is_lost = tag is not None and pairs.key_close.match(tag)
    if not is_lost:
        cur.back(start)
    cur.anchor = None
    if not is_lost:
        return call, ""
    if key.strip():
        call.mends.append("key_tag")
        return call, key.strip()
    # `<tool_call>grep_toolpattern</arg_key>`: https://github.com/vllm-project/vllm/issues/47190
    found = [
        (tool.name, name[len(tool.name) :])
        for tool in context.tools
        if name.startswith(tool.name) and name[len(tool.name) :] in context.schema(tool).properties
    ]
    if len(found) != 1:
        raise Reject("no name")
    call = Call.of(pairs.form, context, found[0][0])
    call.mends.append("key_tag")
    return call, found[0][1]


def _pairs(cur: Cursor, call: Call, key: str, way: Way, arguments: Arguments, pairs: Pairs) -> Steps:
    """All pairs; `key` is the first one's, if it is already read."""
    yield from _skip(cur, _SEPARATOR, spaces=False)
    call.in_lines = (yield from cur.ws()) > 0 or call.in_lines
    yield from _gap(cur)
    stray = 0 if key else (yield from _skip(cur, pairs.form.close))
    if stray:
        call.mends.append("stray_closer")
        # Where nothing is asked for, nothing more may come: https://github.com/fw-ai-external/python-sdk/issues/119
        if not call.schema.required and (yield from cur.at_end()):
            begin_call(call, arguments)
            return
    tag = (yield from cur.tag()) if (yield from cur.peek(1)) == "<" else None
    ends = (pairs.key_open, pairs.form.call_close, pairs.form.call)
    if not key and (tag is None or not any(end.match(tag) for end in ends)):
        raise Reject("no pair")
    if key or (tag and pairs.key_open.match(tag)) or not call.schema.required:
        begin_call(call, arguments)
    while True:
        opened = 0 if key else (yield from _skip(cur, pairs.key_open))
        if not key and not opened:
            return
        # https://github.com/vllm-project/vllm/issues/54971
        if opened > 1:
            call.mends.append("doubled_tag")
        key = key or (yield from _key(cur))
        kind = yield from _end_key(cur, call, key, pairs)
        yield from _pair(cur, call, key, kind, way, arguments, pairs)
        key = ""
        yield from cur.ws()


def _key(cur: Cursor) -> Steps:
    key = (yield from cur.match(_KEY_RUN, 128)).strip()
    if not key or (yield from cur.peek(1)) not in ("<", "\r", "\n"):
        raise Reject("no key", attempted=True)
    return key


def _end_key(cur: Cursor, call: Call, key: str, pairs: Pairs) -> Steps:
    """The key's closer, which may be doubled, missing or of another kind where the value opens behind it; returns the
    type that is told behind it, or nothing."""
    own = others = 0
    while True:
        yield from _gap(cur)
        tag = ((yield from cur.tag()) if (yield from cur.peek(1)) == "<" else None) or ""
        if pairs.key_close.match(tag):
            own += 1
        elif _is_closer(tag, pairs.form) or tag == f"</{key}>":
            others += 1
        else:
            break
        cur.pos += len(tag)
    kind = ""
    if pairs.kind is not None and tag == pairs.kind[0]:
        cur.pos += len(tag)
        kind = yield from cur.match(_KEY_RUN, 64)
        if not (yield from cur.lit(pairs.kind[1])):
            raise Reject("no type", attempted=True)
        yield from _gap(cur)
        tag = ((yield from cur.tag()) if (yield from cur.peek(1)) == "<" else None) or ""
    if pairs.shares:
        own = int(pairs.value_open.match(tag) is not None)
    # Neither the key's end nor the value's beginning is there as it should be: where the one stops is a guess.
    if not pairs.value_open.match(tag) and (own != 1 or others):
        yield from doubt(cur)
    if others:
        call.mends.append("closer_foreign")
    elif own != 1:
        call.mends.append("doubled_tag" if own else "key_tag")
    return kind


def _is_closer(tag: str, form: Form) -> bool:
    return any(end.match(tag) for end in (PARAMETER_END, CALL_END, form.close, form.call_close, form.section_close))


def _pair(cur: Cursor, call: Call, written: str, kind: str, way: Way, arguments: Arguments, pairs: Pairs) -> Steps:
    """The value that belongs to a key; a key directly before the next one has none."""
    tag = (yield from cur.tag()) if (yield from cur.peek(1)) == "<" else None
    # Optional parameters are listed without a value by some.
    if tag is not None and pairs.key_open.match(tag):
        call.mends.append("key_without_value")
        return
    opened = yield from _skip(cur, pairs.value_open, spaces=False)
    if opened != 1:
        call.mends.append("value_tag")
    key, mends = resolve_parameter(written, call.schema, call.texts)
    call.mends += mends
    yield from read_parameter(cur, call, key, kind, way, arguments, shown=not mends)
    # A lost opener, and the tag in the text: one of the two may be the other
    # (https://github.com/vllm-project/vllm/issues/49248).
    texts = call.texts.get(key, ())
    if opened != 1 and any(_MENTIONED.search(text) or _BEGUN.match(text) for text in texts):
        yield from doubt(cur)
    if any(_begins_again(text, pairs) for text in texts):
        yield from doubt(cur)


def _begins_again(text: str, pairs: Pairs) -> bool:
    """Whether a value begins with the tag that is its own opener, and nothing in it closes that; or with a key's."""
    # Tags are doubled now and then: https://github.com/vllm-project/vllm/issues/54971
    found = _FIRST_TAG.match(text)
    if found is None or pairs.key_close.match(found[1]):
        return found is not None
    return pairs.value_open.match(found[1]) is not None and f"</{found[1][1:]}" not in text


_FIRST_TAG = re.compile(r"\s*+(<[^<>]{1,80}>)")

_BEGUN = re.compile(r"\s*+(?:<|\S{0,40}?>)")
"""What may be left of the value's own opener."""
_MENTIONED = re.compile(rf"<(?:\w{{1,16}}[|:]|longcat_)?{_ARG}value|<\|tool_arg:value")


def _parse_user(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    """The same in `<user>`, or JSON: what may be any element has to hold a name and a key, or an object."""
    cur.anchor = start = cur.offset
    cur.pos += len(opening.marker)
    yield from cur.ws()
    is_json = (yield from cur.peek(1)) == "{"
    name: str = yield from cur.match(_NAME_RUN, 128)
    yield from cur.ws()
    if not is_json and not (name and (yield from cur.starts(_KEY))):
        raise Reject("no call")
    cur.back(start)
    cur.anchor = None
    cur.pos += len(opening.marker)
    if is_json:
        yield from cur.ws()
        yield from read_objects(cur, context, opening, (_USER.form.closer,), form="hermes")
    else:
        yield from read_pairs(cur, context, opening, arguments, undeclared=False, pairs=_USER)


_USER = evolve(
    PAIRS,
    form=evolve(
        FORM,
        call=re.compile(r"<user>\Z"),
        closer="</user>",
        call_close=re.compile(r"</user>\Z"),
        section_open=NEVER,
        section_close=NEVER,
        takes_section=False,
    ),
)


def _parse_bare(
    cur: Cursor, context: Context, opening: Opening, _arguments: Arguments
) -> Generator[Draft | None, None, None]:
    """A declared name and its object on lines of their own, or on one that a function's closer ends; or its pairs."""
    # https://github.com/ai-dynamo/frontend-crates/blob/main/conformance/toolcalling/fixtures/glm47/TOOLCALLING.batch.5.yaml
    if opening.marker.endswith(_KEY):
        cur.pos += len(opening.marker) - len(_KEY)
        call = Call.of(FORM, context, opening.marker.removesuffix(_KEY))
        call.mends.append("call_opener_missing")
        yield from _read_named(cur, context, call, "", opening, _arguments, PAIRS)
        return
    is_glued = opening.marker.endswith("{")
    cur.pos += len(opening.marker) - is_glued
    call = Call.of(FORM, context, opening.marker.removesuffix("{").strip())
    yield from cur.ws()
    # ChatGLM3 puts a call of Python in a fence there: https://github.com/zai-org/ChatGLM3/blob/main/PROMPT.md
    fence = not is_glued and (yield from cur.lits(_TOOL_CALLS)) is not None
    if fence:
        yield from python_arguments(cur, call)
        yield from cur.ws()
        if not (yield from cur.lit("```")):
            raise Reject("fence is not closed", attempted=True)
        yield from cur.lits(GLM.results)
    elif (yield from cur.peek(1)) != "{":
        raise Reject("no object")
    else:
        yield from json_arguments(cur, call, "</function>" if is_glued else "\n\n", opening.hint)
    yield from cur.ws()
    # https://github.com/huggingface/smolagents/issues/1119
    if is_glued and not (yield from cur.lit("</function>")):
        raise Reject("no call")
    yield from cur.ws()
    if not (yield from cur.at_end()) or cur.cut:
        raise Reject("text after the object")
    # Without any tag a name and an object are also what a log or a changelog holds.
    if any(key not in call.schema.properties for key in call.values):
        raise Reject("no arguments of this tool")
    # Behind the end of reasoning the message begins.
    is_alone = opening.starts_message or opening.before.rstrip().endswith(REASONING_ENDS)
    yield evolve((yield from draft_of(cur, call)), form="bare" if is_alone else "in_prose")


_TOOL_CALLS = tuple(f"```{blank}{break_}tool_call" for blank in ("python", " python", "") for break_ in ("\n", "\r\n"))


def _skip(cur: Cursor, pattern: re.Pattern[str], *, spaces: bool = True) -> Steps:
    """Consume tags that the pattern matches, and white space behind each; returns how many."""
    count = 0
    while (yield from cur.peek(1)) == "<":
        tag = yield from cur.tag()
        if tag is None or not pattern.match(tag) or (count and not spaces):
            break
        cur.pos += len(tag)
        count += 1
        if spaces:
            yield from _gap(cur)
    return count


def _gap(cur: Cursor) -> Steps:
    """White space between tags; an escaped line break counts as one."""
    yield from cur.ws()
    while (yield from cur.lit("\\n")):
        yield from cur.ws()


# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/glm4_moe_tool_parser.py,
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/glm47_moe_tool_parser.py
GLM = Dialect(
    id="glm",
    family="tool_call",
    level="B",
    openers=lambda _context: ("<tool_call>", "<tool_call:"),
    parse=_parse,
    results=("<tool_response>", "<|observation|>"),
    models=("glm-4*", "glm-5*", "*laguna*", "ling-*", "ring-*"),
    renderer=ParameterRenderer(
        id="glm",
        marker="<tool_call>",
        parse=_parse,
        call_open=lambda name: f"<tool_call>{name}\n",
        call_close="</tool_call>",
        param=lambda key, _value, text: f"<arg_key>{key}</arg_key>\n<arg_value>{text}</arg_value>\n",
        answer=lambda _name, _call_id, content: f"<tool_response>\n{content}\n</tool_response>",
        tokens=("<tool_response>", "</tool_response>", "<|observation|>", "<|user|>", "<|assistant|>"),
    ),
    example="<tool_call>read\n<arg_key>filePath</arg_key>\n<arg_value>src/app.py</arg_value>\n</tool_call>",
)
# Laguna takes one tag for another: https://github.com/ollama/ollama/blob/main/model/parsers/laguna_test.go
LAGUNA_USER = Dialect(
    id="laguna_user",
    family="tool_call",
    level="C",
    openers=lambda _context: ("<user>",),
    parse=_parse_user,
    models=("*laguna*",),
    example="<user>read\n<arg_key>filePath</arg_key>\n<arg_value>src/app.py</arg_value>\n</user>",
)
# GLM-4 of 2024 has no tags: the name on a line, the object on the next.
GLM_BARE = Dialect(
    id="glm_bare",
    family="tool_call",
    level="D",
    line_openers=lambda context: tuple(f"{name}{end}" for name in context.tools.names for end in ("\n", "{", _KEY)),
    parse=_parse_bare,
    models=("glm-4-*", "glm-4"),
    carriers=(),
    example='read\n{"filePath": "src/app.py"}',
)
