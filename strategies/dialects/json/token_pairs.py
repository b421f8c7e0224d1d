"""Families whose markup is one token, or a pair of them, around JSON or around Python calls.

    Granite 3.x    "<|tool_call|>" ( list | object ) [ "<|/tool_call|>" | "</|tool_call|>" ]
    Granite 20B-FC "<function_call>" object { "<function_call>" object }
    Phi-4          "functools" list
    InternLM       "<|action_start|>" ( "<|plugin|>" object | "<|interpreter|>" RAW ) "<|action_end|>"
    Nemotron-Nano  "<TOOLCALL>" list "</TOOLCALL>"
    Apertus        "<|tools_prefix|>" "[" { NAME: arguments } "]" "<|tools_suffix|>"
    GigaChat 3     "function call<|role_sep|>" object | "<|function_call|>" object
    Inkling        "<|message_model|>" [ NAME ] "<|content_invoke_tool_json|>" object "<|end_message|>"
    LFM2           "<|tool_call_start|>" ( list | object | python list | python call ) "<|tool_call_end|>"
    Olmo 3         "<function_calls>" python call { newline python call } "</function_calls>"
    SmolLM3        "<code>" python call { newline python call } "</code>"
    openPangu      "[unused11]" list "[unused12]"
    Doubao         "<|FunctionCallBegin|>" ( list | object ) "<|FunctionCallEnd|>"
    TabbyAPI       "<|tool_start|>" list "<|tool_end|>"
    HyperCLOVA X   "<|im_start|>assistant -> tool/function_call" newline list [ "<|im_end|>" ]

JSON ends by its braces and Python by its brackets, so a closing token inside a string is data; what does not read that
way is read up to the closing token. Closers may be missing at the end of the answer.

The token of Phi-4-mini's template is Granite's, FireFunction's markup is Phi-4's; Granite 3.1's plain `<tool_call>[`
and Granite 4 are hermes. InternLM's interpreter is given code, which goes to the declared tool that runs it.
"""

import re
from collections.abc import Generator
from functools import partial
from typing import Any

from attrs import evolve

from strategies.dialects.lines.python import call_drafts
from strategies.grammar.bare_data import checking, ends_message
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.json_payload import (
    STOPS,
    begins_objects,
    code_draft,
    marked_json,
    read_end,
    read_objects,
    with_mends,
)
from strategies.grammar.literal import inside_word
from strategies.text.cursor import Cursor, Reject, Steps
from strategies.text.python_text import PythonFault, bracketed, reading_calls
from strategies.text.tape import Taken
from strategies.writing.token_renderer import JsonRenderer, json_text, named_object

__all__ = [
    "APERTUS",
    "DOUBAO",
    "GIGACHAT",
    "GRANITE",
    "GRANITE_FC",
    "HYPERCLOVAX",
    "INKLING",
    "INTERNLM",
    "LFM2",
    "NEMOTRON_NANO",
    "OLMO3",
    "PANGU",
    "PHI",
    "SMOLLM3",
    "TABBY",
]


# Around JSON


def _named_by_key(value: Any) -> Any:
    """Each entry is a name with its arguments."""
    entries = value if isinstance(value, list) else [value]
    found: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict) and entry and all(isinstance(held, dict) for held in entry.values()):
            found += ({"name": name, "arguments": arguments} for name, arguments in entry.items())
        else:
            found.append(entry)
    return found


def _parse_gigachat(
    cur: Cursor, context: Context, opening: Opening, _: Arguments
) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    if opening.marker == _MESSAGE:
        yield from cur.ws()
        # The same separator stands before every message of the model.
        if (yield from cur.lits(_CALL_ROLES)) is None:
            raise Reject("no call")
    yield from cur.ws()
    yield from read_objects(cur, context, opening, (), stops=(_MESSAGE, *STOPS))


def _parse_inkling(
    cur: Cursor, context: Context, opening: Opening, _: Arguments
) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    if opening.marker == _MODEL:
        pieces: list[str] = []
        yield from _header(cur, pieces)
    yield from cur.ws()
    yield from read_objects(cur, context, opening, (_END_MESSAGE,), stops=(_MODEL, _INVOKE, *STOPS))


def _header(cur: Cursor, pieces: list[str]) -> Steps:
    """The header's name is not looked at: the one in the object counts."""
    while (yield from cur.peek(1)) not in ("<", "\n", "") and len(pieces) < 128:
        pieces.append(cur.text[cur.pos])
        cur.pos += 1
    if not (yield from cur.lit(_INVOKE)):
        raise Reject("no call")


