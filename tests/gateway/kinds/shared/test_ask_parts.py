"""Parts of OpenAI chat requests, every one checked before another wire is told of it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import InvalidRequest
from gateway.kinds.shared.ask_parts import (
    Blob,
    Choice,
    Names,
    arguments_of,
    blob_of,
    bounded_nesting,
    choice_of,
    effort_of,
    functions_of,
    messages_of,
    number_of,
    parts_of,
    refuse_more_choices,
    stops_of,
    token_limit,
    tool_calls_of,
)


@pytest.mark.parametrize(
    ("url", "blob"),
    [
        ("http://x/a.png", Blob(url="http://x/a.png")),
        ("gs://bucket/a", Blob(url="gs://bucket/a")),
        ("data:image/png;base64,AAAA", Blob(media_type="image/png", data="AAAA")),
        ("data:image/PNG; BASE64,AAAA", Blob(media_type="image/png", data="AAAA")),
        ("data:,a%20b", Blob(media_type="text/plain", data="YSBi")),
        ("DATA:text/x,a", Blob(media_type="text/x", data="YQ==")),
    ],
)
def test_a_url_holds_or_points_to_something(url: str, blob: Blob) -> None:
    assert blob_of(url, where="here") == blob


@pytest.mark.parametrize("url", ["", "file:///etc/passwd", "data:image/png", "ftp://x"])
def test_any_other_url_is_refused_by_its_place(url: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        blob_of(url, where="messages[3]")
    assert refused.value.param == "messages[3]"


def test_parts_are_told_by_their_kind_and_empty_ones_left_out() -> None:
    content = [
        "a",
        {"type": "text", "text": ""},
        {"type": "refusal", "refusal": "no"},
        {"type": "image_url", "image_url": "http://x"},
        {"type": "file", "file": {"file_id": "f"}},
        {"type": "file", "file": {"file_data": "data:,x", "filename": "n"}},
        {"type": "input_audio", "input_audio": {"data": "AA"}},
        7,
    ]
    parts = list(parts_of(content, where="w"))
    assert [part.kind for part in parts] == ["text", "text", "image", "file", "file", "audio"]
    assert (parts[1].text, parts[3].file_id, parts[4].blob.name) == ("no", "f", "n")
    assert parts[5].blob == Blob(media_type="audio/wav", data="AA")
    assert list(parts_of(None, where="w")) == list(parts_of("", where="w")) == []
    with pytest.raises(InvalidRequest) as refused:
        list(parts_of([{"type": "text", "text": "a"}, {"type": "odd"}], where="w"))
    assert refused.value.param == "w[1].type"


@pytest.mark.parametrize(
    ("choice", "meant"),
    [
        (None, Choice()),
        ("odd", Choice()),
        ("required", Choice(mode="any", is_given=True)),
        ("none", Choice(mode="none", is_given=True)),
        ({"type": "function", "function": {"name": "f"}}, Choice(mode="tool", names=("f",), is_given=True)),
        ({"name": "f"}, Choice(mode="tool", names=("f",), is_given=True)),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"name": "a"}, 3, {}]}},
            Choice(mode="any", names=("a",), is_given=True),
        ),
        ({"type": "allowed_tools"}, Choice(mode="auto", is_given=True)),
        ({"type": "odd"}, Choice()),
    ],
)
def test_a_choice_is_told_in_every_form(choice: Any, meant: Choice) -> None:
    assert choice_of({"tool_choice": choice}) == meant


def test_functions_without_a_name_are_none() -> None:
    named = {"function": {"name": "f", "parameters": [], "description": 3}}
    odd: list[Any] = [3, {}, {"function": {"name": ""}}, named]
    [function] = functions_of({"tools": odd})
    assert (function.name, function.parameters, function.description, function.cache) == ("f", {}, "", None)
    assert functions_of({"tools": {}}) == []
    assert tool_calls_of({"tool_calls": [3, {}, {"function": {"name": "f"}}]}) == [{"function": {"name": "f"}}]


@pytest.mark.parametrize("arguments", ["", "  ", None, {}])
def test_no_arguments_are_an_empty_object(arguments: Any) -> None:
    assert arguments_of({"function": {"arguments": arguments}}) == {}


def test_arguments_that_are_no_object_are_told_as_text() -> None:
    assert arguments_of({"function": {"arguments": "[1]"}}) == {"arguments": "[1]"}
    assert bytes(arguments_of({"function": {"arguments": ' {"a": 1.50} '}})) == b'{"a": 1.50}'  # type: ignore[call-overload]


@given(st.lists(st.text(max_size=4), max_size=12), st.sampled_from(["", "a", "abc"]))
def test_different_names_stay_different_and_come_back(names: list[str], letters: str) -> None:
    spelt = Names(lambda name: "".join(letter if letter in letters else "_" for letter in name) or "_")
    told = [spelt.told(name) for name in names]
    assert len(set(told)) == len(set(names))
    assert [spelt.meant(name) for name in told] == names
    assert spelt.meant("unheard of") == "unheard of"


def test_numbers_and_words_of_a_request_are_taken_only_if_they_are_some() -> None:
    assert token_limit({"max_tokens": 5, "max_completion_tokens": None}) == 5
    for wrong in (0, True, 1.5, "5"):
        with pytest.raises(InvalidRequest):
            token_limit({"max_completion_tokens": wrong})
    assert [number_of({"t": value}, "t") for value in (1, 0.5, True, "1", float("nan"), None)] == [1, 0.5, *[None] * 4]
    assert stops_of({"stop": ["a", " ", 3, ""]}) == ["a"]
    assert stops_of({"stop": "b"}) == ["b"]
    assert effort_of({"reasoning": {"effort": "HIGH"}}) == "high"
    assert effort_of({"reasoning_effort": 3}) is None
    refuse_more_choices({"n": 1})
    with pytest.raises(InvalidRequest):
        refuse_more_choices({"n": 2})


@pytest.mark.parametrize("messages", [None, {}, [3], [{}], [{"role": "robot"}], [{"role": ["user"]}]])
def test_messages_without_a_known_role_are_refused(messages: Any) -> None:
    with pytest.raises(InvalidRequest):
        messages_of({"messages": messages})


def test_what_nests_too_deeply_is_refused() -> None:
    with pytest.raises(InvalidRequest), bounded_nesting():
        raise RecursionError
