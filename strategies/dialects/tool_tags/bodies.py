"""What may stand between a tool's tags in place of parameters: JSON, YAML, the sole value; and attributes.

Each reader looks at the first characters only before it says no, so that a tag that is just a word in prose is given
back at once.
"""

import re

from strategies.dialects.tool_tags.call import TagCall, tag_parts
from strategies.grammar.bare_data import ends_message
from strategies.grammar.dialect import Opening
from strategies.grammar.json_payload import read_surplus
from strategies.grammar.raw_value import decode_entities
from strategies.schema.names import resolve_parameter
from strategies.text.cursor import Cursor, Reject, Steps
from strategies.text.entities import TwoReadings, attribute_value
from strategies.text.tape import Taken
from strategies.text.tolerant_json import JsonFault, parsing
from strategies.text.turns import TURN, Turns
from strategies.text.yaml_lines import NoMapping, reading_mapping

__all__ = [
    "read_attributes",
    "read_json_body",
    "read_name_attribute",
    "read_sole_text",
    "read_sole_value",
    "read_unclosed_tag",
    "read_words",
    "read_yaml_body",
]

_NAME_RUN = re.compile(r"[A-Za-z0-9_.:-]*")
_PATH_NAME = re.compile(r"path|file|dir|folder", re.IGNORECASE)
_WORDS = re.compile(r"\A[^/\\]*\s[^/\\]*\Z")
_SOLE_RUN = re.compile(r"[^<\n]*")
_SPACES = re.compile(r" *")
_BLANKS = re.compile(r"[ \t]*")
_KEY_RUN = re.compile(r"[A-Za-z0-9_.$\"'-]*")
_SOLE_BOUND = 1024
_FOR_PEOPLE = frozenset({"answer", "message", "question", "response", "result", "summary", "text", "thought"})
# `<read>the manual</read>` may be anybody's tag.
_COMMON_WORDS = frozenset("read write edit list task patch grep glob bash question skill".split())
_COMPOUND = re.compile(r"[a-z][_-][A-Za-z]|[a-z][A-Z]")
_WORDS_RUN = re.compile(r"[^<]*")
_WORDS_BOUND = 1 << 14
_KEY_BOUND = 128
_TAKEN = 50
"""How many parameters are kept in one turn."""


def read_attributes(cur: Cursor, call: TagCall) -> Steps:
    """Attributes of the tool's tag as parameters; True when the tag closes itself."""
    while True:
        spaces = yield from cur.ws()
        if (yield from cur.lit("/>")):
            return True
        if (yield from cur.lit(">")):
            return False
        # Bounded, as nothing has shown yet that this is the tool's tag.
        name = yield from cur.match(_NAME_RUN, 64)
        if not name or not spaces or not (yield from cur.lit("=")):
            raise Reject("another tag")
        key, mends = resolve_parameter(name, call.schema, call.texts)
        is_known = key in call.schema.properties
        # Ids and types are added by models (https://github.com/cline/cline/issues/7385); any other attribute shows
        # another document.
        if not is_known and name not in _NOISE:
            raise Reject("no parameter of this tool")
        quote = yield from cur.lits(('"', "'"))
        pieces = Taken(cur)
        if quote is None or not (yield from cur.until(quote, pieces.add)):
            raise Reject("attribute not closed")
        cur.pos += 1
        if is_known:
            call.mends += mends
            text = pieces.text()
            try:
                value = attribute_value(text)
            except TwoReadings as doubt:
                raise Reject(str(doubt), attempted=True) from None
            if value != text:
                call.mends.append("entities")
            yield from cur.work(call.storing(key, value))


_NOISE = frozenset({"id", "type", "call_id", "index", "class", "xmlns", "version"})
"""What models say of a call beside its parameters."""


def read_name_attribute(cur: Cursor) -> Steps:
    """The tool that ` name="read_file">` names, also beside an id or a type."""
    found = ""
    for _ in range(_MOST_ATTRIBUTES):
        yield from cur.ws()
        if found and (yield from cur.lit(">")):
            return found
        key = yield from cur.match(_NAME_RUN, 64)
        if (key != "name" and key not in _NOISE) or not (yield from cur.lit("=")):
            raise Reject("no name")
        quote = yield from cur.lits(('"', "'"))
        value: str = yield from cur.match(_NAME_RUN, 64)
        if not value or (quote and not (yield from cur.lit(quote))) or (found and key == "name"):
            raise Reject("no name")
        found = value if key == "name" else found
    raise Reject("no name")


_MOST_ATTRIBUTES = 4