def _parse_internlm(
    cur: Cursor, context: Context, opening: Opening, _: Arguments
) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    yield from cur.ws()
    kind = yield from cur.lits(("<|plugin|>", "<|interpreter|>"))
    if kind is None:
        raise Reject("no kind")
    if kind == "<|plugin|>":
        yield from cur.ws()
        yield from read_objects(cur, context, opening, (_ACTION_END,), stops=STOPS)
        return
    pieces = Taken(cur)
    closed = yield from cur.until(_ACTION_END, pieces.add)
    if not closed and cur.cut:
        raise Reject("cut", attempted=True)
    draft = code_draft(context, pieces.text().strip("\r\n"))
    if closed:
        cur.pos += len(_ACTION_END)
    yield draft if closed else evolve(draft, mends=("call_closer_missing",))


_MESSAGE = "<|message_sep|>"
_CALL_ROLES = ("function call<|role_sep|>", "function call <|role_sep|>", "<|function_call|>")
_MODEL, _INVOKE, _END_MESSAGE = "<|message_model|>", "<|content_invoke_tool_json|>", "<|end_message|>"
_ACTION_END = "<|action_end|>"
# The closers are none of the template's: models write what they know from their neighbours.
_GRANITE_END = ("<|/tool_calls|>", "<|/tool_call|>", "</|tool_call|>", "</tool_call>", "<|tool_call_end|>")

