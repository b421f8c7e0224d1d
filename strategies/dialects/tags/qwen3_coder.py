"""Qwen3-Coder: parameters as XML inside `<tool_call>`; also Nemotron 3, Step 3.5, Seed-OSS, MiniCPM and many others.

    call  = [ "<tool_call>" ws ] func [ ws "</tool_call>" ]
    func  = "<function=" NAME ">" ws { param ws } "</function>"
    param = "<parameter=" KEY ">" [ NL ] RAW [ NL ] "</parameter>"

Exactly one line break on each side of a value is markup. Without the wrapper the name must be a declared tool's, at the
start of a line or behind a sentence. Also read: names as attributes, other words for function and parameter inside the
wrapper, a bare name, names as text, a `<` or `>` that was lost, and what `parameter_calls` mends in every form.
Bounds: an opener without a declared name and a parameter or closer behind it is refused at once.
"""

import re
from collections.abc import Generator

from attrs import evolve

from strategies.dialects.tags.form import NAME, QUOTED, Call, Form, group, read_call
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.inline import in_line
from strategies.grammar.json_payload import marked_json
from strategies.grammar.literal import shows_opener
from strategies.text.cursor import Cursor, Reject, Steps, pass_over
from strategies.writing.element_renderer import ParameterRenderer, in_lines, inline

__all__ = ["BARE_FUNCTION", "FUNCTION", "QWEN3_CODER", "SEED_OSS"]

# U+0120 is a blank as byte-level tokenizers write it, left over where a server detokenizes token by token.
_GAP = r"[ \t\u0120]*"
_NAMED = rf"(?:{_GAP}name)?{_GAP}={_GAP}"
FUNCTION = Form(
    call=re.compile(rf"<{_GAP}function{_NAMED}{QUOTED.format('name')}{_GAP}>\Z"),
    closer="</function>",
    call_close=re.compile(r"</[ \t]*function[ \t]*>\Z"),
    param=re.compile(rf"<{_GAP}(?:parameter|param|argument|arg){_NAMED}{QUOTED.format('key')}{_GAP}(?P<empty>/?)>\Z"),
    close=re.compile(r"</(?:parameter|param|argument|arg)>\Z"),
    # `</parameter/>`, `</parameter1>`, `</parameter_function>`: https://github.com/sgl-project/sglang/issues/27337
    loose=re.compile(r"</[ \t]*(?:parameter|param)[^<>]{0,80}>\Z"),
    section_open=re.compile(r"<(?:seed:)?tool_call>\Z"),
    section_close=re.compile(r"</(?:seed:)?tool_calls?>\Z"),
    wrong_close=re.compile(r"</(?:tool|invoke|function_call|function_calls|tool_use)>\Z|<function>\Z"),
    # MiniCPM wraps all parameters: https://github.com/ollama/ollama/blob/main/model/parsers/minicpm5_test.go
    noise=frozenset({"</think>", "<arguments>", "</arguments>"}),
    # Answers end within the last closers: https://github.com/raullenchai/Rapid-MLX/issues/1574
    stub="</parameter",
)
_OTHER_WORDS = re.compile(rf"<(?P<word>call|tool|invoke)(?:\s+name)?\s*=\s*{QUOTED.format('name')}\s*>\Z")
_UNSIGNED = re.compile(rf"<function[ \t]*({NAME})[ \t]*>\Z")
_NAME_RUN = re.compile(r"[\w.:/-]*")
_IDENTIFIER = re.compile(rf"{NAME}\Z")
_TAG_START = re.compile(r"<([A-Za-z_]\w*)")


