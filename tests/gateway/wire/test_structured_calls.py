"""Structured calls as servers really send them: what is certain is mended, what is right is left alone."""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from gateway.wire.structured_calls import NativeCalls
from tests.support.cost import assert_linear


def calls() -> NativeCalls:
    made = iter(range(1, 100))
    return NativeCalls(lambda _dialect: f"call_made_{next(made)}")


def delta(index: int | None = 0, call_id: str | None = None, **function: Any) -> dict[str, Any]:
    """One delta as a server sends it; what is None is left out, except by `null`."""
    found: dict[str, Any] = {"function": function}
    if index is not None:
        found["index"] = index
    if call_id is not None:
        found["id"] = call_id
        found["type"] = "function"
    return found


def joined(deltas: list[dict[str, Any]]) -> list[dict[str, str]]:
    """What a strict client makes of deltas."""
    found: list[dict[str, str]] = []
    for each in deltas:
        function = each.get("function") or {}
        if each["index"] == len(found):
            assert each["id"]
            assert each["type"] == "function"
            found.append({"id": each["id"], "name": function["name"], "arguments": ""})
        else:
            assert "name" not in function
            assert "id" not in each
            assert "type" not in each or each["type"] == "function"
        found[each["index"]]["arguments"] += function.get("arguments") or ""
    return found


def mended(deltas: list[dict[str, Any]]) -> tuple[list[dict[str, str]], list[str]]:
    native = calls()
    for each in deltas:
        native.mend_deltas([each])
    return joined(deltas), native.mended


RIGHT = [
    delta(0, "call_a", name="read", arguments=""),
    delta(0, arguments='{"path"'),
    delta(0, arguments=': "a"}'),
    delta(1, "call_b", name="list", arguments="{}"),
]


def test_what_is_right_is_left_alone() -> None:
    deltas = deepcopy(RIGHT)
    found, faults = mended(deltas)
    assert deltas == RIGHT
    assert faults == []
    assert [call["arguments"] for call in found] == ['{"path": "a"}', "{}"]


@pytest.mark.parametrize("given", [None, ""])
def test_missing_id_is_made_once(given: str | None) -> None:
    first = delta(0, name="read", arguments="")
    if given is not None:
        first["id"] = given
    found, faults = mended([first, delta(0, arguments="{}")])
    assert found == [{"id": "call_made_1", "name": "read", "arguments": "{}"}]
    assert "id_missing" in faults
    assert "type_missing" in faults


def test_arguments_sent_as_an_object_become_their_json() -> None:
    found, faults = mended([delta(0, "call_a", name="read", arguments={"path": "a", "n": [1]})])
    assert json.loads(found[0]["arguments"]) == {"path": "a", "n": [1]}
    assert faults == ["arguments_object"]


def test_null_arguments_are_empty() -> None:
    found, faults = mended([delta(0, "call_a", name="read", arguments=None), delta(0, arguments="{}")])
    assert found[0]["arguments"] == "{}"
    assert faults == ["arguments_null"]


def test_missing_indexes_follow_the_calls() -> None:
    deltas = [
        delta(None, "call_a", name="read", arguments=""),
        delta(None, arguments='{"p":1}'),
        delta(None, "call_b", name="list", arguments=""),
        delta(None, "call_b", arguments="{}"),
    ]
    found, faults = mended(deltas)
    assert [(call["name"], call["arguments"]) for call in found] == [("read", '{"p":1}'), ("list", "{}")]
    assert faults.count("index_missing") == 4


@pytest.mark.parametrize(("key", "value"), [("id", None), ("id", ""), ("id", "call_a"), ("type", None), ("type", "")])
def test_what_later_pieces_repeat_or_leave_null_is_taken_out(key: str, value: str | None) -> None:
    later = delta(0, arguments="{}")
    later[key] = value
    found, faults = mended([delta(0, "call_a", name="read", arguments=""), later])
    assert found[0]["arguments"] == "{}"
    assert faults == [f"{key}_repeated"]


@pytest.mark.parametrize("name", ["read", "", None])
def test_repeated_name_is_taken_out(name: str | None) -> None:
    found, faults = mended([delta(0, "call_a", name="read", arguments=""), delta(0, name=name, arguments="{}")])
    assert found == [{"id": "call_a", "name": "read", "arguments": "{}"}]
    assert faults == ["name_repeated"]