# https://github.com/ggml-org/llama.cpp/blob/master/models/templates/NVIDIA-Nemotron-Nano-v2.jinja
NEMOTRON_NANO = Dialect(
    id="nemotron_nano",
    family="nemotron_nano",
    level="A",
    openers=lambda _context: ("<TOOLCALL>",),
    parse=marked_json(("</TOOLCALL>",)),
    results=("<TOOL_RESPONSE>",),
    models=("nvidia-nemotron-nano*", "nemotron-nano*"),
    renderer=JsonRenderer(
        id="nemotron_nano",
        opening="<TOOLCALL>[",
        closing="]</TOOLCALL>",
        between=", ",
        answer=lambda name, call_id, content: f"<TOOL_RESPONSE>[{json_text(content)}]</TOOL_RESPONSE>",
        tokens=("<TOOL", "</TOOL"),
    ),
    example='<TOOLCALL>[{"name": "read", "arguments": {"filePath": "src/app.py"}}]</TOOLCALL>',
)
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/granite_tool_parser.py
GRANITE = Dialect(
    id="granite",
    family="granite",
    level="A",
    # https://github.com/langroid/langroid/issues/569
    openers=lambda _context: ("<|tool_call|>", "<|tool_calls|>"),
    parse=marked_json(optional=_GRANITE_END),
    results=("<|tool_response|>", "<|start_of_role|>tool_response"),
    models=("granite-3*", "granite3*"),
    renderer=JsonRenderer(
        id="granite", opening="<|tool_call|>[", closing="]", between=", ", tokens=("<|tool_call|>", "<|start_of_role|>")
    ),
    example='<|tool_call|>[{"name": "read", "arguments": {"filePath": "src/app.py"}}]',
)
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/granite_20b_fc_tool_parser.py
GRANITE_FC = Dialect(
    id="granite_fc",
    family="granite",
    level="B",
    openers=lambda _context: ("<function_call>",),
    parse=marked_json(form="hermes", optional=("</function_call>",)),
    models=("granite-20b*",),
    example='<function_call> {"name": "read", "arguments": {"filePath": "src/app.py"}}',
)
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/phi4mini_tool_parser.py
# https://github.com/ggml-org/llama.cpp/blob/master/models/templates/llama-cpp-microsoft-Phi-4-mini-instruct.jinja
PHI = Dialect(
    id="phi4",
    family="phi",
    level="A",
    openers=lambda _context: ("functools[", "functools ["),
    may_open=lambda _context, opening: not inside_word(opening),
    # The bracket is a part of the marker: in prose the word alone is Python's module.
    parse=marked_json(keep=1),
    models=("phi-4*", "phi4*", "firefunction*"),
    carriers=("", "json", "tool_call", "tool_code", "tool", "tools", "function"),
    renderer=JsonRenderer(
        id="phi4",
        opening="functools[",
        closing="]",
        between=", ",
        answer=lambda name, call_id, content: f'{{"result": {json_text(content)}}}',
        tokens=("functools[",),
    ),
    example='functools[{"name": "read", "arguments": {"filePath": "src/app.py"}}]',
)
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/internlm2_tool_parser.py
INTERNLM = Dialect(
    id="internlm",
    family="internlm",
    level="A",
    openers=lambda _context: ("<|action_start|>",),
    parse=_parse_internlm,
    results=("<|im_start|>environment",),
    models=("internlm*",),
    renderer=JsonRenderer(
        id="internlm",
        body=lambda name, arguments: f"<|action_start|><|plugin|>\n{named_object(name, arguments)}{_ACTION_END}",
        between="\n",
        tokens=("<|action_", "<|plugin|>", "<|im_"),
    ),
    example='<|action_start|><|plugin|>\n{"name": "read", "parameters": {"filePath": "src/app.py"}}<|action_end|>',
)
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/apertus_tool_parser.py
APERTUS = Dialect(
    id="apertus",
    family="apertus",
    level="A",
    openers=lambda _context: ("<|tools_prefix|>",),
    parse=marked_json(("<|tools_suffix|>",), shape=_named_by_key),
    models=("apertus*",),
    renderer=JsonRenderer(
        id="apertus",
        body=lambda name, arguments: f"{{{json_text(name)}: {arguments}}}",
        opening="<|tools_prefix|>[",
        closing="]<|tools_suffix|>",
        between=", ",
        tokens=("<|tools_", "<|inner_"),
    ),
    example='<|tools_prefix|>[{"read": {"filePath": "src/app.py"}}]<|tools_suffix|>',
)
# https://github.com/ggml-org/llama.cpp/blob/master/models/templates/GigaChat3-10B-A1.8B.jinja
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/gigachat3_tool_parser.py
GIGACHAT = Dialect(
    id="gigachat",
    family="gigachat",
    level="A",
    openers=lambda _context: (_MESSAGE, *_CALL_ROLES),
    may_open=lambda _context, opening: not inside_word(opening),
    parse=_parse_gigachat,
    results=("function result<|role_sep|>",),
    models=("gigachat*",),
    renderer=JsonRenderer(
        id="gigachat",
        body=lambda name, arguments: f"<|function_call|>{named_object(name, arguments)}",
        tokens=("<|function_call|>", "<|role_sep|>", _MESSAGE),
    ),
    example='<|function_call|>{"name": "read", "arguments": {"filePath": "src/app.py"}}',
)
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/inkling_tool_parser.py
INKLING = Dialect(
    id="inkling",
    family="inkling",
    level="A",
    openers=lambda _context: (_INVOKE, _MODEL),
    parse=_parse_inkling,
    models=("inkling*",),
    renderer=JsonRenderer(
        id="inkling",
        body=lambda name, arguments: f"{_MODEL}{name}{_INVOKE}{named_object(name, arguments, 'args')}{_END_MESSAGE}",
        tokens=("<|message_", "<|content_", _END_MESSAGE),
    ),
    example='<|content_invoke_tool_json|>{"name": "read", "args": {"filePath": "src/app.py"}}<|end_message|>',
)
# openPangu before V2, whose tokenizer has no names for its tokens; V2 writes LFM2's:
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/openpangu_v2_tool_parser.py
PANGU = Dialect(
    id="pangu",
    family="pangu",
    level="A",
    openers=lambda _context: ("[unused11]",),
    parse=marked_json(("[unused12]",), stops=("[unused10]", *STOPS)),
    models=("*pangu*",),
    renderer=JsonRenderer(
        id="pangu", opening="[unused11][", closing="][unused12]", between=", ", tokens=("[unused11]", "[unused12]")
    ),
    example='[unused11][{"name": "read", "arguments": {"filePath": "src/app.py"}}][unused12]',
)
# What ByteDance's models are trained with, and leak: https://github.com/StigLidu/CodeGym/blob/main/README.md
DOUBAO = Dialect(
    id="doubao",
    family="doubao",
    level="A",
    openers=lambda _context: ("<|FunctionCallBegin|>",),
    parse=marked_json(("<|FunctionCallEnd|>",)),
    models=("doubao*",),
    renderer=JsonRenderer(
        id="doubao",
        body=lambda name, arguments: named_object(name, arguments, "parameters"),
        opening="<|FunctionCallBegin|>[",
        closing="]<|FunctionCallEnd|>",
        between=", ",
        tokens=("<|FunctionCall",),
    ),
    example='<|FunctionCallBegin|>[{"name": "read", "parameters": {"filePath": "src/app.py"}}]<|FunctionCallEnd|>',
)
# What the server's own templates had any model write:
# https://github.com/theroyallab/tabbyAPI/blob/main/templates/tool_calls/chatml_with_headers.jinja
TABBY = Dialect(
    id="tabby",
    family="tabby",
    level="A",
    openers=lambda _context: ("<|tool_start|>",),
    parse=marked_json(("<|tool_end|>",)),
    example=(
        '<|tool_start|>[{"id": "1", "type": "function", "function": {"name": "read",'
        ' "arguments": {"filePath": "src/app.py"}}}]<|tool_end|>'
    ),
)
_ROLE = "-> tool/function_call\n"
# https://huggingface.co/naver-hyperclovax/HyperCLOVAX-SEED-Think-14B
HYPERCLOVAX = Dialect(
    id="hyperclovax",
    family="hyperclovax",
    level="A",
    # The message before it ends first, and its end is no text either. Where the head stands in the prompt, the role
    # alone is left: it begins as points of a list do, which would all wait, and the list behind it is read without it.
    openers=lambda _context: (f"<|im_start|>assistant {_ROLE}", f"<|im_end|>\n<|im_start|>assistant {_ROLE}"),
    parse=marked_json(optional=("<|im_end|>",)),
    models=("hyperclovax-seed-think-14b*",),
    carriers=(),
    renderer=JsonRenderer(
        id="hyperclovax",
        opening=f"<|im_start|>assistant {_ROLE}[",
        closing="]<|im_end|>",
        between=", ",
        tokens=("<|im_start|>", "<|im_end|>", _ROLE.strip()),
    ),
    example=f'<|im_start|>assistant {_ROLE}[{{"name": "read", "arguments": {{"filePath": "src/app.py"}}}}]<|im_end|>',
)


