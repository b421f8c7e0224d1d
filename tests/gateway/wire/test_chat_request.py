"""Requests: what the gateway itself relies on is checked, with the place of the fault."""

import json
from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.core.errors import InvalidRequest
from gateway.wire import known_texts
from gateway.wire.chat_request import READ_FIELDS, decoded_body, parse_request, renamed
from gateway.wire.json_scan import JsonScanner, JsonTooDeep
from gateway.wire.known_texts import adopt, forget_all, known_value, made_of
from tests.support.cost import assert_linear

USER = {"role": "user", "content": "hi"}


def raw(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [USER], **fields}).encode()


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"[1]", None),
        (b"{", None),
        (b"[" * 100_000, None),
        (raw(model=" "), "model"),
        (raw(model="a\nb"), "model"),
        (raw(model=None), "model"),
        (raw(stream="yes"), "stream"),
        (raw(messages=[]), "messages"),
        (raw(messages={"role": "user"}), "messages"),
        (raw(messages=[USER, {"content": "x"}]), "messages[1]"),
        (raw(parallel_tool_calls="yes"), "parallel_tool_calls"),
        (raw(parallel_tool_calls=0), "parallel_tool_calls"),
        (raw(tools={}), "tools"),
        (raw(tools=[{}, 3]), "tools[1]"),
        (raw(tool_choice=[]), "tool_choice"),
    ],
)
def test_a_request_that_cannot_be_read_names_its_fault(body: bytes, param: str | None) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_request(body)
    assert refused.value.param == param


FIELDS = {
    "model": ("m", "gpt-4o"),
    "messages": ([USER], [{"role": "user", "content": "bye"}]),
    "stream": (True, False),
    "stream_options": ({"include_usage": True}, None),
    "tools": ([], [{"function": {"name": "f"}}]),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([], []),
    "function_call": ("none", "auto"),
    "n": (1, 2),
    "user": ("a", "b"),
}


def spelt_out(name: str) -> str:
    return "".join(f"\\u{ord(letter):04X}" for letter in name)


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("other", [str, spelt_out, lambda name: name[0] + spelt_out(name[1:2]) + name[2:]])
def test_a_field_that_decides_is_there_once(name: str, other: Callable[[str], str]) -> None:
    """A model server may go by the first where we go by the last."""
    assert FIELDS.keys() == READ_FIELDS
    members = {"model": "m", "messages": [USER], "x": {}}
    members.pop(name, None)
    first, last = (json.dumps(value) for value in FIELDS[name])
    rest = json.dumps(members)[1:-1]
    for body in (
        f'{{"{name}": {first}, {rest}, "{other(name)}": {last}}}',
        f'{{"{other(name)}": {first}, "{name}": {first}, {rest}}}',
        f'{{ {rest} ,"{name}"\n:\t{last}\r, "{name}" :{first}, "{other(name)}": {last} }}',
        f'{{"{name}":{first},{rest.replace(" ", "")},"{other(name)}":{last}}}',
        f'{{"{other(name)}":{last.replace(" ", "")},"{name}":{last.replace(" ", "")}}}',
    ):
        with pytest.raises(InvalidRequest) as refused:
            parse_request(body.encode())
        assert refused.value.param == name


