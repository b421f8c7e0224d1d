"""Calls written as Python: a list as the message, calls on lines, and the `tool_code` of Gemini and Gemma.

    pythonic  = "[" call { "," call } "]" | call { ( newline | ";" | "," ) call }
    tagged    = "<|python_start|>" ( pythonic | JSON objects ) [ "<|python_end|>" ]
    tool_code = a fence of that name, or "<tool_code>" ... "</tool_code>", holding nothing but calls; the tag also JSON
    gorilla   = "<<function>>" call
    raven     = "Call:" call { ";" call } [ "<bot_end>" ]

Where an expression ends its brackets say, so a fence or a tag inside a string is data. Whatever is not a call with
plain values makes the whole text code, and code is never run. Bounds: a bracket or a name that no declared call follows
is refused at once; the parser is linear and of bounded depth.
"""

import re
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from attrs import evolve

from strategies.grammar.bare_data import checking, ends_message, in_prose, is_on, may_stand
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.fences import closes_here
from strategies.grammar.inline import leads_to_call
from strategies.grammar.json_calls import drafting
from strategies.grammar.json_payload import begins_objects, read_objects, with_mends
from strategies.text.cursor import Cursor, Reject, Steps
from strategies.text.python_text import PythonCall, PythonFault, bracketed, reading_calls
from strategies.text.tape import Taken
from strategies.text.turns import Turns
from strategies.writing.block_renderer import BlockRenderer, listed, python_call
from strategies.writing.renderer import CannotExpress

__all__ = ["GORILLA", "NEXUS_RAVEN", "PYTHONIC", "PYTHON_TAGGED", "TOOL_CODE", "call_drafts"]

_START, _END = "<|python_start|>", "<|python_end|>"
_TAG, _TAG_END = "<tool_code>", "</tool_code>"
_CALLEE = re.compile(r"[\w.:/-]*")
_HEAD = re.compile(r"[\w.:/= \t-]*")
_LIST = re.compile(r"\[[\w.:/-]+\(")
_CODE = re.compile(
    r"\s*+(?:[\w.]++(?:\(.*\)\s*;?|\s*(?:\+|-)?=(?!=)\s*\S.*)|import\s+[\w., ]+|from\s+[\w.]+\s+import\s.*"
    r"|@\w.*|(?:for .+ in |(?:while|if|elif|with|def|class|async) |try|else|except\b|finally).*:)\s*"
)
"""A line of Python: a call, an assignment, an import, a decorator, the head of a block."""
# Of OpenAI's own prompts: https://github.com/craft-ai-agents/craft-agents-oss/issues/449
_PREFIXES = ("functions.", "tools.")
# Gemini's, whose functions live in a module of that name: https://github.com/lbjlaq/Antigravity-Manager/issues/938
_OWN_PREFIX = "default_api."


def call_drafts(
    calls: Sequence[PythonCall], context: Context, *, form: str, aliases: bool = True, positions: bool = True
) -> Turns[list[Draft]]:
    """What these calls mean; raises `Reject` where one of them means nothing."""
    found: list[Draft] = []
    for call in calls:
        arguments = call.arguments
        if call.positional:
            arguments = {**arguments, **_placed(call, context, aliases=aliases, positions=positions)}
        value = {"name": _own_name(call.name, context), "arguments": arguments}
        found += yield from drafting(value, context, form=form, steps=call.mends, aliases=aliases)
    return found


def _own_name(name: str, context: Context) -> str:
    """The name without the prefix of `tool_code`, unless a tool is called so as a whole."""
    return name if context.find(name) else name.removeprefix(_OWN_PREFIX)


def _placed(call: PythonCall, context: Context, *, aliases: bool, positions: bool) -> dict[str, object]:
    """The one positional argument is the one required parameter."""
    resolved = context.resolve(_own_name(call.name, context), aliases=aliases) if positions else None
    required = context.schema(resolved[0]).required if resolved else frozenset()
    # The order of a schema's properties says nothing.
    if len(call.positional) != 1 or len(required) != 1 or required & call.arguments.keys():
        raise Reject("positional argument")
    (key,) = required
    return {key: call.positional[0]}