# Around Python calls

_AS_TEXT = "as text"
_CODE = "<code>"


def _parse_lfm2(cur: Cursor, context: Context, opening: Opening, _: Arguments) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    yield from cur.ws()
    if (yield from begins_objects(cur)):
        yield from read_objects(cur, context, opening, _LFM2_END)
        return
    # MiniCPM3 writes its calls as Python in a fence between the same tokens: https://huggingface.co/openbmb/MiniCPM3-4B
    closers: tuple[str, ...] = _LFM2_END
    if (yield from cur.lits(_PYTHON_FENCES)):
        yield from cur.ws()
        closers = tuple(f"```\n{end}" for end in _LFM2_END)
    if (yield from cur.peek(1)) != "[":
        yield from _glance(cur, context)
    yield from _python(cur, context, opening, closers, "special")


_PYTHON_FENCES = ("```python\n", "```\n")


def _python(cur: Cursor, context: Context, opening: Opening, closers: tuple[str, ...], form: str) -> Steps:
    """Python calls up to the closer: by their brackets, or else whatever stands before it."""
    pieces = Taken(cur)
    if opening.hint == _AS_TEXT:
        if not (yield from cur.until(closers[0], pieces.add)):
            raise Reject("calls are not closed", attempted=True)
    else:
        yield from _by_brackets(cur, closers, pieces)
    text = pieces.text()
    if opening.marker == _CODE:
        text = _unprinted(text)
    try:
        calls = yield from cur.work(reading_calls(text))
    except PythonFault as fault:
        again = opening.hint is None and not cur.cut
        raise Reject(fault.reason, again=again, hint=_AS_TEXT, attempted=True) from None
    drafts = yield from cur.work(call_drafts(calls, context, form=form))
    yield from with_mends(drafts, (yield from read_end(cur, closers)))


def _unprinted(text: str) -> str:
    """A call whose result is given a name only to print it, without the lines that do."""
    # https://github.com/huggingface/smolagents/blob/main/src/smolagents/prompts/code_agent.yaml
    assigned = _ASSIGNED.match(text)
    if assigned is None:
        return text
    name = assigned.group(1)
    shown = rf"(?:f?\"[^\"\\\n]*+\"|f?'[^'\\\n]*+'|{name}\b)"
    line = re.compile(
        rf"[ \t]*+print\([ \t]*+{shown}[ \t]*+(?:,[ \t]*+{shown}[ \t]*+)*+\)[ \t]*+(?:#.*)?[ \t\r;]*+|[ \t\r]*+"
    )
    lines = text.rstrip().split("\n")
    while len(lines) > 1 and line.fullmatch(lines[-1]):
        lines.pop()
    return "\n".join(lines)


_ASSIGNED = re.compile(r"\s*+([^\W\d]\w*+)[ \t]*+=(?!=)[ \t]*+[\w.]++\(")


