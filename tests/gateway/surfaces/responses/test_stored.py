"""Answers that are kept: chains of them, references to their items, pages of inputs, and what is no client's own."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.core.errors import (
    ClientError,
    NotFound,
)
from gateway.surfaces.responses.stored import (
    MAX_DEPTH,
    Keeping,
    Shelf,
    entry_of,
    has_references,
    is_own_id,
    listed_items,
    stored_key,
)
from gateway.surfaces.responses.telling import item_letters
from tests.gateway.surfaces.responses.test_surface import (
    KEPT,
    SITUATION,
    UNIQUE,
    accept,
    answered,
    chain_of,
    gone_on,
    said,
)
from tests.support.strict_clients import whole_chat


def test_a_chain_of_answers_is_the_whole_conversation() -> None:
    known, last = chain_of(4)
    asked = gone_on(known, SITUATION, input="and now?", previous_response_id=last)
    assert [message["content"] for message in asked.request.messages] == [
        *("question 0", "answer 0", "question 1", "answer 1", "question 2", "answer 2", "question 3", "answer 3"),
        "and now?",
    ], "instructions are those of one request alone"


def test_an_answer_that_is_not_to_be_kept_is_not() -> None:
    assert answered(accept(input="x", store=False))[1] == {}
    assert answered(accept(input="x", store=False))[0]["store"] is False
    final, kept = answered(accept(input="x"))
    assert final["store"] is True
    assert len(kept) == 1


def test_an_answer_is_kept_once() -> None:
    telling = accept(input="x").tell()
    telling.whole(whole_chat("stop", content="x"))
    assert len(telling.remember()) == 1
    assert telling.remember() == ()


def test_a_large_answer_is_not_kept() -> None:
    situation = replace(SITUATION, options={**KEPT, "responses_max_bytes": 100})
    told, kept = answered(accept(situation, input="x"))
    assert (told["store"], kept) == (False, {})
    assert answered(accept(input="x"))[0]["store"] is True


@pytest.mark.parametrize(
    ("options", "setting"),
    [({**KEPT, "responses_ttl_s": 0.0}, "RESPONSES_TTL_S"), ({**KEPT, "audit_bodies": "none"}, "AUDIT_BODIES")],
)
def test_where_none_are_kept_it_says_by_which_setting(options: Any, setting: str) -> None:
    situation = replace(SITUATION, options=options)
    assert answered(accept(situation, input="x"))[0]["store"] is False
    with pytest.raises(ClientError, match=setting):
        accept(situation, input="x", previous_response_id=f"resp_{UNIQUE}")


@pytest.mark.parametrize("response_id", ["", "resp_short", f"resp_{UNIQUE}", "x" * 500, "resp_" + "é" * 24, 7])
def test_an_unknown_answer_is_refused_by_its_field(response_id: Any) -> None:
    with pytest.raises(ClientError) as caught:
        gone_on({}, SITUATION, input="x", previous_response_id=response_id)
    assert (caught.value.code, caught.value.param) == ("previous_response_not_found", "previous_response_id")


def test_the_answers_of_another_client_are_unknown() -> None:
    known, last = chain_of(1)
    with pytest.raises(ClientError):
        gone_on(known, replace(SITUATION, scope="bob"), input="x", previous_response_id=last)


def test_an_answer_before_it_that_is_gone_is_unknown() -> None:
    known, last = chain_of(3)
    del known[min(known)]
    with pytest.raises(ClientError):
        gone_on(known, SITUATION, input="x", previous_response_id=last)


def test_a_reference_is_the_item_that_it_names() -> None:
    known, _ = chain_of(1)
    entry = json.loads(next(iter(known.values())))
    ids = [entry["input"][0]["id"], entry["response"]["output"][0]["id"]]
    items = [{"type": "item_reference", "id": each} for each in ids]
    asked = gone_on(known, SITUATION, input=[*items, said("user", "more")])
    assert [message["content"] for message in asked.request.messages] == ["question 0", "answer 0", "more"]


@pytest.mark.parametrize("item_id", ["", "msg_x", f"msg_{UNIQUE}", None, 7])
def test_a_reference_to_nothing_is_refused(item_id: Any) -> None:
    with pytest.raises(ClientError) as caught:
        gone_on({}, SITUATION, input=[{"type": "item_reference", "id": item_id}])
    assert caught.value.code == "item_not_found"


# --- Pages of an input's items, and ids that can be none


ITEMS = [{"id": f"msg_{number}"} for number in range(30)]


@pytest.mark.parametrize(
    ("query", "first", "last", "more"),
    [
        ({}, 29, 10, True),
        ({"order": "asc"}, 0, 19, True),
        ({"order": "asc", "limit": "100"}, 0, 29, False),
        ({"order": "asc", "after": "msg_19"}, 20, 29, False),
        ({"after": "msg_5", "limit": "2"}, 4, 3, True),
        ({"order": "asc", "limit": "0"}, 0, 0, True),
        ({"order": "asc", "limit": "-3"}, 0, 19, True),
        ({"order": "asc", "after": "nobody", "limit": "9" * 30}, 0, 19, True),
    ],
)
def test_a_page_is_what_was_asked_for(query: Any, first: int, last: int, more: bool) -> None:
    page = listed_items(ITEMS, query)
    assert (page["first_id"], page["last_id"], page["has_more"]) == (f"msg_{first}", f"msg_{last}", more)


def test_an_empty_input_has_a_page_too() -> None:
    assert listed_items([], {}) == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


@pytest.mark.parametrize("response_id", ["", "resp_x", "resp_../../etc/passwd0000000", "resp_" + "x" * 25])
def test_what_can_be_no_id_is_not_found(response_id: str) -> None:
    with pytest.raises(NotFound):
        stored_key("alice", response_id)


def test_keys_are_each_client_s_own() -> None:
    assert stored_key("alice", "resp_" + "x" * 24) != stored_key("bob", "resp_" + "x" * 24)


# --- Values that are none


@pytest.mark.parametrize(
    "value",
    [
        *(
            None,
            b"",
            b"{",
            b"[]",
            b"{}",
            b'{"input": [], "before": []}',
            b'{"input": {}, "before": [], "response": {}}',
        ),
        b'{"input": [], "before": {}, "response": {"output": []}}',
        b'{"input": [], "before": [], "response": {"output": "x"}}',
        b'{"input": [], "before": [], "response": []}',
    ],
)
def test_what_was_not_kept_whole_is_nothing(value: bytes | None) -> None:
    assert entry_of(value) is None


def test_what_was_kept_whole_is_read() -> None:
    entry = {"input": [1], "before": ["a"], "response": {"output": []}}
    assert entry_of(json.dumps(entry).encode()) == entry


@pytest.mark.parametrize(
    ("items", "found"),
    [([], False), ([{"type": "message"}, 3], False), ([{"type": "item_reference"}], True), (["item_reference"], False)],
)
def test_references_are_known_by_their_type(items: list[Any], found: bool) -> None:
    assert has_references(items) is found


@pytest.mark.parametrize(
    ("response_id", "own"),
    [
        (f"resp_{UNIQUE}", True),
        (UNIQUE, True),
        (UNIQUE[:-1], False),
        (f"{UNIQUE[:-1]}-", False),
        (f"{UNIQUE[:-1]}é", False),
    ],
)
def test_an_id_of_our_own_has_its_form(response_id: str, own: bool) -> None:
    assert is_own_id(response_id) is own


def test_a_chain_has_a_longest_length() -> None:
    shelf = Shelf(scope="a", known={}, keeping=Keeping(ttl_s=1.0))
    for count, is_taken in ((MAX_DEPTH - 1, True), (MAX_DEPTH, False)):
        before = [f"{number:016d}" for number in range(count)]
        entry = json.dumps({"input": [], "before": before, "response": {"output": []}}).encode()
        keys = [shelf.key(letters) for letters in (*before, item_letters(UNIQUE))]
        full = Shelf(scope="a", known=dict.fromkeys(keys, entry), keeping=Keeping(ttl_s=1.0))
        if is_taken:
            assert len(full.chain(f"resp_{UNIQUE}")[1]) == MAX_DEPTH
        else:
            with pytest.raises(ClientError, match="at most"):
                full.chain(f"resp_{UNIQUE}")
    assert repr(shelf) == "<Shelf>"
