"""Pages of an input's items, and ids that can be none."""

from typing import Any

import pytest

from gateway.core.errors import NotFound
from gateway.surfaces.responses.stored import listed_items, stored_key

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
