"""FunctionGemma and Gemma 4: `call:NAME{key:value}` between tokens, with literals of their own.

    call   = ( "<|tool_call>" | "<start_function_call>" ) "call:" NAME object ( "<tool_call|>" | "<end_function_call>" )
    object = "{" [ KEY is value { "," KEY is value } ] "}"
    is     = ":" | "="
    value  = Q RAW Q | string | object | "[" [ value { "," value } ] "]" | number | "true" | "false" | "null" | WORD
    string = JSON's, or Python's between single quotes
    Q      = "<|"|>" (Gemma 4) | "<escape>" (FunctionGemma) | "<ctrl46>" (Gemini)

What stands between two `Q` is text as it is; a bare word that is no literal is text too, and so is any literal where
the parameter can only be a string. Quotes and marks around a value are no part of it, and where one of them is lost the
call is refused. Text at the top level flows as it comes. Nesting is bounded, so the recursion is. Without the tokens
(`call:NAME{...}` at a line start) a bare value ends where a known parameter or the end follows; what stands between
quotes, of whichever kind, does not hold them. Between the tokens JSON with a name is read as well.
"""

import re
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from gateway.core.tools import Tool
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.json_payload import marked_json, read_end
from strategies.grammar.raw_value import Sink, doubt
from strategies.schema.tool_schema import Prop, ToolSchema
from strategies.text.cursor import Cursor, Reject, Steps
from strategies.text.strict_json import loads_strict
from strategies.text.tape import Taken
from strategies.text.tolerant_json import JsonFault, parsing
from strategies.text.turns import Turns, whole
from strategies.writing.renderer import CannotExpress, without_tokens
from strategies.writing.token_renderer import family_section, json_text, reads_back

__all__ = ["FUNCTION_GEMMA", "GEMMA", "GEMMA_STRIPPED"]

_CLOSERS = ("<tool_call|>", "<end_function_call>")
# The last one is what Gemini's call shows in text (`call:default_api:read{filePath:<ctrl46>a.py<ctrl46>}`).
_QUOTES = ('<|"|>', "<escape>", "<ctrl46>")
# Names of MCP come with their server in front, between colons: https://github.com/jundot/omlx/issues/1854
_NAME = re.compile(r"[A-Za-z0-9_.:/-]*")
_KEY = re.compile(r"[^:=,{}\[\]<\"'\n]*")
_PLAIN_KEY = re.compile(r"\w*")
_IS = (":", "=")
# Quotes of either kind, where its own marks belong: https://github.com/NousResearch/hermes-agent/issues/7449
_SINGLE = re.compile(r"[\\']")
_MARKS = ("<escape>", "<ctrl46>", '<|"', '"|>', '|"|')
_WORD = re.compile(r"[^,{}\[\]<]*")
_ROUND_WORD = re.compile(r"[^,{}()\[\]<]*")
# Both kinds of brackets, and several calls in a block: https://github.com/ollama/ollama/issues/17882
# https://github.com/ollama/ollama/issues/18275
_BRACKETS = {"{": "}", "(": ")"}
_BETWEEN = re.compile(r"[ \t\r\n,;]*")
_BLANKS = re.compile(r"[ \t]*")
_LITERAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")
_TYPED = frozenset({"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"})
_MAX_DEPTH = 64
# A bare word of that length is a text whose mark was lost.
_MAX_WORD = 4096


