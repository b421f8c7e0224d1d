"""Conversations that come again: what is known of one is not read again, and changes nothing."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import InvalidRequest
from gateway.wire import chat_request, conversations
from gateway.wire.chat_request import decoded_body
from gateway.wire.conversations import (
    forget_conversations,
    is_remembered,
    keep_beginning,
    made_of_beginning,
)
from gateway.wire.known_texts import forget_all
from tests.support.cost import steps

TEXT = "x]," * 12


@pytest.fixture(autouse=True)
def short_ones_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "LONG", 64)
    monkeypatch.setattr(chat_request, "LONG", 64)


def decoded(raw: bytes) -> Any:
    try:
        return decoded_body(raw)
    except InvalidRequest as error:
        return str(error)


def cold(raw: bytes) -> Any:
    """What is read where nothing is known, by Python's own parser where that takes it."""
    forget_all()
    forget_conversations()
    return decoded(raw)


def items(count: int, first: int = 0) -> list[Any]:
    return [{"role": "user", "content": f"{at} {TEXT}"} for at in range(first, first + count)]


def of(messages: list[Any]) -> Any:
    """The list that a request has."""
    return decoded(json.dumps({"model": "m", "messages": messages}).encode())["messages"]


WRITERS = {
    "compact": lambda value: json.dumps(value, separators=(",", ":")),
    "python": json.dumps,
    "indented": lambda value: json.dumps(value, indent=1),
    "blanks": lambda value: " " + json.dumps(value, separators=(" ,\t", ":\r\n ")) + "\n",
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("name", ["messages", "input"])
@pytest.mark.parametrize("tools", ["none", "before", "behind"])
def test_a_turn_takes_the_items_of_the_turn_before(write: Any, name: str, tools: str) -> None:
    declared = {"tools": [{"type": "function", "function": {"name": "f", "description": "long " * 500}}]}
    before, behind = declared if tools == "before" else {}, declared if tools == "behind" else {}

    def body(messages: list[Any], model: str = "m") -> bytes:
        return str(write({"model": model, **before, name: messages, "n": 1, **behind})).encode()

    first = decoded(body(items(9)))
    assert first == json.loads(body(items(9)))
    for count, model in ((10, "m"), (13, "another"), (13, "another"), (14, "m")):
        found = decoded(body(items(count), model))
        assert found == json.loads(body(items(count), model))
        assert found[name][8] is first[name][8], "it was read again"
        found[name].append("what one request does to its list no other sees")


@pytest.mark.parametrize(
    "end",
    [
        *("]", " \n]", "]\n ", ",1]", " , [2] ]", ', {"role": "tool"}, "]"]'),
        *("", ",", ",]", ", ]", "]]", "],", "] 1", ",1", ",1]]", ",1],", ',"]', "5]", '"x"]', ",12]", ",1.5]"),
    ],
)
@pytest.mark.parametrize("known", ["]", ", [2] ]", ",1,2]", ",1]"])
def test_whatever_follows_is_read_as_if_nothing_were_known(known: str, end: str) -> None:
    begin = ", ".join(map(json.dumps, items(20)))
    raw = f'{{"model": "m", "messages": [{begin}{end}}}'.encode()
    expected = cold(raw)
    forget_conversations()
    first = decoded(f'{{"model": "m", "messages": [{begin}{known}}}'.encode())
    for _ in range(2):
        found = decoded(raw)
        assert found == expected
        if isinstance(expected, dict):
            assert found["messages"][0] is first["messages"][0]


@pytest.mark.parametrize(
    "body",
    [
        '{"model": "m", "messages": [0], "messages": LIST}',
        '{"model": "m", "messages": LIST, "messages": [0]}',
        '{"model": "m", "mess\\u0061ges": [0], "messages": LIST}',
        '{"model": "m", "messages": [0], "mess\\u0061ges": LIST}',
        '{"model": "m", "messages": [LIST]}',
        '{"model": "m", "messages": {"messages": LIST}}',
        '{"model": "m", "messages": [0], "other": {"messages": LIST}}',
        '{"model": "m", "messages": "LIST"}',
        '{"model": "m", "messages": LIST 1}',
        '{"model": "m", "messages": LIST',
        '{"model": "m", "input": LIST}',
        '{"messages": LIST}',
        '{"model": "\\"messages\\": [", "messages": LIST}',
    ],
)
def test_a_conversation_is_known_where_it_is_a_members_value_and_nowhere_else(body: str) -> None:
    text = json.dumps(items(12))
    raw = body.replace("LIST", text).encode()
    expected = cold(raw)
    forget_conversations()
    decoded(b'{"model": "m", "messages": %b}' % text.encode())
    assert decoded(raw) == expected
    # Where it stands is as likely as not where it stood.
    for known in conversations._conversations:
        known.start = raw.find(text.encode())
    assert decoded(raw) == expected
    forget_conversations()


VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | st.sampled_from(["", "]", '"', "\\", "a,b", "é\n", TEXT]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "messages", "]"]), inner),
    max_leaves=6,
)


