"""What is remembered of JSON texts: the same object for the same text, within bounds, and nothing that is gone."""

from itertools import count

import msgspec
import pytest

from gateway.wire import known_texts
from gateway.wire.chat_request import parse_request
from gateway.wire.known_texts import adopt, known_value, made_of


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
