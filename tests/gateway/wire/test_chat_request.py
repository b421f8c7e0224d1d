"""Requests: what the gateway itself relies on is checked, with the place of the fault."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import InvalidRequest
from gateway.wire.chat_request import READ_FIELDS, parse_request

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
    assert evolve(again, tools=asked.tools) == renamed
    assert asked.model == asked.body["model"] == "m"


@pytest.mark.parametrize("model", [" ", "a\nb"])
def test_no_request_is_renamed_to_what_is_no_name(model: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_request(raw()).renamed(model)