def _parse(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    cur.anchor = start = cur.offset
    cur.pos += len(opening.marker)
    yield from cur.ws()
    is_json = (yield from cur.peek(1)) == "{"
    cur.back(start)
    cur.anchor = None
    if is_json:
        yield from _JSON(cur, context, opening, arguments)
        return
    cur.pos += len(opening.marker)
    while True:
        yield (yield from _one(cur, context, arguments))
        cur.anchor = start = cur.offset
        yield from cur.match(_BETWEEN, 64)
        is_next = yield from _called(cur)
        cur.back(start)
        cur.anchor = None
        if not is_next:
            return
        yield from cur.match(_BETWEEN, 64)


# What other families write, between the tokens of this one; several clients' parsers read it.
_JSON = marked_json(("<tool_call|>", "<end_function_call>", "<|tool_call>", "</tool_call>"))


def _called(cur: Cursor) -> Steps:
    """`call:` stands here, perhaps with blanks, and is consumed."""
    if not (yield from cur.lit("call")):
        return False
    yield from cur.match(_BLANKS, 8)
    return (yield from cur.lit(":"))


def _one(cur: Cursor, context: Context, arguments: Arguments) -> Steps:
    """One call: a block may hold several of them."""
    yield from cur.ws()
    # A colon too many: https://github.com/vllm-project/vllm/blob/main/tests/tool_parsers/test_gemma4_regex_and_bare_calls.py
    yield from cur.lit(":")
    if not (yield from _called(cur)):
        raise Reject("no call")
    yield from cur.ws()
    name: str = yield from cur.match(_NAME, 128)
    yield from cur.ws()
    brackets = yield from cur.lits(tuple(_BRACKETS))
    if not name or brackets is None:
        raise Reject("no arguments")
    found = context.resolve(name)
    tool, mends = found if found else (None, ())
    name = tool.name if tool else name
    arguments.begin(name)
    schema = context.schema(tool) if tool else ToolSchema(Tool(name=name))
    call = _Call(schema=schema, arguments=arguments, mends=[*mends])
    try:
        yield from _top(cur, call, _BRACKETS[brackets])
        yield from _read_rest(cur, call)
    except Reject as fault:
        # A mark that a text holds has ended it for the reader, who is within it still: a call there is a part of it.
        if fault.attempted and call.has_texts and not fault.again:
            yield from doubt(cur, fault.reason)
        raise
    return call.draft(name, tool)


def _read_rest(cur: Cursor, call: "_Call") -> Steps:
    """What stands behind the object: another call, or the closer."""
    yield from _refuse_rest(cur, call)
    cur.anchor = start = cur.offset
    yield from cur.match(_BETWEEN, 64)
    goes_on = yield from _called(cur)
    cur.back(start)
    cur.anchor = None
    if not goes_on:
        ends = yield from read_end(cur, _CLOSERS)
        # At the end of an answer nothing else shows that a value was cut in two.
        if "call_closer_missing" in ends and _GOES_ON.match((yield from cur.peek(_LOOK_AHEAD))):
            raise Reject("value not closed", attempted=True)
        call.mends += ends


_LOOK_AHEAD = 256
_GOES_ON = re.compile(r'(?:(?!<\|tool_call>|<start_function_call>|call:).)*?(?:<\|"\|>|<escape>|<ctrl46>)', re.DOTALL)
"""A mark of a value behind the object, before another call: a mark too many ended it."""


def _refuse_rest(cur: Cursor, call: "_Call") -> Steps:
    """Behind the object stands no mark, unless one in it was lost and took what followed into its value, and no other
    argument, unless a bracket in it was too many."""
    cur.anchor = start = cur.offset
    yield from cur.ws()
    if (yield from cur.lits(_QUOTES)):
        raise Reject("value not closed", attempted=True)
    key = yield from cur.match(_PLAIN_KEY, 64)
    # A bracket too many has ended the object before its last argument: half a call is worse than none.
    if key in call.schema.properties and key not in call.values and (yield from cur.peek(1)) in _IS:
        raise Reject("value not closed", attempted=True)
    cur.back(start)
    cur.anchor = None


@define
class _Call:
    """The arguments read so far; each is given as soon as it is known."""

    schema: ToolSchema
    arguments: Arguments
    mends: list[str]
    values: dict[str, Any] = field(factory=dict)
    has_texts: bool = False
    """A value between marks has begun, or one that may hold such values."""

    def sink(self, key: str) -> Sink:
        # A key that the schema rules out is dropped at the end, so nothing of it may have gone out.
        flows = self.schema.prop(key).flows and key in self.schema.from_json({key: ""}).arguments
        return Sink(self.arguments, key, body=False, flows=flows, trim=False, entities=False)

    def store(self, cur: Cursor, key: str, value: Any, sink: Sink) -> Steps:
        """Keep a value in the type that the schema asks for, as far as that is certain."""
        adapted = yield from cur.work(self.schema.adapting({key: value}))
        self.mends += adapted.mends
        if key not in adapted.arguments:
            return
        value = adapted.arguments[key]
        self.values[key] = value
        yield from cur.work(sink.closing(value))

    def draft(self, name: str, tool: Tool | None, form: str = "special") -> Draft:
        return Draft(name=name, tool=tool, arguments=self.values, form=form, mends=tuple(self.mends))


def _top(cur: Cursor, call: _Call, closer: str) -> Steps:
    """The members of the outermost object, behind its bracket."""
    yield from cur.ws()
    seen: set[str] = set()
    while not (yield from cur.lit(closer)):
        key = yield from _key(cur)
        # Which of the two was meant nobody can tell, and Gemma repeats itself when it is lost.
        if key in seen:
            raise Reject(f"`{key}` is given twice", attempted=True)
        seen.add(key)
        sink = call.sink(key)
        quote = yield from cur.lits(_QUOTES)
        call.has_texts = call.has_texts or bool(quote) or (yield from cur.peek(1)) in ("{", "[")
        if quote:
            yield from _quoted(cur, quote, sink)
            yield from call.store(cur, key, sink.value(), sink)
        else:
            value = yield from _plain(cur, call.schema, key, closer)
            if isinstance(value, str) and not call.schema.prop(key).is_string:
                call.mends.append("bare_text")  # of a number that is damaged as often as not
            yield from call.store(cur, key, value, sink)
        yield from _next(cur, closer)


def _plain(cur: Cursor, schema: ToolSchema, key: str, closer: str) -> Steps:
    """A value that does not stand between quotes; a comma belongs to a text where no parameter follows it."""
    prop = schema.prop(key)
    # Where the schema says nothing, `12` may be a number: only a declared text takes commas.
    is_text = prop.only_string and prop.schema.keys() & _TYPED
    if not is_text or (yield from cur.peek(1)) in ("", *"\"'{["):
        return (yield from _value(cur, prop, 1, closer))
    words: list[str] = []
    while True:
        words.append((yield from cur.match(_ROUND_WORD if closer == ")" else _WORD, _MAX_WORD)))
        if sum(map(len, words)) >= _MAX_WORD:
            raise Reject("value not closed", attempted=True)
        if not (yield from cur.starts(",")) or (yield from _opens_member(cur, schema, key)):
            return _bare_text("".join(words).strip())
        words.append(",")
        cur.pos += 1


def _opens_member(cur: Cursor, schema: ToolSchema, key: str) -> Steps:
    """Whether another parameter stands behind the comma."""
    cur.anchor = start = cur.offset
    cur.pos += 1
    yield from cur.ws()
    name = yield from _name_of_key(cur)
    yield from cur.match(_LINE, 64)
    follows = (yield from cur.peek(1)) in _IS
    cur.back(start)
    cur.anchor = None
    is_known = name in schema.properties or not schema.properties
    return bool(name) and follows and is_known and name != key


def _key(cur: Cursor) -> Steps:
    """A key, bare or quoted, and its colon."""
    key = yield from _name_of_key(cur)
    if not key:
        raise Reject("no key", attempted=True)
    yield from cur.ws()
    if not (yield from cur.lits(_IS)):
        raise Reject("no value", attempted=True)
    yield from cur.ws()
    return key


def _name_of_key(cur: Cursor) -> Steps:
    """The key that stands here; empty where none does."""
    quote = yield from cur.lits((*_QUOTES, '"', "'"))
    key = (yield from cur.match(_KEY, 128)).strip()
    return key if not quote or (yield from cur.lit(quote)) else ""


def _next(cur: Cursor, closer: str) -> Steps:
    """What separates two members; the closer stays."""
    yield from cur.ws()
    if (yield from cur.lit(",")):
        yield from cur.ws()
    # A comma between members is the one sign that a value has ended.
    elif not (yield from cur.starts(closer)):
        raise Reject("value not closed", attempted=True)


def _quoted(cur: Cursor, quote: str, sink: Sink) -> Steps:
    if not (yield from cur.until(quote, sink)):
        raise Reject("value not closed", attempted=True)
    cur.pos += len(quote)


def _word(cur: Cursor, closer: str) -> Steps:
    word = (yield from cur.match(_ROUND_WORD if closer == ")" else _WORD, _MAX_WORD)).strip()
    if len(word) >= _MAX_WORD:
        raise Reject("value not closed", attempted=True)
    return _bare_text(word)


def _bare_text(text: str) -> str:
    """A text that stood between no quotes, if it holds nothing that is left of some."""
    if not text.strip():
        raise Reject("no value", attempted=True)
    # Half a mark left in a text shows that one was lost, and with it where the value ends.
    if any(mark in text for mark in _MARKS) or text.count('"') % 2 or _has_lone_quote(text.strip()):
        raise Reject("value not closed", attempted=True)
    return text


def _has_lone_quote(text: str) -> bool:
    """Whether a single quote at an end has none to belong to: one within a word is an apostrophe."""
    # `don't` is a word; `'it` has lost the other half of its quotes.
    if text.endswith("'"):
        before = text.rfind("'", 0, -1)
        if text.count("'") % 2 or text[before - 1 : before].isalnum():
            return True
    if text.startswith("'"):
        behind = text.find("'", 1) + 1
        return text.count("'") % 2 > 0 or text[behind : behind + 1].isalnum()
    return False


def _literal(word: str, prop: Prop) -> Any:
    """A number, a boolean or null; text where the schema asks for it, and any other word."""
    # `{path:123}` for a file named so: https://github.com/ollama/ollama/issues/17914
    if not _LITERAL.fullmatch(word) or (prop.only_string and prop.schema.keys() & _TYPED):
        return word
    try:
        return loads_strict(word)
    except JsonFault:
        return word


def _value(cur: Cursor, prop: Prop, depth: int, closer: str = "}") -> Steps:
    """A value of any kind."""
    if depth > _MAX_DEPTH:
        raise Reject("nested_too_deep", blind=True)
    quote = yield from cur.lits(_QUOTES)
    if quote:
        pieces = Taken(cur)
        if not (yield from cur.until(quote, pieces.add)):
            raise Reject("value not closed", attempted=True)
        cur.pos += len(quote)
        return pieces.text()
    first = yield from cur.peek(1)
    if first == '"':
        return (yield from _json_string(cur))
    if first == "'":
        return (yield from _python_string(cur))
    if first == "{":
        cur.pos += 1
        return (yield from _object(cur, prop, depth))
    if first == "[":
        cur.pos += 1
        return (yield from _array(cur, prop, depth))
    return _literal((yield from _word(cur, closer)), prop)


def _json_string(cur: Cursor) -> Steps:
    pieces = Taken(cur)
    if not (yield from cur.json(pieces.add)):
        raise Reject("value not closed", attempted=True)
    return (yield from cur.work(_string_of(pieces.text())))


def _python_string(cur: Cursor) -> Steps:
    pieces = ["'"]
    cur.pos += 1
    while (yield from cur.until_match(_SINGLE, 0, pieces.append)):
        if (yield from cur.lit("'")):
            return (yield from cur.work(_string_of("".join([*pieces, "'"]))))
        pair = yield from cur.peek(2)
        pieces.append(pair)
        cur.pos += len(pair)
    raise Reject("value not closed", attempted=True)


def _string_of(text: str) -> Turns[Any]:
    """What a quoted text stands for."""
    try:
        parsed = yield from parsing(text)
    except JsonFault as fault:
        raise Reject(f"JSON: {fault.reason}", attempted=True) from None
    if text[parsed.end :] or any(mark in parsed.value for mark in _MARKS):
        raise Reject("value not closed", attempted=True)
    return parsed.value


def _object(cur: Cursor, prop: Prop, depth: int) -> Steps:
    found: dict[str, Any] = {}
    yield from cur.ws()
    while not (yield from cur.lit("}")):
        key = yield from _key(cur)
        if key in found:
            raise Reject(f"`{key}` is given twice", attempted=True)
        found[key] = yield from _value(cur, _member(prop, key), depth + 1)
        yield from _next(cur, "}")
    return found


def _member(prop: Prop, key: str) -> Prop:
    """What an object of this kind may hold under this key."""
    document = prop.document
    return document.prop(key, document.every_property(document.view(prop.schema)).get(key, {}))


def _array(cur: Cursor, prop: Prop, depth: int) -> Steps:
    found: list[Any] = []
    yield from cur.ws()
    while not (yield from cur.lit("]")):
        found.append((yield from _value(cur, prop.item(len(found)), depth + 1)))
        yield from _next(cur, "]")
    return found


def _parse_stripped(
    cur: Cursor, context: Context, opening: Opening, _: Arguments
) -> Generator[Draft | None, None, None]:
    """`call:NAME{key:text,...}` from which the server took the quotes as well; between two of them nothing is left."""
    cur.pos += len("default_api:" if opening.marker.startswith("default_api:") else opening.marker)
    yield (yield from _one_stripped(cur, context, opening))
    while (yield from cur.lit("call:")):
        yield (yield from _one_stripped(cur, context, opening))


def _one_stripped(cur: Cursor, context: Context, opening: Opening) -> Steps:
    yield from cur.match(_BLANKS, 8)
    name: str = yield from cur.match(_NAME, 128)
    yield from cur.match(_BLANKS, 8)
    if (yield from cur.lit("(")):
        return (yield from _round(cur, context, name))
    if not (yield from cur.lit("{")):
        raise Reject("no call")
    found = context.resolve(name, aliases=False)
    if found is None:
        raise Reject("unknown_tool", name=name)
    tool, mends = found
    call = _Call(schema=context.schema(tool), arguments=Arguments(None), mends=[*mends])
    yield from cur.ws()
    while not (yield from cur.lit("}")):
        key = yield from _key(cur)
        if key in call.values or key not in call.schema.properties:
            raise Reject("not a parameter of this tool", attempted=True)
        yield from _bare(cur, call, key)
        if (yield from cur.lit(",")):
            yield from cur.ws()
    yield from _refuse_rest(cur, call)
    if opening.marker == _CALL_TAG:
        yield from cur.lits(_CALL_TAG_ENDS)
    return call.draft(name, tool, "function")


_CALL_TAG = "<call>"
"""What some servers make of the token."""
_CALL_TAG_ENDS = ("</call>", *_CLOSERS)


def _round(cur: Cursor, context: Context, name: str) -> Steps:
    """`call:NAME(k: "v", n: 3)`, behind which the line ends."""
    found = context.resolve(name, aliases=False)
    if found is None:
        raise Reject("unknown_tool", name=name)
    tool, mends = found
    call = _Call(schema=context.schema(tool), arguments=Arguments(None), mends=[*mends])
    yield from _top(cur, call, ")")
    yield from _refuse_rest(cur, call)
    if any(key not in call.schema.properties for key in call.values):
        raise Reject("not a parameter of this tool", attempted=True)
    yield from cur.match(_BLANKS, 64)
    if not ((yield from cur.at_end()) or (yield from cur.peek(1)) in ("\n", "\r", "<")):
        raise Reject("text after the object")
    if cur.cut and (yield from cur.at_end()):
        raise Reject("cut", attempted=True)
    return call.draft(name, tool, "function")


def _bare(cur: Cursor, call: _Call, key: str) -> Steps:
    """A value up to the next parameter, or to the brace behind which the line or the answer ends."""
    sink = call.sink(key)
    prop = call.schema.prop(key)
    if not prop.is_string and (yield from cur.peek(1)) in ("{", "["):
        yield from call.store(cur, key, (yield from _value(cur, prop, 1)), sink)
        yield from _next(cur, "}")
        return
    quote = yield from cur.lits(_QUOTES)
    if quote:
        yield from _quoted(cur, quote, sink)
        yield from call.store(cur, key, sink.value(), sink)
        yield from _next(cur, "}")
        return
    depth, start = 0, cur.offset
    while (yield from cur.until_match(_STOP, 0, sink)):
        sign = cur.text[cur.pos]
        if sign != "{" and (sign == "," or not depth) and (yield from _is_end(cur, call, key, body=prop.body)):
            if depth:
                raise Reject("value not closed", attempted=True)
            # A part of a mark: a value has lost the rest of its own.
            if "<|" in sink.raw[:4] or "|>" in sink.raw[-4:]:
                raise Reject("value not closed", attempted=True)
            yield from call.store(cur, key, _unquoted(sink.raw if prop.body else sink.raw.strip(), prop), sink)
            return
        if sign != "{" and cur.offset == start:  # the call's brace or a comma in the place of a quote
            raise Reject("value not closed", attempted=True)
        depth = max(0, depth + (sign == "{") - (sign == "}"))
        sink(sign)
        cur.pos += 1
    raise Reject("value not closed", attempted=True)


def _unquoted(text: str, prop: Prop) -> Any:
    """What a bare text stands for; quotes around all of it are none of the text."""
    quoted = text.strip()
    if len(quoted) > 1 and quoted[0] == quoted[-1] and quoted[0] in "\"'":
        return whole(_string_of(quoted))
    return _literal(_bare_text(text), prop)


_STOP = re.compile(r"[,{}]")
_LINE = re.compile(r"[ \t]*")


def _is_end(cur: Cursor, call: _Call, key: str, *, body: bool) -> Steps:
    """Whether a comma is followed by another parameter, or a brace by the end."""
    closer = cur.text[cur.pos]
    cur.anchor = start = cur.offset
    cur.pos += 1
    if closer == ",":
        yield from cur.ws()
        name = yield from _name_of_key(cur)
        ends = name in call.schema.properties and name != key and name not in call.values
        yield from cur.match(_LINE, 64)
        ends = ends and (yield from cur.peek(1)) in _IS
    else:
        yield from cur.match(_LINE, 64)
        ends = not body and (yield from cur.peek(1)) in ("\n", "\r")
        yield from cur.ws()
        ends = ends or (not cur.cut and (yield from cur.at_end())) or (yield from cur.starts("call:"))
    cur.back(start)
    cur.anchor = None
    return ends


@frozen(kw_only=True)
class _Writer:
    """One of the two spellings."""

    id: str
    opening: str
    closing: str
    quote: str
    response: tuple[str, str]
    result_separator: str = ""

    def tool_section(self, tools: Sequence[Tool], *, parallel: bool) -> str:
        form = f"{self.opening}call:NAME{{key:{self.quote}text{self.quote},number:5,flag:true}}{self.closing}"
        return family_section(tools, form, self.call, parallel=parallel)

    def call(self, name: str, arguments: Mapping[str, Any], tool: Tool | None) -> str:
        json_text(dict(arguments))
        text = f"{self.opening}call:{name}{self._value(dict(arguments))}{self.closing}"
        fault = None if _NAME.fullmatch(name) else "the name cannot be written"
        fault = fault or self._fault(arguments) or reads_back(name, arguments, tool)
        if fault is not None:
            raise CannotExpress(fault, text)
        return text

    def calls(self, rendered: Sequence[str]) -> str:
        return "".join(rendered)

    def result(self, name: str, call_id: str, content: str, fmt: str) -> str:
        opening, closing = self.response
        # A tool's output that holds the closing mark would end there, and what follows would be the model's own words.
        text = without_tokens(content, (opening, closing, self.quote))
        return f"{opening}response:{name}{{value:{self.quote}{text}{self.quote}}}{closing}"

    def _value(self, value: Any) -> str:
        if isinstance(value, str):
            return f"{self.quote}{value}{self.quote}"
        if isinstance(value, dict):
            members = (f"{key}:{self._value(held)}" for key, held in value.items())
            return "{" + ",".join(members) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(self._value, value)) + "]"
        return json_text(value)

    def _fault(self, value: Any) -> str | None:
        """What cannot stand between the quotes, or before a colon."""
        left = [value]
        while left:
            held = left.pop()
            if isinstance(held, str) and self.quote in held:
                return "a text holds the quotes that would end it"
            if isinstance(held, Mapping):
                if not all(isinstance(key, str) and _KEY.fullmatch(key) and key.strip() == key != "" for key in held):
                    return "a key cannot be written"
                left += held.values()
            elif isinstance(held, list | tuple):
                left += held
        return None


# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/gemma4_tool_parser.py
# https://github.com/ggml-org/llama.cpp/blob/master/models/templates/google-gemma-4-31B-it-interleaved.jinja
GEMMA = Dialect(
    id="gemma4",
    family="gemma",
    level="A",
    openers=lambda _context: ("<|tool_call>",),
    parse=_parse,
    results=("<|tool_response>",),
    models=("gemma-4*", "gemma4*"),
    renderer=_Writer(
        id="gemma4",
        opening="<|tool_call>",
        closing="<tool_call|>",
        quote='<|"|>',
        response=("<|tool_response>", "<tool_response|>"),
    ),
    example='<|tool_call>call:read{filePath:<|"|>src/app.py<|"|>,limit:20}<tool_call|>',
)
# https://ai.google.dev/gemma/docs/functiongemma/formatting-and-best-practices
FUNCTION_GEMMA = Dialect(
    id="functiongemma",
    family="gemma",
    level="A",
    openers=lambda _context: ("<start_function_call>",),
    parse=_parse,
    results=("<start_function_response>",),
    models=("functiongemma*",),
    renderer=_Writer(
        id="functiongemma",
        opening="<start_function_call>",
        closing="<end_function_call>",
        quote="<escape>",
        response=("<start_function_response>", "<end_function_response>"),
    ),
    example="<start_function_call>call:read{filePath:<escape>src/app.py<escape>}<end_function_call>",
)
# Small models lose the token themselves: https://github.com/mattn/tensai/issues/217
GEMMA_STRIPPED = Dialect(
    id="gemma_stripped",
    family="gemma",
    level="C",
    # https://github.com/bayesimpact/bayes-platform/issues/731
    line_openers=lambda context: (
        "call:",
        "call :",
        # https://github.com/vllm-project/vllm/blob/main/tests/tool_parsers/test_gemma4_regex_and_bare_calls.py
        _CALL_TAG,
        *(f"default_api:{name}{bracket}" for name in context.tools.names for bracket in _BRACKETS),
    ),
    parse=_parse_stripped,
    carriers=("", "tool_call", "tool_code", "tool", "tools", "function"),
    example="call:read{filePath:src/app.py}",
)