def _read(cur: Cursor, text: str, *, constructors: bool = False) -> Steps:
    assigned = _PRINTED.fullmatch(text.strip())
    if assigned is not None:
        text = assigned.group(2)
    try:
        return (yield from cur.work(reading_calls(text, constructors=constructors)))
    except PythonFault as fault:
        raise Reject(fault.reason) from None


# The result is given a name only to print it: https://github.com/google/adk-go/issues/492
_PRINTED = re.compile(r"(tool_code)[ \t]*+=[ \t]*+([\w.]+\(.*\))[ \t]*+[\r\n;]++[ \t]*+print\(\1\)", re.DOTALL)


# Without markers


def _parse(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    form = "pythonic" if opening.fence is None else "fence"
    pieces = Taken(cur)
    in_list = opening.marker[0] == "["
    is_known = not in_list or (yield from _glance(cur, context))
    if opening.marker[0] in _QUOTES:
        yield from _quoted(cur, pieces)
    else:
        yield from _expressions(cur, pieces, meant=is_known)
    if not is_known and not any(context.resolve(name, aliases=False) for name in _CALLED.findall(pieces.text())):
        raise Reject("no call")
    calls: list[PythonCall] = yield from _read(cur, pieces.text())
    # `os.remove(path)` in a block of code is none of a server's tools called `remove`.
    if not in_list and any(_is_member(call.name, context) for call in calls):
        raise Reject("a method, not a tool")
    # A call alone that is the whole answer is as sure as one in brackets.
    is_alone = opening.starts_message and opening.fence is None and len(calls) == 1
    positions = in_list or is_alone
    found = yield from cur.work(call_drafts(calls, context, form=form, aliases=False, positions=positions))
    declared = [evolve(draft, mends=(*draft.mends, "unknown_sibling")) for draft in found if draft.tool is not None]
    if in_list and declared and len(declared) < len(found):
        # https://github.com/vllm-project/vllm/issues/48171
        found = declared  # each call of a list is judged by itself
    yield from cur.work(checking(found, context))
    end = cur.offset
    if opening.fence is None and not (yield from ends_message(cur)):
        leads = _leads(found, opening) and _begins_sentence((yield from cur.peek(1)))
        found = [evolve(draft, end=end) for draft in found] if leads else in_prose(found, end)
    yield from found


def _is_member(name: str, context: Context) -> bool:
    """Whether, in a line of its own, this is more likely a method of some module than a tool of some server."""
    prefix = next(filter(name.startswith, (*_PREFIXES, _OWN_PREFIX)), "")
    return context.find(name) is None and _SEPARATED.search(name.removeprefix(prefix)) is not None


_SEPARATED = re.compile(r"[.:/]")


def _leads(drafts: Sequence[Draft], opening: Opening) -> bool:
    """Whether a list of calls with arguments opens the message, so that a sentence behind it is another matter."""
    return opening.marker[0] == "[" and opening.starts_message and all(draft.arguments for draft in drafts)


def _begins_sentence(sign: str) -> bool:
    """Whether this is a letter that does not go on with a sentence."""
    return sign.isalpha() and not sign.islower()


def _glance(cur: Cursor, context: Context) -> Steps:
    """Whether a list of calls begins with that of a declared tool; what begins with no call is refused at once."""
    cur.anchor = start = cur.offset
    cur.pos += 1
    yield from cur.ws()
    name: str = yield from cur.match(_CALLEE, 128)
    if not name or not (yield from cur.starts("(")):
        raise Reject("no call")
    cur.back(start)
    cur.anchor = None
    return context.resolve(name, aliases=False) is not None


_CALLED = re.compile(r"(?<![\w.:/-])([\w.:/-]++)\(")


def _quoted(cur: Cursor, pieces: Taken) -> Steps:
    """A call in quotes ends at the quote behind its brackets."""
    quote = cur.text[cur.pos]
    pieces.add(quote)
    cur.pos += 1
    yield from _expressions(cur, pieces)
    if not (yield from cur.lit(quote)):
        raise Reject("quote is not closed")
    pieces.add(quote)


def _expressions(cur: Cursor, pieces: Taken, *, meant: bool = True) -> Steps:
    """A list or a call, and those that follow it, with what separates them."""
    while True:
        if not (yield from bracketed(cur, pieces.add)):
            if cur.cut or not (pieces.first or "").lstrip().startswith("["):
                raise Reject("brackets are not closed", attempted=meant)
            return
        yield from _remark(cur)
        cur.anchor = start = cur.offset
        blanks = yield from cur.match(_SEPARATORS, 256)
        goes_on = bool(blanks) and (yield from cur.match(_CALLEE, 128)) and (yield from cur.starts("("))
        cur.back(start)
        cur.anchor = None
        if not goes_on:
            return
        pieces.add(blanks)
        cur.pos += len(blanks)


def _remark(cur: Cursor) -> Steps:
    """Pass over a comment at the end of the line."""
    cur.anchor = start = cur.offset
    yield from cur.match(_BLANKS, 64)
    is_remark = yield from cur.starts("#")
    if not is_remark:
        cur.back(start)
    cur.anchor = None
    if is_remark and not (yield from cur.until("\n", _ignored)) and cur.cut:
        raise Reject("cut", attempted=True)


_BLANKS = re.compile(r"[ \t]*")
_SEPARATORS = re.compile(r"[ \t\r\n;,]*")


def _openers(context: Context) -> tuple[str, ...]:
    if not is_on(context, "pythonic"):
        return ()
    names = [f"{name}(" for name in context.tools.names]
    names += [f"{prefix}{name}" for name in names for prefix in _PREFIXES]
    return ("[", *names, *(f"{start}{name}" for name in names for start in ("print(", '"', "'")))


def _inline_openers(context: Context) -> tuple[str, ...]:
    """A list that begins with the call of a declared tool may stand behind a colon, too."""
    return tuple(f"[{name}(" for name in context.tools.names) if is_on(context, "pythonic") else ()


def _may_open(_context: Context, opening: Opening) -> bool:
    if _stands(opening):
        return True
    before = opening.before.rstrip()
    is_led_in = opening.marker[0] == "[" and before.endswith((":", "：", ".", "!", "。"))
    said = evolve(opening, before=before.rstrip(".!。"))
    return is_led_in and not _LIST.search(opening.before) and leads_to_call(said)


def _stands(opening: Opening) -> bool:
    return may_stand(opening) and not _goes_on_code(opening) and not _goes_on_talk(opening)


def _goes_on_code(opening: Opening) -> bool:
    """Whether the line right above is Python that was no call: then this one is a part of that code."""
    lines = opening.before.rstrip(" \t").rsplit("\n", 2)
    return opening.fence is None and len(lines) > 1 and not lines[-1] and _CODE.fullmatch(lines[-2]) is not None


def _goes_on_talk(opening: Opening) -> bool:
    """Whether quotation marks open behind a paragraph that began with some: then people talk to each other."""
    if opening.fence is not None or opening.marker[:1] not in _QUOTES:
        return False
    line = opening.before.rstrip().rpartition("\n")[2]
    return line.startswith(_QUOTES) and not line.endswith((":", "："))


_QUOTES = ('"', "'")


def _unprefixed(name: str, arguments: Mapping[str, Any]) -> str:
    text = python_call(name, arguments)
    # A server's tool may really be called `default_api.read`.
    if name.startswith(_OWN_PREFIX):
        raise CannotExpress("the name would be read as another", text)
    return text


# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/pythonic_tool_parser.py
PYTHONIC = Dialect(
    id="pythonic",
    family="python",
    level="D",
    openers=_inline_openers,
    line_openers=_openers,
    may_open=_may_open,
    parse=_parse,
    renderer=BlockRenderer(
        id="pythonic",
        form=_unprefixed,
        wrap=lambda text: f"[{text}]",
        shown="[NAME(key=value, ...)]",
        join=listed,
    ),
    models=("llama-3.2*", "llama-4*", "toolace*", "gemma-3*", "olmo-3*", "lfm2*"),
    carriers=("", "python", "py", "python3", "json", "tool_call", "tool", "tools", "function"),
    example='[read(filePath="src/app.py")]',
)


# Behind the markers of Llama 4

_GOES_ON = re.compile(r"[\w\"')\]}]")
"""What is glued to the bracket that seemed to be the last."""


def _parse_tagged(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    yield from cur.ws()
    # The models write what Llama 3 was taught as well:
    # https://github.com/vllm-project/vllm/issues/16214, https://github.com/vllm-project/vllm/issues/46863
    if (yield from begins_objects(cur)):
        yield from read_objects(cur, context, opening, (_END,))
        return
    pieces = Taken(cur)
    head: str = yield from cur.match(_HEAD, 256)
    if (yield from cur.peek(1)) not in ("[", "("):
        raise Reject("no call")
    pieces.add(head)
    yield from _expressions(cur, pieces)
    calls = yield from _read(cur, pieces.text())
    drafts = yield from cur.work(call_drafts(calls, context, form="special"))
    end = cur.offset
    cur.anchor = end
    yield from cur.ws()
    if not (yield from cur.lit(_END)):
        cur.back(end)
        if _GOES_ON.match((yield from cur.peek(1))):
            raise Reject("text behind a call", attempted=True)
    cur.anchor = None
    yield from drafts


# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/llama4_pythonic_tool_parser.py
PYTHON_TAGGED = Dialect(
    id="pythonic_tagged",
    family="python",
    level="A",
    openers=lambda _context: (_START,),
    parse=_parse_tagged,
    models=("llama-4*",),
    example='<|python_start|>[read(filePath="src/app.py")]<|python_end|>',
)


# tool_code


def _parse_tool_code(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    bare = opening.fence is None and opening.marker != _TAG
    if opening.marker == _TAG:
        cur.pos += len(_TAG)
        yield from cur.ws()
        # Models that know other forms as well put those between its tags.
        if (yield from begins_objects(cur)):
            yield from read_objects(cur, context, opening, (_TAG_END,), form="hermes")
            return
    pieces = Taken(cur)
    mends = yield from _statements(cur, opening, pieces, bare=bare)
    calls = yield from _read(cur, pieces.text(), constructors=True)
    form = "pythonic" if bare else "tool_fence"
    found = yield from cur.work(call_drafts(calls, context, form=form, aliases=False))
    yield from cur.work(checking(found, context))
    end = cur.offset
    if bare and not (yield from ends_message(cur)):
        found = in_prose(found, end)
    yield from with_mends(found, mends)


def _statements(cur: Cursor, opening: Opening, pieces: Taken, *, bare: bool) -> Steps:
    """All statements up to the end of the fence, of the tag, or of the calls; returns the mends."""
    while True:
        if not bare:
            pieces.add((yield from cur.match(_SEPARATORS, 256)))
            yield from _comments(cur)
            if opening.fence is not None and (yield from closes_here(cur, opening.fence)):
                return ()
            if opening.marker == _TAG and (yield from cur.lit(_TAG_END)):
                return ()
            if (yield from cur.at_end()):
                if cur.cut:
                    raise Reject("cut", attempted=True)
                return ("call_closer_missing",) if opening.marker == _TAG else ()
        head: str = yield from cur.match(_HEAD, 256)
        if (yield from cur.peek(1)) not in ("(", "["):
            raise Reject("not a call")
        pieces.add(head)
        if not (yield from bracketed(cur, pieces.add)):
            raise Reject("brackets are not closed", attempted=True)
        if bare and not (yield from _another(cur)):
            return ()
        if bare:
            pieces.add("\n")


def _another(cur: Cursor) -> Steps:
    """Move to the next bare call, if one follows."""
    cur.anchor = start = cur.offset
    yield from cur.match(_SEPARATORS, 256)
    for marker in _BARE:
        if (yield from cur.starts(marker)):
            cur.anchor = None
            return True
    cur.back(start)
    cur.anchor = None
    return False


def _comments(cur: Cursor) -> Steps:
    while (yield from cur.starts("#")):
        yield from cur.until("\n", _ignored)
        yield from cur.ws()


def _ignored(_text: str) -> None:
    pass


_BARE = ("print(default_api.", "default_api.", "tool_code = ", "tool_code=", "print(tool_code)")


# https://www.philschmid.de/gemma-function-calling; Gemini writes it where its API finds the call malformed:
# https://github.com/googleapis/python-genai/issues/1836
TOOL_CODE = Dialect(
    id="tool_code",
    family="python",
    level="D",
    openers=lambda context: (_TAG,) if is_on(context, "tool_code") else (),
    line_openers=lambda context: _BARE if is_on(context, "tool_code") else (),
    bodies=lambda context: ("tool_code",) if is_on(context, "tool_code") else (),
    may_open=lambda _context, opening: opening.marker in (_TAG, "") or _stands(opening),
    parse=_parse_tool_code,
    results=("```tool_output", "<tool_output>"),
    models=("gemini*", "gemma*"),
    renderer=BlockRenderer(
        id="tool_code",
        form=_unprefixed,
        wrap=lambda text: f"```tool_code\nprint({_OWN_PREFIX}{text})\n```",
        shown="```tool_code\nprint(default_api.NAME(key=value, ...))\n```",
        answer=lambda _name, content: f"```tool_output\n{content}\n```",
        marks=(re.compile("^(\u200b*```)", re.MULTILINE),),
    ),
    carriers=("tool_code", "", "python"),
    example='```tool_code\nprint(default_api.read(filePath="src/app.py"))\n```',
)


# Families with a word in front of the call


def _parse_gorilla(
    cur: Cursor, context: Context, opening: Opening, _: Arguments
) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    yield from cur.ws()
    drafts: list[Draft] = yield from _one_call(cur, context, form="special")
    rest = yield from cur.peek(_LONGEST_REST)
    values = [value for draft in drafts for value in draft.arguments.values() if isinstance(value, str)]
    # A stray quote or bracket has ended it, or a lost one has not.
    if _REST.match(rest) is not None or any(opening.marker in value for value in values):
        raise Reject("text behind a call", attempted=True)
    yield from drafts


_LONGEST_REST = 64
_REST = re.compile(r"""[ \t]{0,8}(?:["')\]}\\]|,?[ \t]{0,8}\w{1,40}+[ \t]{0,8}=)""")
"""What goes on with the arguments of a call, and with nothing else."""


def _one_call(cur: Cursor, context: Context, *, form: str) -> Steps:
    """The calls that begin here, the first of a declared tool."""
    cur.anchor = start = cur.offset
    name: str = yield from cur.match(_CALLEE, 128)
    if not name or not (yield from cur.starts("(")):
        raise Reject("no call")
    cur.back(start)
    cur.anchor = None
    pieces = Taken(cur)
    yield from _expressions(cur, pieces)
    if context.resolve(name, aliases=False) is None:
        raise Reject("unknown_tool", name=name, blind=True)
    calls: list[PythonCall] = yield from _read(cur, pieces.text())
    return (yield from cur.work(call_drafts(calls, context, form=form, aliases=False)))


# https://github.com/ShishirPatil/gorilla/blob/main/openfunctions/openfunctions_utils.py
GORILLA = Dialect(
    id="gorilla",
    family="gorilla",
    level="B",
    openers=lambda _context: ("<<function>>",),
    parse=_parse_gorilla,
    models=("gorilla*",),
    example='<<function>>read(filePath="src/app.py")',
)


def _parse_raven(cur: Cursor, context: Context, opening: Opening, _: Arguments) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    yield from cur.match(_GAP, 16)
    found: list[Draft] = yield from _one_call(cur, context, form="pythonic")
    yield from cur.work(checking(found, context))
    end = cur.offset
    cur.anchor = end
    yield from cur.ws()
    # It goes on with a `Thought:` that explains the call, where the server does not stop it at its token.
    is_closed = yield from cur.lit(_RAVEN_END)
    if not is_closed:
        cur.back(end)
    cur.anchor = None
    if not is_closed and not (yield from ends_message(cur)):
        found = in_prose(found, end)
    yield from found


_RAVEN, _RAVEN_END = "Call:", "<bot_end>"
_GAP = re.compile(r"[ \t]*")

# https://github.com/nexusflowai/NexusRaven-V2/blob/master/README.md
NEXUS_RAVEN = Dialect(
    id="nexus_raven",
    family="nexus_raven",
    level="D",
    line_openers=lambda context: (_RAVEN,) if is_on(context, "pythonic") else (),
    may_open=lambda _context, opening: _stands(opening),
    parse=_parse_raven,
    models=("nexusraven*", "nexus-raven*"),
    carriers=(),
    example='Call: read(filePath="src/app.py")<bot_end>',
)