def test_names_of_these_fields_elsewhere_are_nobodys_business() -> None:
    """In schemas, arguments and texts, quoted and spelt out, and doubled where nothing is read."""
    schema: dict[str, Any] = {"properties": {name: {"properties": {name: {}}} for name in FIELDS}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    texts = [{"role": "user", "content": f'{{"{name}": 1, "{name}": 2}} {spelt_out(name)}'} for name in FIELDS]
    body = raw(tools=[tool], messages=texts, metadata={"\ud83d": 10**400})
    inner = '{"model": 1, "model": 2, "stream": 1e999, "stream": 2}'
    doubled = body[:-1] + f', "x": {inner}, "x": [{inner}], "\\u0078": 0, "max_tokens": 1, "max_tokens": 2}}'.encode()
    for each in (body, doubled):
        assert parse_request(each).raw == each


BLANK = st.text(" \t\r\n", max_size=3)

NAME = st.sampled_from(["model", "messages", "n", "x", "y"])

JSON = st.recursive(
    st.none() | st.integers(-9, 9) | st.sampled_from([" ", ',"n":1', '"', "\\", "}"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAME, inner, max_size=2),
    max_leaves=4,
)

MEMBER = st.tuples(BLANK, NAME, BLANK, BLANK, JSON, st.sampled_from([None, 1]), BLANK)


@given(st.lists(MEMBER, max_size=6), BLANK)
def test_members_are_counted_however_they_are_written(members: list[Any], blank: str) -> None:
    written = [
        f"{a}{json.dumps(name)}{b}:{c}{json.dumps(value, indent=indent)}{d}"
        for a, name, b, c, value, indent, d in members
    ]
    names = [member[1] for member in members]
    doubled = {name for name in names if names.count(name) > 1} & READ_FIELDS
    message = ""
    try:
        parse_request(f"{blank}{{{','.join(written)}}}{blank}".encode())
    except InvalidRequest as refused:
        message = refused.message
    assert ("more than once" in message) == bool(doubled)


def test_what_is_no_function_with_a_name_is_no_tool() -> None:
    """It goes up with the request all the same: the upstream may know it."""
    named = {"type": "function", "function": {"name": "read", "description": 3, "parameters": "none"}}
    odd = [{"type": "web_search"}, {"function": "x"}, {"function": {"name": ""}}, {"function": {"name": 5}}]
    request = parse_request(raw(tools=[*odd, named]))
    assert request.tools.names == ("read",)
    (tool,) = request.tools
    assert (tool.description, tool.parameters) == ("", {})
    assert json.loads(request.raw)["tools"] == [*odd, named]


@pytest.mark.parametrize("value", [None, True, False])
def test_parallel_calls_are_allowed_forbidden_or_left_open(value: bool | None) -> None:
    assert parse_request(raw(parallel_tool_calls=value)).parallel is value


def test_half_a_character_is_told_as_such_and_stays_in_the_bytes() -> None:
    raw = b'{"model":"m","messages":[{"role":"user","content":"a \\ud83d b \\ud83d\\ude00 \\\\ud83d"}]}'
    request = parse_request(raw)
    assert request.raw == raw
    assert request.messages[0]["content"] == "a \ufffd b \U0001f600 \\ud83d"
    assert json.loads(request.replace(model="n")) == {**request.body, "model": "n"}


@pytest.mark.parametrize("fault", [b"NaN", b"1e999", b'"\\udc00', b"[" * 5000 + b"]" * 5000, b'"\xff"'])
def test_half_a_character_excuses_no_other_fault(fault: bytes) -> None:
    with pytest.raises(InvalidRequest):
        parse_request(b'{"model":"m","messages":[{"role":"user","content":"\\ud83d"}],"x":' + fault + b"}")


def test_a_renamed_request_is_what_its_bytes_say() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    asked = parse_request(raw(tools=tools, tool_choice="auto", stream=True, user=None, parallel_tool_calls=False))
    renamed = asked.renamed("other")
    again = parse_request(renamed.raw)
    assert again.body == renamed.body == {**asked.body, "model": "other"}
    assert [*again.tools] == [*renamed.tools]
    assert replace(again, tools=asked.tools) == renamed
    assert asked.model == asked.body["model"] == "m"


@pytest.mark.parametrize("model", [" ", "a\nb"])
def test_no_request_is_renamed_to_what_is_no_name(model: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_request(raw()).renamed(model)


# --- What is remembered of JSON texts: the same object for the same text, within bounds, and nothing that is gone


def test_the_same_text_is_the_same_object():
    first = known_value(b'[{"a": 1}]')
    assert first == [{"a": 1}]
    assert known_value(bytes(bytearray(b'[{"a": 1}]'))) is first


def test_texts_that_differ_in_a_letter_nobody_samples_are_told_apart():
    texts = [b'["%b"]' % (b"x" * at + b"y" + b"x" * (999 - at)) for at in range(1000)]
    assert [known_value(text) for text in texts] == [msgspec.json.decode(text) for text in texts]


def test_what_is_made_of_a_value_is_made_once():
    numbers, value = count(), known_value(b"[1]")
    assert [made_of(value, "number", lambda: next(numbers) + 1) for _ in range(3)] == [1, 1, 1]
    assert made_of(value, "another", lambda: next(numbers) + 1) == 2


def test_what_is_made_of_a_value_that_nobody_knows_is_made_each_time():
    numbers, value = count(), [1]
    assert [made_of(value, "number", lambda: next(numbers) + 1) for _ in range(3)] == [1, 2, 3]


def test_what_belongs_to_a_value_goes_with_it():
    value, child = known_value(b"[1]"), [2]
    adopt(value, child)
    first = made_of(child, "copy", lambda: list(child))
    assert made_of(child, "copy", lambda: list(child)) is first
    for number in range(200):
        known_value(b"[%d, 0]" % number)
    assert made_of(child, "copy", lambda: list(child)) is not first
    assert known_value(b"[1]") is not value


@pytest.mark.parametrize(("size", "most"), [(100, 64), (120_000, 40)])
def test_neither_number_nor_room_grows_without_bound(size, most):
    for number in range(300):
        text = b'["%b", %d]' % (b"x" * size, number)
        adopt(known_value(text), [number])
    assert len(known_texts._by_sample) <= most
    assert len(known_texts._by_id) <= 2 * most


def test_a_text_that_is_too_large_is_not_remembered():
    text = b'["%b"]' % (b"x" * (1 << 18))
    assert known_value(text) is not known_value(text)


def test_requests_with_the_same_tools_share_them_and_what_was_made_of_them():
    tools = b'[{"type": "function", "function": {"name": "a", "parameters": {}}}]'
    requests = [
        parse_request(b'{"model": "m", "messages": [{"role": "user", "content": "%d"}], "tools": %b}' % (number, tools))
        for number in range(2)
    ]
    assert requests[0].tools is requests[1].tools
    assert requests[0].body["tools"] is requests[1].body["tools"]
    for number, request in enumerate(requests):
        renamed = msgspec.json.decode(request.renamed("n").raw)
        assert renamed == {**request.body, "model": "n"}
        assert renamed["messages"][0]["content"] == str(number)


# ---


SCANNED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def end_in_pieces(pieces: list[str]) -> int:
    """The end in the joined text, found piece by piece."""
    scanner = JsonScanner()
    before = 0
    for piece in pieces:
        end = scanner.feed(piece)
        if end >= 0:
            return before + end
        before += len(piece)
    return -1


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ('{"a":1} tail', 7),
        ("[]", 2),
        ('"x" y', 3),
        ('"a\\"b" c', 6),
        ("[[1],[2]]]", 9),
        ('{"a":"}"}', 9),
        ('{"a":"\\\\"}x', 10),
        ('{"a":"line\nbreak"}', 18),
        ("-12.5e+3,", 8),
        ("true}", 4),
        ("null ", 4),
        (",", 0),
    ],
)
def test_finds_the_end(text, end):
    assert JsonScanner().feed(text) == end


@pytest.mark.parametrize("text", ["{", '{"a":"}', '"abc', '"abc\\', "[[]", "12", "tru", '{"a":"\\"}', ""])
def test_says_when_the_value_is_still_open(text):
    assert JsonScanner().feed(text) == -1


def test_begins_where_it_is_told():
    assert JsonScanner().feed('xx{"a":1}', 2) == 9


def test_stays_at_the_end_once_found():
    scanner = JsonScanner()
    assert scanner.feed("[] rest") == 2
    assert scanner.feed("more") == 0


def test_knows_a_scalar():
    scalar, container = JsonScanner(), JsonScanner()
    scalar.feed("12")
    container.feed("[12")
    assert scalar.is_scalar
    assert not container.is_scalar


def test_the_depth_bound_is_exact():
    assert JsonScanner(64).feed("[" * 64 + "]" * 64) == 128
    with pytest.raises(JsonTooDeep):
        JsonScanner(64).feed("[" * 65 + "]" * 65)


def test_the_depth_bound_holds_over_pieces():
    scanner = JsonScanner(3)
    for _ in range(3):
        scanner.feed('{"a":')
    with pytest.raises(JsonTooDeep):
        scanner.feed("{")


def test_brackets_in_strings_are_no_depth():
    text = json.dumps({"a": "[" * 1000})
    assert JsonScanner(2).feed(text) == len(text)


@settings(max_examples=150)
@given(value=SCANNED, tail=st.sampled_from(["", " ", "}", "]x", '"', "</a>", ","]), data=st.data())
def test_any_cut_finds_the_same_end(value, tail, data):
    text = json.dumps(value, ensure_ascii=False) + tail
    whole = JsonScanner().feed(text)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert end_in_pieces(pieces) == whole
    assert end_in_pieces(list(text)) == whole


@settings(max_examples=150)
@given(text=st.text(alphabet='{}[]"\\a1,: \n', max_size=60), data=st.data())
def test_any_cut_of_rubbish_finds_the_same_end(text, data):
    cut = data.draw(st.integers(0, len(text)))
    whole = JsonScanner().feed(text)
    assert end_in_pieces([text[:cut], text[cut:]]) == whole
    assert end_in_pieces(list(text)) == whole


@settings(max_examples=100)
@given(value=SCANNED)
def test_the_end_is_that_of_the_standard_decoder(value):
    text = json.dumps([value]) + "]}"
    assert JsonScanner(1000).feed(text) == json.JSONDecoder().raw_decode(text)[1]


@pytest.mark.cost
@pytest.mark.parametrize("piece", ["[]", '"a"', "[1]", '"\\""', " ", '{"a":"\\n"},', '"\\'])
def test_time_grows_with_the_text(piece):
    def scanning(size: int) -> Callable[[], object]:
        text = "[" + piece * (size // len(piece))
        return lambda: JsonScanner().feed(text)

    assert_linear(scanning, 1 << 15)


TOOLS = json.dumps(
    [{"type": "function", "function": {"name": f"t{each}", "description": "d" * 300}} for each in range(9)]
)


@pytest.mark.parametrize(
    "body",
    [
        '{"model": "m", "messages": [], "tools": TOOLS, "stream": true}',
        '{"model": "m", "messages": ["and one more"], "tools": TOOLS, "stream": true}',
        '{"model": "m", "messages": [], "tools": TOOLS , "stream": false, "user": "x"}',
        '{"model": "m", "messages": [{"tools": TOOLS}]}',
        '{"model": "m", "messagez": [], "tools": TOOLS, "tools": [1]}',
        '{"model": "m", "messages": [], "tools": [1], "tools":TOOLS}',
        '{"model": "m", "messages": [], "tools": TOOLS',
        '{"model": "m", "messages": [], "tools": [TOOLS]}',
        '{"model": "m", "messages": [], "tools": TOOLS 1}',
        '{"model": "m", "messages": [], "other": TOOLS}',
    ],
)
def test_tools_that_are_known_are_found_where_they_stand_and_nowhere_else(body: str) -> None:
    raw = body.replace("TOOLS", TOOLS).encode()

    def decoded() -> Any:
        try:
            return decoded_body(raw)
        except InvalidRequest as error:
            return str(error)

    forget_all()
    cold = decoded()
    for start, behind in (
        (43, 16),
        (raw.find(TOOLS.encode()), 0),
        (0, len(raw) - raw.find(TOOLS.encode()) - len(TOOLS)),
    ):
        known = known_value(TOOLS.encode(), start, behind)
        assert decoded() == cold
    if "model" in cold and isinstance(cold, dict) and cold.get("tools") == known:
        assert cold["messages"] is not decoded()["messages"]
        assert decoded()["tools"] is decoded()["tools"]


@pytest.mark.parametrize("model", ["b", 'q"uote', "ä"])
def test_another_model_is_put_in_its_place_and_no_other_byte_is_touched(model: str) -> None:
    before, behind = b'{ "x": 1.00000000000000000001, "model" :', b',"y":12345678901234567890123 }'
    assert renamed(before + b'"a"' + behind, model) == before + msgspec.json.encode(model) + behind
    escaped = rb'{"mod\u0065l": "a", "n": 1}'
    assert json.loads(renamed(escaped, model)) == {"model": model, "n": 1}