def _parse(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    yield from cur.ws()
    call = yield from _head(cur, context)
    # Hermes' JSON, GLM's pairs and this share an opener; a name that nobody declared may be any of their words.
    if call.tool is None and not opening.marker.startswith("<seed:") and context.prompted != QWEN3_CODER.id:
        yield from pass_over(call.name, read_call(cur, call, opening.hint, Arguments(None)))
    # Only the parameter's opener is lost: https://github.com/lidge-jun/opencodex/issues/5499
    yield from read_call(cur, call, opening.hint, arguments, meant=call.tool is not None)


def _parse_seed(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    cur.anchor = start = cur.offset
    cur.pos += len(opening.marker)
    yield from cur.ws()
    # Some of its calls are JSON in the same wrapper.
    is_json = (yield from cur.peek(1)) in ("{", "[")
    cur.back(start)
    cur.anchor = None
    yield from (_SEED_JSON if is_json else _parse)(cur, context, opening, arguments)


_SEED_JSON = marked_json(("</seed:tool_call>",))


def _head(cur: Cursor, context: Context) -> Steps:
    """What names the function, in every way that is seen behind the wrapper's opener."""
    if (yield from cur.peek(1)) != "<":
        return (yield from _head_without_tag(cur, context))
    tag = yield from cur.tag()
    if tag is None:
        return (yield from _head_without_end(cur, context))
    found = FUNCTION.call.match(tag)
    if found:
        cur.pos += len(tag)
        return Call.of(FUNCTION, context, group(found, "name"))
    other = _OTHER_WORDS.match(tag)
    if other:
        cur.pos += len(tag)
        return _closed_by(Call.of(FUNCTION, context, group(other, "name")), other.group("word"), "function_word")
    if tag in ("<function>", "<name>"):
        cur.pos += len(tag)
        return (yield from _head_as_text(cur, context, tag))
    # Step loses the sign between: https://github.com/sgl-project/sglang/pull/38896
    unsigned = _UNSIGNED.match(tag)
    if unsigned is None or context.find(unsigned[1]) is None:
        raise Reject("no function inside")
    cur.pos += len(tag)
    call = Call.of(FUNCTION, context, unsigned[1])
    call.mends.append("function_tag")
    return call


def _closed_by(call: Call, word: str, mend: str) -> Call:
    """The call with another closer than `</function>`, which still counts."""
    closes = re.compile(rf"</(?:function|{re.escape(word)})>\Z")
    call.form = evolve(call.form, call_close=closes)
    call.mends.append(mend)
    return call


def _head_without_tag(cur: Cursor, context: Context) -> Steps:
    """`function=N>` that lost its `<`, or a bare name with tags named after its parameters behind it."""
    # Brackets of tags get lost one by one: https://github.com/ml-explore/mlx-lm/issues/1881
    lost = yield from cur.lit("function=")
    name = yield from cur.match(_NAME_RUN, 128)
    if not _IDENTIFIER.match(name):
        raise Reject("no function inside")
    if lost:
        if not (yield from cur.lit(">")):
            raise Reject("no function inside")
        call = Call.of(FUNCTION, context, name)
        call.mends.append("function_tag")
        return call
    call = _closed_by(Call.of(FUNCTION, context, name), name, "function_tag")
    yield from cur.ws()
    tag = (yield from cur.tag()) if (yield from cur.peek(1)) == "<" else None
    if tag is None:
        raise Reject("no function inside")
    found = _TAG_START.match(tag)
    if found is None or (found.group(1) not in call.schema.properties and not FUNCTION.param.match(tag)):
        raise Reject("no function inside")
    return call


def _head_without_end(cur: Cursor, context: Context) -> Steps:
    """`<function=N` that lost its `>`: the next tag or line, or JSON, ends the name."""
    if not (yield from cur.lit("<function=")):
        raise Reject("no function inside")
    name = yield from cur.match(_NAME_RUN, 128)
    call = Call.of(FUNCTION, context, name)
    if not _IDENTIFIER.match(name) or (yield from cur.peek(1)) not in ("<", "\n", "{", "\r"):
        raise Reject("no function inside")
    call.mends.append("function_tag")
    return call


def _head_as_text(cur: Cursor, context: Context, opener: str) -> Steps:
    """`<function>N</function>` or `<name>N</name>`: parameters follow."""
    yield from cur.ws()
    name = yield from cur.match(_NAME_RUN, 128)
    yield from cur.ws()
    if not _IDENTIFIER.match(name) or not (yield from cur.lit("</" + opener[1:])):
        raise Reject("no function inside")
    call = Call.of(FUNCTION, context, name)
    call.mends.append("names_as_text")
    return call


def _parse_bare(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    tag = yield from cur.tag()
    found = FUNCTION.call.match(tag) if tag else None
    if found:
        cur.pos += len(tag)
        call = Call.of(FUNCTION, context, group(found, "name"))
    else:
        other = _OTHER_WORDS.match(tag) if tag else None
        if other is None:
            raise Reject("no function")
        cur.pos += len(tag)
        call = _closed_by(Call.of(FUNCTION, context, group(other, "name")), other.group("word"), "function_word")
    if call.tool is None:
        yield from pass_over(call.name, read_call(cur, call, opening.hint, Arguments(None)))
    yield from cur.ws()
    # Llama's form, whose dialect has its own rules for it.
    if (yield from cur.peek(1)) == "{":
        raise Reject("JSON inside")
    yield from read_call(cur, call, opening.hint, arguments)


def _may_open_bare(_context: Context, opening: Opening) -> bool:
    """Other words than function mean a call only inside a wrapper that is still open."""
    if "function" in opening.marker:
        return not shows_opener(opening.before, "<tool_call>", "</tool_call>")
    # `<tool=hammer>` may stand in any XML.
    return opening.before.rfind("<tool_call>") > opening.before.rfind("</tool_call>")


# Those with a point in their number were all taught this form: https://github.com/smg-project/smg/pull/2127
_QWENS = ("qwen3-coder*", "qwen3-next-coder*", "qwen3.5*", "qwen3.6*", "qwen3.8*")
_MODELS = (*_QWENS, "nemotron*3*", "step-3.5*", "mimo-v2*")
# https://huggingface.co/Qwen/Qwen3-Coder-30B-A3B-Instruct/blob/main/chat_template.jinja
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/qwen3coder_tool_parser.py
QWEN3_CODER = Dialect(
    id="qwen3_coder",
    family="tool_call",
    level="B",
    openers=lambda _context: ("<tool_call>",),
    parse=_parse,
    results=("<tool_response>",),
    models=_MODELS,
    renderer=ParameterRenderer(
        id="qwen3_coder",
        marker="<tool_call>",
        parse=_parse,
        call_open=lambda name: f"<tool_call>\n<function={name}>\n",
        call_close="</function>\n</tool_call>",
        param=lambda key, _value, text: f"<parameter={key}>{in_lines(text)}</parameter>\n",
        answer=lambda _name, _call_id, content: f"<tool_response>\n{content}\n</tool_response>",
        tokens=("<tool_response>", "</tool_response>"),
    ),
    example="<tool_call>\n<function=read>\n<parameter=filePath>\nsrc/app.py\n</parameter>\n</function>\n</tool_call>",
)
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/seed_oss_tool_parser.py
# https://github.com/ggml-org/llama.cpp/blob/master/models/templates/ByteDance-Seed-OSS.jinja
SEED_OSS = Dialect(
    id="seed_oss",
    family="tool_call",
    level="A",
    openers=lambda _context: ("<seed:tool_call>",),
    parse=_parse_seed,
    models=("seed-oss*", "*seed*oss*"),
    renderer=ParameterRenderer(
        id="seed_oss",
        marker="<seed:tool_call>",
        parse=_parse_seed,
        call_open=lambda name: f"<seed:tool_call>\n<function={name}>\n",
        call_close="</function>\n</seed:tool_call>",
        param=lambda key, _value, text: f"<parameter={key}>{inline(text)}</parameter>\n",
        tokens=("<seed:tool_call>", "<seed:eos>", "<seed:bos>"),
    ),
    example="<seed:tool_call>\n<function=grep>\n<parameter=pattern>TODO</parameter>\n</function>\n</seed:tool_call>",
)
# The wrapper's opener is lost behind a sentence, in one call of five: https://github.com/ollama/ollama/issues/16686
BARE_FUNCTION = Dialect(
    id="bare_function",
    family="tool_call",
    level="C",
    openers=lambda _context: (
        *("<function=", "<function ", "< function", "<functionname=", "<function\u0120"),
        *("<call=", "<tool=", "<invoke="),
    ),
    parse=in_line(_parse_bare),
    inline=True,
    may_open=_may_open_bare,
    results=("<tool_response>",),
    models=_MODELS,
    example="<function=read>\n<parameter=filePath>\nsrc/app.py\n</parameter>\n</function>",
)