@given(st.data())
def test_a_history_that_changes_anywhere_is_read_as_it_is(data: st.DataObject) -> None:
    conversations_before = data.draw(st.lists(VALUE, max_size=12))
    separators = data.draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,", ": ")]))
    forget_conversations()
    for _ in range(4):
        at = data.draw(st.integers(0, len(conversations_before)))
        keep = data.draw(st.integers(0, len(conversations_before) - at))
        conversations_before[at : len(conversations_before) - keep] = data.draw(st.lists(VALUE, max_size=3))
        fields = {"model": data.draw(st.sampled_from(["m", "mm"])), "messages": conversations_before, "n": 1}
        body = dict(data.draw(st.permutations(list(fields.items()))))
        raw = json.dumps(body, separators=separators).encode()
        assert decoded(raw) == body


def test_what_was_made_of_a_beginning_goes_on_with_it_as_far_as_it_comes_again() -> None:
    first = of(items(12))
    assert made_of_beginning(first, "what") == (0, None)
    keep_beginning(first, "what", 8, "eight")
    keep_beginning(first, "else", 11, "eleven")
    changed = [*items(10), {"role": "user"}, *items(4, 10)]
    again = of(changed)
    assert made_of_beginning(again, "what") == (8, "eight")
    assert made_of_beginning(again, "else") == (0, None), "of one that came otherwise"
    # Nobody else's list, though it says the same.
    assert made_of_beginning([*again], "what") == (0, None)
    assert not is_remembered([*again])
    assert is_remembered(again)


def test_another_conversation_with_the_same_tools_is_found_behind_them() -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": "long " * 500}}]

    def asked(first: int, count: int) -> Any:
        body = {"model": "m", "tools": tools, "messages": items(count, first), "n": 1}
        return decoded(json.dumps(body).encode())["messages"]

    for number in range(3):  # from the second time on the tools are known where they stand
        before = asked(100 * number, 9)
    assert asked(200, 11)[8] is before[8]


def test_a_conversation_that_is_another_one_from_its_middle_is_another_one() -> None:
    one = [*items(2), *items(10, 100)]
    other = [*items(2), *items(10, 200)]
    for _ in range(3):
        for each in (one, other):
            assert of(each) == each
    assert len(conversations._conversations) == 2


def test_neither_number_nor_room_grows_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(100):
        decoded(json.dumps({"model": "m", "messages": [f"{number} {TEXT * 9}", number]}).encode())
    assert len(conversations._conversations) == conversations._MOST
    size = conversations._LONGEST
    for number in range(20):
        decoded(json.dumps({"model": "m", "messages": [str(number) * (size - 50), number]}).encode())
    kept = sum(len(each.raw) for each in conversations._conversations)
    assert size <= kept <= conversations._ROOM
    before = len(conversations._conversations)
    too_large = json.dumps({"model": "m", "messages": ["y" * size]}).encode()
    assert decoded(too_large)["messages"] is not decoded(too_large)["messages"]
    assert len(conversations._conversations) == before
    found = decoded(json.dumps({"model": "m", "messages": items(9)}).encode())["messages"]
    for number in range(9):
        keep_beginning(found, number, 1, number)
    assert sum(made_of_beginning(found, number)[0] for number in range(9)) == conversations._MOST_MADE


def test_a_list_of_very_many_items_is_read_and_not_remembered() -> None:
    raw = b'{"model": "m", "messages": [%b0]}' % (b"1, " * 300_000)
    assert steps(lambda: decoded(raw), most=1_000) < 100
    assert not conversations._conversations


def test_to_look_for_a_conversation_costs_one_search_however_many_are_known() -> None:
    for number in range(conversations._MOST):
        decoded(json.dumps({"model": "m", "messages": [f"{number} {TEXT * 9}", number]}).encode())
    raw = json.dumps({"model": "another", "n": 1, "messages": items(30, 900)}).encode()
    searches = 0

    def counted(name: str, whole: bytes) -> int:
        nonlocal searches
        searches += 1
        return list_of(name, whole)

    list_of = conversations._list_of
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conversations, "_list_of", counted)
        assert decoded(raw)["messages"] == items(30, 900)
    assert searches == 1


def test_the_next_turn_costs_what_is_new_in_it_however_long_the_conversation_is() -> None:
    def cost(count: int) -> int:
        raws = [
            msgspec.json.encode({"model": "m", "messages": items(each), "stream": True}) for each in (count, count + 2)
        ]
        forget_conversations()
        decoded(raws[0])
        return steps(lambda: decoded(raws[1]), most=100_000)

    short, long = cost(20), cost(2_000)
    # Halving goes on for a few steps more.
    assert long <= short + 60, (short, long)