def read_json_body(cur: Cursor, call: TagCall) -> Steps:
    """`<read_file>{"path": "a"}</read_file>`: an object whose keys are parameters."""
    pieces = Taken(cur)
    if not (yield from cur.json(pieces.add)):
        raise Reject("value not closed", attempted=True)
    # A brace too many has ended the object already: it is none of its text.
    call.mends += yield from read_surplus(cur)
    keys = tuple(call.schema.properties)
    try:
        parsed = yield from cur.work(
            parsing(pieces.text(), closed=True, body_keys=call.schema.body_keys, known_keys=keys)
        )
    except JsonFault as fault:
        raise Reject(fault.reason, attempted=True) from None
    found = yield from cur.work(call.schema.opening(parsed.value))
    if found is None or not all(call.is_parameter(key) for key in found.arguments):
        raise Reject("no parameter of this tool")
    given = {call.parameter(key): value for key, value in found.arguments.items()}
    adapted = yield from cur.work(call.schema.adapting(given))
    call.mends += (*parsed.steps, *found.mends, *adapted.mends)
    call.take(adapted.arguments)


def read_sole_text(cur: Cursor, call: TagCall) -> Steps:
    """The only required parameter as the text of an element: up to the first `<`, which nothing in it may be."""
    names = [name for name in call.schema.required if call.schema.prop(name).only_string]
    if len(call.schema.required) != 1 or not names:
        raise Reject("input without names", attempted=True)
    text: str = yield from cur.match(_TEXT_RUN, _TEXT_BOUND)
    if not text.strip():
        raise Reject("no input", attempted=True)
    call.store(names[0], text.strip())


_TEXT_RUN = re.compile(r"[^<]*")
_TEXT_BOUND = 1 << 14


def read_sole_value(cur: Cursor, call: TagCall) -> Steps:
    """`<read_file>a.py</read_file>`: the only required parameter, a string of one line that is no document.

    Tags of common words may be anybody's markup; of them a parameter's own tag is asked for.
    """
    if call.tag in _COMMON_WORDS:
        raise Reject("no parameter")
    # Only a text: a bare number or word between tags could be meant for any other type.
    names = [name for name in call.schema.required if call.schema.prop(name).only_string]
    if len(call.schema.required) != 1 or not names or call.schema.prop(names[0]).body:
        raise Reject("no parameter")
    text = yield from cur.match(_SOLE_RUN, _SOLE_BOUND)
    if not text.strip() or not (yield from cur.starts(f"</{call.tag}>")):
        raise Reject("no parameter")
    # https://github.com/cline/cline/issues/4839
    if _PATH_NAME.search(names[0]) and _WORDS.search(text.strip()):
        raise Reject("words where a path belongs")
    call.store(names[0], text.strip())


def read_words(cur: Cursor, call: TagCall, opening: Opening) -> Steps:
    """`<send_message>It is done.</send_message>`: words for a person, in a call that is all of the answer's end.

    False where the tool has no such parameter; a tag that is one common word is never taken for such a call.
    """
    key = _words_of(call)
    # Three signs at once, as the words between the tags could be anybody's.
    if not key or not opening.starts_line or not _COMPOUND.search(call.tag):
        return False
    text = yield from cur.match(_WORDS_RUN, _WORDS_BOUND)
    if not text.strip() or not (yield from cur.lit(f"</{call.tag}>")):
        raise Reject("no parameter")
    call.end = cur.offset
    if not (yield from ends_message(cur)):
        raise Reject("no parameter")
    call.mends.append("sole_words")
    call.store(key, decode_entities(key, text.strip(), call.values.get))
    return True


def _words_of(call: TagCall) -> str:
    """The one text that the tool takes, if that is what a person reads."""
    schema = call.schema
    names = [name for name, prop in schema.properties.items() if prop.is_string]
    if schema.required:
        names = [*schema.required] if len(schema.required) == 1 else []
    is_one = len(names) == 1 and names[0] in _FOR_PEOPLE and schema.prop(names[0]).only_string
    return names[0] if is_one else ""


