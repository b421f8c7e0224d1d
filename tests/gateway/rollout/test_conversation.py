"""A conversation keeps its key over its turns, and shares it with no other."""

import json
import string
from typing import Any

from attrs import field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.rollout.conversation import conversation_key
from gateway.wire.chat_request import parse_request

SECRET = b"kept in the store"
TURNS: list[dict[str, Any]] = [
    {"role": "system", "content": "You are an agent."},
    {"role": "user", "content": "Read a.py"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "function": {"name": "read", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "1", "content": "x = 1"},
]


@frozen(kw_only=True)
class Asked:
    """A request as far as its key depends on it."""

    model: str = "m"
    messages: list[dict[str, Any]] = field(factory=lambda: TURNS[:2])
    body: dict[str, Any] = field(factory=dict)


def key(asked: Asked, *, secret: bytes = SECRET, sticky: str | None = None, credential: str | None = "sk-1") -> str:
    return conversation_key(secret, sticky=sticky, credential=credential, request=asked)


def test_key_is_a_word_of_hexadecimal_digits() -> None:
    assert len(key(Asked())) == 32
    assert set(key(Asked())) <= set(string.hexdigits.lower())


def test_key_stays_while_the_conversation_goes_on() -> None:
    assert {key(Asked(messages=TURNS[:count])) for count in range(2, 5)} == {key(Asked())}


def test_a_real_request_has_one() -> None:
    raw = json.dumps({"model": "m", "messages": TURNS[:2]}).encode()
    assert conversation_key(SECRET, sticky=None, credential="sk-1", request=parse_request(raw)) == key(Asked())


def test_whoever_speaks_of_something_else_has_another_key() -> None:
    others = [
        key(Asked(), credential="sk-2"),
        key(Asked(model="n")),
        key(Asked(messages=[TURNS[0], {"role": "user", "content": "Read b.py"}])),
        key(Asked(messages=[{"role": "system", "content": "You are another."}, TURNS[1]])),
        key(Asked(), secret=b"another"),
        key(Asked(), sticky="session"),
        key(Asked(messages=TURNS[:1])),
        key(Asked(messages=TURNS[1:2])),
    ]
    assert len({*others, key(Asked())}) == len(others) + 1


def test_fields_do_not_run_together() -> None:
    assert key(Asked(model="bc"), credential="a") != key(Asked(model="c"), credential="ab")


def test_sticky_value_decides_alone() -> None:
    assert key(Asked(), sticky="s") == key(Asked(model="n", messages=[]), sticky="s", credential=None)
    assert key(Asked(), sticky="s") != key(Asked(), sticky="t")
    assert key(Asked(), sticky="") == key(Asked())


def test_user_field_stands_for_a_missing_credential() -> None:
    one, other = (key(Asked(body={"user": name}), credential=None) for name in ("ann", "bob"))
    assert one != other
    assert key(Asked(body={"user": "ann"})) == key(Asked())
    assert key(Asked(body={"user": ["no", "name"]}), credential=None) == key(Asked(), credential=None)


def test_parts_count_as_the_text_they_hold() -> None:
    parts = [
        {"type": "text", "text": "Read "},
        {"type": "image_url", "image_url": {}},
        {"type": "text", "text": "a.py"},
    ]
    assert key(Asked(messages=[TURNS[0], {"role": "user", "content": parts}])) == key(Asked())


def test_only_the_head_of_the_system_prompt_counts() -> None:
    one, other = ({"role": "developer", "content": "x" * 2048 + end} for end in ("today", "tomorrow"))
    assert key(Asked(messages=[one, TURNS[1]])) == key(Asked(messages=[other, TURNS[1]]))


def test_a_long_secret_counts_whole() -> None:
    assert key(Asked(), secret=b"x" * 65) != key(Asked(), secret=b"x" * 66)


CONTENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["text", "type", "x"]), inner),
    max_leaves=8,
)
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant", "tool", "x"]), "content": CONTENTS}),
    max_size=6,
)


@settings(max_examples=100)
@given(MESSAGES, st.text(), st.none() | st.text(), st.none() | st.text(), CONTENTS)
def test_any_request_has_a_key(
    messages: Any, model: str, sticky: str | None, credential: str | None, user: Any
) -> None:
    asked = Asked(model=model, messages=messages, body={"user": user})
    assert len(key(asked, sticky=sticky, credential=credential)) == 32


@settings(max_examples=50)
@given(MESSAGES, MESSAGES)
def test_what_comes_later_changes_nothing(first: Any, later: Any) -> None:
    assert key(Asked(messages=TURNS[:2] + first)) == key(Asked(messages=TURNS[:2] + first + later))
