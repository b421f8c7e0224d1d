"""The parameters of a tag-per-tool call: each one's value, and where the call they belong to ends."""

from strategies.dialects.tool_tags.call import (
    NOISE,
    PARAMETER_CLOSERS,
    PROTOTYPE_KEYS,
    TagCall,
    parameter_of,
    tag_parts,
)
from strategies.grammar.dialect import Arguments
from strategies.grammar.raw_value import (
    MEND_OF_END,
    Sink,
    Way,
    awaits_path,
    decode_entities,
    doubt,
    last_tag,
    read_cdata,
    read_value,
    refusal,
    trimmed,
    unwrap_cdata,
    without_breaks,
    without_fence,
)
from strategies.grammar.value_end import confirm_end
from strategies.schema.names import resolve_parameter
from strategies.text.cursor import Cursor, Reject, Steps
from strategies.text.dumping import dumps
from strategies.text.turns import Turns

__all__ = ["read_end", "read_line_value", "read_parameters"]


def read_parameters(cur: Cursor, call: TagCall, way: Way, arguments: Arguments) -> Steps:
    """All parameters, up to whatever is not one."""
    while True:
        yield from cur.ws()
        if (yield from cur.peek(1)) != "<":
            return
        tag = (yield from cur.tag()) or ""
        if tag in NOISE:
            cur.pos += len(tag)
            continue
        if call.texts and (yield from _next_call(cur, call, tag)):
            return
        named = parameter_of(tag)
        parts = None if named else tag_parts(tag)
        if named:
            written, is_empty = named
        elif parts and not parts[0]:
            written, is_empty = parts[1:]
        else:
            return
        call.by_attribute = named is not None
        key, mends = resolve_parameter(written, call.schema, call.texts)
        call.mends += mends
        cur.pos += len(tag)
        if is_empty:
            _empty_value(call, key, arguments)
        else:
            yield from _value(cur, call, key, key if named else written, way, arguments)


def _next_call(cur: Cursor, call: TagCall, tag: str) -> Steps:
    """Whether the tag opens the call of a tool, one of whose own parameters follows."""
    tool = call.next_tool(tag)
    if tool is None:
        return False
    cur.anchor = start = cur.offset
    cur.pos += len(tag)
    yield from cur.ws()
    parts = tag_parts((yield from cur.tag()) or "") if (yield from cur.peek(1)) == "<" else None
    cur.back(start)
    cur.anchor = None
    return parts is not None and not parts[0] and parts[1] in call.context.schema(tool).properties


def _empty_value(call: TagCall, key: str, arguments: Arguments) -> None:
    """A parameter whose tag closes itself."""
    repeated = key in call.texts
    call.store(key, "")
    if arguments.live and key in call.values:
        if repeated or call.is_spoilt:
            raise Reject("parameter given twice")
        arguments.key(key)
        arguments.piece(dumps(call.values[key]))


def _value(cur: Cursor, call: TagCall, key: str, written: str, way: Way, arguments: Arguments) -> Steps:
    """One value, written as the tag `written`, up to behind its closer."""
    prop = call.schema.prop(key)
    if key in PROTOTYPE_KEYS and key not in call.schema.properties:
        arguments = Arguments(None)
    sink = Sink(arguments, key, body=prop.body, flows=prop.flows and key not in call.texts, cur=cur)
    call.sink = sink
    if cur.literal_breaks:
        sink.pause()
    closers = (f"</{written}>", *(PARAMETER_CLOSERS if call.by_attribute else ()))
    if (yield from read_cdata(cur, sink, closers)):
        how = "closed"
    else:
        nests = not prop.is_string and not way.lenient and bool(prop.types & {"object", "array"})
        how = yield from read_value(cur, call, written, body=prop.body, way=way, sink=sink, nests=nests)
    call.last_body = written if prop.body else None
    # A name that is no parameter's, closed under another one: which of the two was meant is not told.
    if how in _CLOSED_AS_OTHER and call.schema.properties and key not in call.schema.properties:
        yield from doubt(cur)
    if how != "closed":
        call.mends.append("document_closed_by_next" if how == "by_next" and prop.body else MEND_OF_END[how])
    call.is_closed = how == "swapped"
    call.last_tag = last_tag(sink.raw)
    repeated = key in call.texts
    yield from cur.work(_keep(cur, call, key, sink))
    if arguments.live:
        if repeated or call.is_spoilt:
            raise Reject("parameter given twice")
        if key in call.values:
            yield from cur.work(sink.closing(call.values[key]))


_CLOSED_AS_OTHER = frozenset({"foreign", "loose", "swapped"})


def _keep(cur: Cursor, call: TagCall, key: str, sink: Sink) -> Turns[None]:
    """Store the value without its CDATA section, entities or code fence, if it was wrapped in one."""
    body = call.schema.prop(key).body
    value = unwrap_cdata(sink.raw)
    if value is not None:
        yield from call.storing(key, value if body else trimmed(value, body=False))
        return
    plain = without_breaks(cur, sink.value())
    is_known = not (body and awaits_path(call.schema.properties, call.values))
    # Some models escape what they write into tags, some do not, and a file may hold entities of its own:
    # https://github.com/cline/cline/issues/7698 https://github.com/RooCodeInc/Roo-Code/issues/10804
    value = decode_entities(key, plain, call.values.get) if is_known else plain
    if value != plain:
        call.mends.append("entities")
    # A document in a fence of its own: the fence is no line of the file.
    elif body:
        value = without_fence(key, plain, call.values.get)
        if value != plain:
            call.mends.append("fence_stripped")
    yield from call.storing(key, value)


def read_line_value(cur: Cursor, call: TagCall, key: str, way: Way) -> Steps:
    """A value of a call without tags of its own: a document must be followed by the end or by more of the call."""
    nobody = Arguments(None)
    if call.schema.prop(key).body:
        yield from _value(cur, call, key, key, way, nobody)
        return
    sink = Sink(nobody, key, body=False, flows=False)
    if not (yield from cur.until(f"</{key}>", sink)):
        raise Reject("value not closed", attempted=True)
    cur.pos += len(key) + 3
    yield from cur.work(_keep(cur, call, key, sink))


def read_end(cur: Cursor, call: TagCall, way: Way) -> Steps:
    """The call's own closer, one that stands in its place, or the end of the answer; returns where the call ends."""
    yield from cur.ws()
    if call.container and (yield from cur.lit(f"</{call.container}>")):
        yield from cur.ws()
    if call.is_closed:
        return (yield from _end_of_call(cur, call, way))
    if (yield from cur.at_stub(call.ends)):
        if cur.cut:
            raise Reject("cut", attempted=True)
        cur.pos = len(cur.text)
        if call.last_tag == f"</{call.tag}>":
            yield from doubt(cur)
        call.mends.append("call_closer_missing")
        return None
    tag = (yield from cur.tag()) if (yield from cur.peek(1)) == "<" else None
    if tag is not None and call.last_body is None and (yield from _next_call(cur, call, tag)):
        call.mends.append("call_closer_missing")
        return None
    if tag is None or not tag.startswith("</"):
        raise (yield from refusal(cur, call, "text between parameters"))
    if not call.is_closer(tag):
        raise (yield from refusal(cur, call, "not closed"))
    cur.pos += len(tag)
    return (yield from _end_of_call(cur, call, way))


def _end_of_call(cur: Cursor, call: TagCall, way: Way) -> Steps:
    """Where the call ends, behind its closer."""
    end = cur.offset
    if call.last_body is None:
        return None
    yield from confirm_end(cur, call, call.last_body, way, lacks=call.schema.lacks(call.texts))
    return end