def test_id_and_name_in_every_piece_are_one_call() -> None:
    pieces = ['{"p', '": 1', "}"]
    found, _ = mended([delta(0, "call_a", name="read", arguments=piece) for piece in pieces])
    assert found == [{"id": "call_a", "name": "read", "arguments": '{"p": 1}'}]


def test_parallel_calls_that_all_come_at_index_0_are_told_apart() -> None:
    deltas = [
        delta(0, "call_a", name="read", arguments='{"p": 1}'),
        delta(0, "call_b", name="list", arguments=""),
        delta(0, arguments='{"q": 2}'),
    ]
    found, faults = mended(deltas)
    assert [(call["id"], call["arguments"]) for call in found] == [("call_a", '{"p": 1}'), ("call_b", '{"q": 2}')]
    assert "index_repeated" in faults


def test_other_id_within_unfinished_arguments_is_the_same_call() -> None:
    deltas = [delta(0, "call_a", name="read", arguments='{"p": '), delta(0, "call_b", name="read", arguments="1}")]
    found, _ = mended(deltas)
    assert found == [{"id": "call_a", "name": "read", "arguments": '{"p": 1}'}]


@pytest.mark.cost
def test_an_id_of_its_own_in_every_piece_costs_linear_time() -> None:
    def mending(size: int) -> Callable[[], None]:
        pieces = ['{"text": "', *["}, "] * size, '"}']

        def mend() -> None:
            native = calls()
            for number, piece in enumerate(pieces):
                native.mend_deltas([delta(0, f"call_{number}", name="write", arguments=piece)])
            assert native.calls == [("call_0", "write", "".join(pieces))]

        return mend

    assert_linear(mending, 8_000)


@pytest.mark.parametrize("first", ["null", '"a"', " [] ", '{"p": "}"}'])
def test_any_whole_value_ends_a_call(first: str) -> None:
    native = calls()
    native.mend_deltas([delta(0, "call_a", name="read", arguments=first)])
    native.mend_deltas([delta(0, "call_b", name="list", arguments="{}")])
    assert [arguments for _, _, arguments in native.calls] == [first, "{}"]


def test_white_space_is_no_value() -> None:
    native = calls()
    for piece in (" ", "\n", '{"p": 1}'):
        native.mend_deltas([delta(0, f"call_{len(piece)}{ord(piece[0])}", name="read", arguments=piece)])
    assert [arguments for _, _, arguments in native.calls] == [' \n{"p": 1}']


def test_delta_without_a_function_gets_an_index_and_no_more() -> None:
    native = calls()
    lone = {"id": "call_a"}
    assert native.mend_deltas([lone])
    assert lone == {"id": "call_a", "index": 0}
    assert not native.mend_deltas("no list")
    assert not native.mend_deltas(["no object"])


def test_whole_message_is_mended_in_place() -> None:
    native = calls()
    message = [
        {"function": {"name": "read", "arguments": {"p": 1}}},
        {"id": "call_b", "type": "function", "function": {"name": "list", "arguments": "{}"}},
        "no object",
    ]
    assert native.mend_message(message)
    assert message[0] == {
        "id": "call_made_1",
        "type": "function",
        "function": {"name": "read", "arguments": '{"p":1}'},
    }
    assert message[1] == {"id": "call_b", "type": "function", "function": {"name": "list", "arguments": "{}"}}
    assert native.count == 2
    assert not calls().mend_message({"no": "list"})


def test_a_stop_beside_calls_is_tool_calls() -> None:
    native = calls()
    assert native.finish_reason("stop") == "stop"
    native.mend_deltas([delta(0, "call_a", name="read", arguments="{}")])
    assert native.finish_reason("stop") == "tool_calls"
    assert native.finish_reason("length") == "length"
    assert native.finish_reason(None) is None


def test_a_name_that_comes_late_is_the_calls() -> None:
    deltas = [delta(0, "call_a", arguments=""), delta(0, name="read"), delta(0, name="read", arguments="{}")]
    native = calls()
    native.mend_deltas(deltas)
    assert [each["function"].get("name") for each in deltas] == [None, "read", None]
    assert native.mended == ["name_repeated"]


def test_delta_without_a_function_keeps_its_index() -> None:
    odd = {"index": 3, "type": "custom"}
    native = calls()
    native.mend_deltas([odd])
    assert (odd, native.mended) == ({"index": 3, "type": "custom"}, [])