def read_yaml_body(cur: Cursor, call: TagCall) -> Steps:
    """Lines of `key: value` up to the call's closer at the keys' own indentation; False where none begin here.

    The cursor stands at the beginning of a line and, if this is no such body, does again.
    """
    cur.anchor = start = cur.offset
    indent = len((yield from cur.match(_SPACES, _KEY_BOUND)))
    begins = yield from _begins_mapping(cur, call)
    # Given back: whoever reads the body begins at its first blank.
    cur.back(start)
    cur.anchor = None
    if not begins:
        return False
    pieces = Taken(cur)
    closed = yield from _until_closer(cur, f"</{call.tag}>", indent, pieces)
    text = pieces.text()
    # Without its closer only a whole last line may count, and only where the model has ended by itself.
    if not closed and (cur.cut or not text.endswith("\n")):
        raise Reject("value not closed", attempted=True)
    last = yield from cur.work(_take_mapping(call, text))
    # A document that the answer ends in may have been cut.
    if not closed and call.schema.prop(call.parameter(last)).body:
        raise Reject("value not closed", attempted=True)
    return True


def _begins_mapping(cur: Cursor, call: TagCall) -> Steps:
    """Whether a line `key: value` of a parameter begins here; moves on."""
    key = (yield from cur.match(_KEY_RUN, _KEY_BOUND)).strip("\"'")
    is_line = (yield from cur.lit(":")) and (yield from cur.peek(1)) in ("", " ", "\r", "\n")
    return bool(key) and is_line and (call.is_parameter(key) or _is_prompted(call))


def _take_mapping(call: TagCall, text: str) -> Turns[str]:
    """Keep the parameters that the text maps to values; returns the last one's name."""
    try:
        found = yield from reading_mapping(text)
    except NoMapping:
        raise Reject("no parameter") from None
    for count, key in enumerate(found, 1):
        if not count % TURN:
            yield
        if not call.is_parameter(key) and not _is_prompted(call):
            raise Reject("no parameter of this tool")
    for count, (name, value) in enumerate(found.items(), 1):
        yield from _take_yaml(call, call.parameter(name), value)
        if not count % _TAKEN:
            yield
    return list(found)[-1]


def read_unclosed_tag(cur: Cursor, call: TagCall) -> Steps:
    """Lines of `key: value` or child tags inside the tool's own tag, up to a line `/>`; False where none begin here.

    The cursor stands behind the tag's name and, if this is no such tag, does again.
    """
    cur.anchor = start = cur.offset
    begins = False
    yield from cur.match(_BLANKS, _KEY_BOUND)
    if (yield from cur.lit("\r\n")) or (yield from cur.lit("\n")):
        indent = len((yield from cur.match(_SPACES, _KEY_BOUND)))
        in_tags = (yield from cur.peek(1)) == "<"
        if in_tags:
            parts = tag_parts((yield from cur.tag()) or "")
            begins = parts is not None and not parts[0] and call.is_parameter(parts[1])
        else:
            begins = yield from _begins_mapping(cur, call)
    cur.back(start)
    cur.anchor = None
    if not begins:
        return False
    yield from cur.match(_BLANKS, _KEY_BOUND)
    cur.pos += 2 if (yield from cur.starts("\r\n")) else 1
    pieces = Taken(cur)
    if not (yield from _until_closer(cur, "/>", indent, pieces)):
        raise Reject("not closed", attempted=True)
    cur.pos += 2
    call.mends.append("call_opener_broken")
    text = pieces.text()
    if not in_tags:
        yield from cur.work(_take_mapping(call, text))
        return True
    found = yield from cur.work(call.schema.reading_tags(text))
    if found is None:
        raise Reject("no parameter of this tool", attempted=True)
    call.mends += found.mends
    call.take(found.arguments)
    return True


def _is_prompted(call: TagCall) -> bool:
    # A tool that says nothing of its parameters takes any; asked in this form, the model has meant these.
    return call.context.prompted == "generic_xml" and not call.schema.properties


def _take_yaml(call: TagCall, key: str, value: object) -> Turns[None]:
    if isinstance(value, str):
        yield from call.storing(key, value)
    elif value is None and call.schema.prop(key).only_string:
        call.store(key, "")
    else:
        adapted = yield from call.schema.adapting({key: value})
        call.mends += adapted.mends
        call.take(adapted.arguments)


def _until_closer(cur: Cursor, closer: str, indent: int, pieces: Taken) -> Steps:
    """Everything up to the closer that stands first on its line, no deeper than `indent`; False at the end."""
    line = ""

    def take(text: str) -> None:
        nonlocal line
        pieces.add(text)
        behind = text.rsplit("\n", 1)
        # No more of the line is kept than decides: a long one would be joined again with each piece.
        line = (behind[1] if len(behind) > 1 else line + text)[: indent + 1]

    while (yield from cur.until(closer, take)):
        if len(line) <= indent and not line.strip(" "):
            return True
        take(closer)
        cur.pos += len(closer)
    return False