def _by_brackets(cur: Cursor, closers: tuple[str, ...], pieces: Taken) -> Steps:
    """Expressions, one after the other, until a closer follows or the answer ends."""
    while True:
        try:
            whole = yield from bracketed(cur, pieces.add)
        except Reject as refusal:
            raise Reject(refusal.reason, again=not cur.cut, hint=_AS_TEXT, attempted=True) from None
        if not whole:
            raise Reject("brackets are not closed", again=not cur.cut, hint=_AS_TEXT, attempted=True)
        cur.anchor = start = cur.offset
        blanks: int = yield from cur.ws()
        separated = (yield from cur.peek(1)) in (",", ";")
        ends = not separated and ((yield from cur.at_end()) or (yield from cur.peek(1)) in ("<", "]", "}", ")"))
        cur.back(start)
        cur.anchor = None
        if ends or not (blanks or separated):
            return


def _parse_lines(
    cur: Cursor, context: Context, opening: Opening, _: Arguments, *, closer: str, form: str, ends_line: bool = False
) -> Generator[Draft | None, None, None]:
    """Calls on lines between tags: all of declared tools, or none of it is a call.

    `ends_line`: the tags mean something else in running text, so no words go on behind them.
    """
    cur.pos += len(opening.marker)
    yield from cur.ws()
    is_bare = yield from _glance(cur, context)
    found: list[Draft] = []
    steps = _python(cur, context, opening, (closer,), form)
    for draft in steps:
        if draft is None:
            yield None
        else:
            found.append(draft)
    # Code that goes on with the result is rather shown, where words follow it.
    if ends_line and not (yield from (_line_ends(cur) if is_bare else ends_message(cur))):
        raise Reject("words behind it")
    yield from (yield from cur.work(checking(found, context)))


def _line_ends(cur: Cursor) -> Steps:
    """Whether nothing but a token follows on this line; it is not consumed."""
    cur.anchor = start = cur.offset
    yield from cur.match(_BLANKS, 64)
    beside: str = yield from cur.peek(2)
    cur.back(start)
    cur.anchor = None
    return beside[:1] in ("", "\n", "\r") or beside == "<|"


_BLANKS = re.compile(r"[ \t]*")


def _glance(cur: Cursor, context: Context) -> Steps:
    """Between tags that mean something else as well, the call of a declared tool comes first; whether it is bare."""
    cur.anchor = start = cur.offset
    yield from cur.lit("[")
    yield from cur.ws()
    name: str = yield from cur.match(_CALLEE, 128)
    blanks = yield from cur.match(_BLANKS, 8)
    is_bare = True
    if (yield from cur.lits(("=",) if name != "print" else ("=", "("))):
        yield from cur.match(_BLANKS, 8)
        name, blanks, is_bare = (yield from cur.match(_CALLEE, 128)), "", False
    if not name or blanks or not (yield from cur.starts("(")) or not context.resolve(name):
        raise Reject("no call inside")
    cur.back(start)
    cur.anchor = None
    return is_bare


_CALLEE = re.compile(r"[\w.:/-]*")
_LFM2_END = ("<|tool_call_end|>",)


# https://github.com/ggml-org/llama.cpp/blob/master/models/templates/llama-cpp-lfm2.jinja, whose own parser refused the
# Python form for a while: https://github.com/ggml-org/llama.cpp/issues/23838
LFM2 = Dialect(
    id="lfm2",
    family="lfm2",
    level="A",
    openers=lambda _context: ("<|tool_call_start|>",),
    parse=_parse_lfm2,
    results=("<|tool_response_start|>",),
    models=("lfm2*",),
    renderer=JsonRenderer(
        id="lfm2",
        opening="<|tool_call_start|>[",
        closing="]<|tool_call_end|>",
        between=", ",
        tokens=("<|tool_call_", "<|tool_response_"),
    ),
    example='<|tool_call_start|>[read(filePath="src/app.py")]<|tool_call_end|>',
)
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/olmo3_tool_parser.py
OLMO3 = Dialect(
    id="olmo3",
    family="olmo3",
    level="B",
    openers=lambda _context: ("<function_calls>",),
    parse=partial(_parse_lines, closer="</function_calls>", form="hermes"),
    models=("olmo-3*", "olmo3*"),
    example='<function_calls>\nread(filePath="src/app.py")\n</function_calls>',
)
# https://huggingface.co/HuggingFaceTB/SmolLM3-3B
SMOLLM3 = Dialect(
    id="smollm3",
    family="smollm3",
    level="C",
    openers=lambda _context: (_CODE,),
    parse=partial(_parse_lines, closer="</code>", form="pythonic", ends_line=True),
    models=("smollm3*",),
    example='<code>\nread(filePath="src/app.py")\n</code>',
)
