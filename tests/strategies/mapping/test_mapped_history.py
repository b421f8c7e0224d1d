"""The past, translated for the model: what it sees, under which ids, and what stays as it was."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.base import base_id, part_id
from tests.support.edit_tools import CLIENTS, Surface

EDITOR = "str_replace_based_edit_tool"


def call(call_id: object, name: str, arguments: object, **more: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}, **more}


def turn(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": list(calls)}


def result(call_id: str, content: object, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


def shown(client: str, mapping: str, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    return CLIENTS[client].mapped(mapping, list(messages)).request.messages


def edit(call_id: object, old: str, new: str, path: str = "f.py", **more: Any) -> dict[str, Any]:
    return call(call_id, "edit", {"filePath": path, "oldString": old, "newString": new, **more})


BLOCKS = "<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n\n<<<<<<< SEARCH\nc\n=======\n>>>>>>> REPLACE"


def test_several_blocks_are_several_calls() -> None:
    messages = shown(
        "roo",
        "claude_text_editor",
        turn(call("c1", "apply_diff", {"path": "f", "diff": BLOCKS})),
        result("c1", "2 applied"),
        {"role": "user", "content": "go on"},
    )
    assert [(one["id"], json.loads(one["function"]["arguments"])) for one in messages[0]["tool_calls"]] == [
        ("c1", {"command": "str_replace", "path": "f", "old_str": "a", "new_str": "b"}),
        ("c1_2of2", {"command": "str_replace", "path": "f", "old_str": "c\n", "new_str": ""}),
    ]
    assert [one.get("tool_call_id") for one in messages[1:]] == ["c1", "c1_2of2", None]
    assert messages[1]["content"] == "2 applied"
    assert "before it" in messages[2]["content"]


def test_calls_that_were_one_patch_are_one_again() -> None:
    messages = shown(
        "opencode",
        "apply_patch",
        turn(
            edit("c1", "a\n", "b\n"),
            edit("c1_2of3", "c\n", "d\n"),
            call("c1_3of3", "write", {"filePath": "g", "content": "x\n"}),
            call("c9", "bash", {"command": "ls"}),
        ),
        result("c1", "one", name="edit"),
        result("c1_2of3", "two"),
        result("c1_3of3", "three"),
        result("c9", "four", name="bash"),
    )
    first, second = messages[0]["tool_calls"]
    assert first["id"] == "c1"
    assert json.loads(first["function"]["arguments"]) == {
        "input": "*** Begin Patch\n*** Update File: f.py\n@@\n-a\n+b\n@@\n-c\n+d\n*** Add File: g\n+x\n*** End Patch"
    }
    assert second == call("c9", "bash", {"command": "ls"})
    assert messages[1:] == [
        result("c1", "[1 of 3: edit]\none\n\n[2 of 3: edit]\ntwo\n\n[3 of 3: write]\nthree", name="apply_patch"),
        result("c9", "four", name="bash"),
    ]


def test_results_in_parts_are_joined_as_parts() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    messages = shown(
        "opencode",
        "apply_patch",
        turn(edit("c1", "a\n", "b\n"), edit("c1_2of2", "c\n", "d\n")),
        result("c1_2of2", [image]),
        result("c1", "one"),
    )
    (joined,) = messages[1:]
    assert joined["tool_call_id"] == "c1"
    assert joined["content"] == [
        {"type": "text", "text": "[1 of 2: edit]"},
        {"type": "text", "text": "one"},
        {"type": "text", "text": "[2 of 2: edit]"},
        image,
    ]


def test_a_result_that_is_missing_is_not_invented() -> None:
    messages = shown(
        "opencode",
        "apply_patch",
        turn(edit("c1", "a\n", "b\n"), edit("c1_2of2", "c\n", "d\n")),
        result("c1_2of2", "two"),
    )
    assert messages[1:] == [result("c1", "[2 of 2: edit]\ntwo")]


@pytest.mark.parametrize(
    "ids",
    [("c1", "c1_2of3"), ("c1", "c1_3of3"), ("c1", "c2_2of2"), ("c1", "c1"), ("c1_2of2", "c1"), (None, "c1_2of2")],
)
def test_calls_whose_ids_do_not_belong_together_stay_apart(ids: tuple[Any, Any]) -> None:
    messages = shown("opencode", "apply_patch", turn(edit(ids[0], "a\n", "b\n"), edit(ids[1], "c\n", "d\n")))
    assert [one["id"] for one in messages[0]["tool_calls"]] == list(ids)
    assert {one["function"]["name"] for one in messages[0]["tool_calls"]} == {"apply_patch"}


def test_a_part_that_is_there_twice_joins_nothing() -> None:
    parts = [edit(call_id, "a\n", "b\n") for call_id in ("c1", "c1_2of2", "c1_2of2")]
    assert len(shown("opencode", "apply_patch", turn(*parts))[0]["tool_calls"]) == 3


def test_a_block_that_ends_with_an_empty_line_says_so() -> None:
    diff = "------- SEARCH\na\n\n=======\nb\n+++++++ REPLACE"
    (message,) = shown("cline", "claude_text_editor", turn(call("c1", "replace_in_file", {"path": "f", "diff": diff})))
    arguments = json.loads(message["tool_calls"][0]["function"]["arguments"])
    assert (arguments["old_str"], arguments["new_str"]) == ("a\n\n", "b\n")


def test_parts_of_one_call_that_would_not_lead_back_stay_apart() -> None:
    partial = edit("c1_2of2", "c", "d")
    messages = shown("opencode", "apply_patch", turn(edit("c1", "a\n", "b\n"), partial), result("c1_2of2", "two"))
    assert [one["function"]["name"] for one in messages[0]["tool_calls"]] == ["apply_patch", "edit"]
    assert messages[0]["tool_calls"][1] == partial
    assert messages[1] == result("c1_2of2", "two")


def roo_diff(body: str) -> dict[str, Any]:
    return call("c1", "apply_diff", {"path": "f", "diff": body})


@pytest.mark.parametrize(
    ("client", "past"),
    [
        ("opencode", edit("c1", "a", "b", replaceAll=True)),
        ("opencode", edit("c1", "", "b")),
        ("opencode", edit("c1", "a", "b", extra=1)),
        ("opencode", edit("c1", "a", "b", path="")),
        ("opencode", call("c1", "edit", '{"filePath": "f"')),
        ("opencode", call("c1", "edit", '["f"]')),
        ("opencode", call("c1", "edit", {"filePath": "f", "oldString": 1, "newString": "b"})),
        ("opencode", call("c1", "read", {"filePath": "f", "offset": 0})),
        ("opencode", call("c1", "read", {"filePath": "f", "offset": True})),
        ("opencode", call("c1", "read", {"filePath": "f", "limit": 0})),
        ("opencode", call("c1", "glob", {"pattern": "*"})),
        ("opencode", {"id": "c1", "type": "function", "function": None}),
        ("opencode", {"id": "c1", "type": "custom", "custom": {"name": "edit", "input": "x"}}),
        ("pi", call("c1", "read", {"path": "f", "offset": 3})),
        ("pi", call("c1", "edit", {"path": "f", "edits": [{"oldText": "a", "newText": "b"}] * 2})),
        ("roo", call("c1", "list_files", {"path": "src", "recursive": True})),
        ("roo", call("c1", "write_to_file", {"path": "f", "content": "a", "line_count": 7})),
        ("roo", call("c1", "write_to_file", {"path": "f", "content": "```\na\n```", "line_count": 3})),
        ("roo", call("c1", "insert_content", {"path": "f", "line": 0, "content": "x"})),
        ("roo", call("c1", "read_file", {"path": "f", "start_line": 9, "end_line": 3})),
        ("roo", roo_diff("<<<<<<< SEARCH\n:start_line:3\n-------\na\n=======\nb\n>>>>>>> REPLACE")),
        ("roo", roo_diff("<<<<<<< SEARCH\na\n=======\nb\n")),
        ("roo", roo_diff("<<<<<<< SEARCH\n=======\nb\n>>>>>>> REPLACE")),
        ("roo", roo_diff("<<<<<<< SEARCH\n\na\n=======\nb\n>>>>>>> REPLACE")),
        ("roo", roo_diff("<<<<<<< SEARCH\na\n=======\nb\n=======\n>>>>>>> REPLACE")),
        ("roo", roo_diff("Here:\n<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE")),
        ("roo", roo_diff("<<<<<<< SEARCH\r\na\r\n=======\r\nb\r\n>>>>>>> REPLACE")),
        ("kilo", call("c1", "read_file", {"files": [{"path": "f", "line_ranges": [[1, 2], [5, 6]]}]})),
        ("kilo", call("c1", "read_file", {"files": []})),
        ("kilo", call("c1", "read_file", {"files": ["f"]})),
        ("kilo", call("c1", "read_file", {"files": [{"path": 3}]})),
        ("pi", call("c1", "edit", {"path": "f", "edits": ["a"]})),
        ("cline_sdk", call("c1", "editor", {"path": "f", "new_text": 3})),
        ("cline_sdk", call("c1", "editor", {"path": "f", "new_text": "a", "insert_line": 0})),
        ("roo", call("c1", "write_to_file", {"path": "f", "content": 3})),
        ("kilo", call("c1", "read_file", {"files": [{"path": "f", "line_ranges": ["1-2"]}]})),
    ],
)
def test_what_has_no_exact_counterpart_stays_as_it_is(client: str, past: dict[str, Any]) -> None:
    messages = [{"role": "user", "content": "x"}, turn(past), result("c1", "done")]
    mapped = CLIENTS[client].mapped("claude_text_editor", messages)
    assert mapped.request.messages == messages


def test_a_call_of_a_tool_that_would_not_be_called_again_stays() -> None:
    both = Surface((*CLIENTS["roo"].tools, *CLIENTS["roo_native"].tools[3:]), {})
    past = [turn(roo_diff("<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE"))]
    assert both.mapped("claude_text_editor", past).request.messages == past
    past = [turn(call("c1", "read", {"filePath": "src/"}))]
    assert shown("opencode_old", "claude_text_editor", *past) == past
    past = [turn(call("c1", "write", {"filePath": "f", "content": "a\r\nb\r\n"}))]
    assert shown("opencode", "apply_patch", *past) == past


def test_a_call_that_stays_can_be_made_again() -> None:
    mapped = CLIENTS["roo"].mapped("claude_text_editor")
    arguments = '{"path": "src", "recursive": true}'
    (same,) = mapped.back("list_files", arguments)  # type: ignore[misc]
    assert (same.name, same.arguments) == ("list_files", arguments)


def test_ids_that_are_missing_or_twice_do_not_lose_calls() -> None:
    calls = [
        call(None, "read", {"filePath": "f"}),
        call("x", "read", {"filePath": "g"}),
        call("x", "read", {"filePath": "h"}),
    ]
    messages = shown("opencode", "claude_text_editor", turn(*calls), result("x", "1"), result("x", "2"))
    assert [one["id"] for one in messages[0]["tool_calls"]] == [None, "x", "x"]
    assert {one["function"]["name"] for one in messages[0]["tool_calls"]} == {EDITOR}
    assert messages[1:] == [result("x", "1"), result("x", "2")]


def test_blocks_without_an_id_for_each_stay_one_call() -> None:
    past = call(None, "apply_diff", {"path": "f", "diff": BLOCKS})
    assert shown("roo", "claude_text_editor", turn(past)) == [turn(past)]


def test_a_longer_conversation_begins_with_the_same_messages() -> None:
    messages = [
        {"role": "user", "content": "go"},
        turn(call("c1", "apply_diff", {"path": "f", "diff": BLOCKS}), call("c2", "read_file", {"path": "f"})),
        result("c1", "2 applied"),
        result("c2", "text"),
        turn(call("c3", "list_files", {"path": "src"})),
        result("c3", "a"),
        {"role": "user", "content": "more"},
    ]
    whole = shown("roo", "claude_text_editor", *messages)
    assert shown("roo", "claude_text_editor", *messages[:4]) == whole[:5]


def test_a_message_that_holds_nothing_to_translate_is_not_copied() -> None:
    request = CLIENTS["opencode"].request([turn(call("c1", "bash", {"command": "ls"}))])
    from strategies.mapping.mappings import MAPPINGS

    mapped = MAPPINGS["apply_patch"].of(request)
    assert mapped is not None
    assert mapped.request.messages[0] is request.messages[0]


@given(st.text(min_size=1, max_size=40), st.integers(2, 9000))
def test_the_id_of_a_part_leads_to_its_call(call_id: str, number: int) -> None:
    assert base_id(part_id(call_id, number, 9000)) == call_id
    assert part_id(call_id, 1, number) == call_id


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3), max_leaves=5
)
CALLS = st.fixed_dictionaries(
    {},
    optional={
        "id": JSON,
        "function": st.fixed_dictionaries(
            {},
            optional={
                "name": st.sampled_from(["edit", "write", "read", "bash"]) | JSON,
                "arguments": st.dictionaries(
                    st.sampled_from(["filePath", "oldString", "newString", "content"]), JSON
                ).map(json.dumps)
                | JSON,
            },
        )
        | JSON,
    },
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["assistant", "tool", "user"])},
        optional={"tool_calls": st.lists(CALLS | JSON, max_size=3) | JSON, "tool_call_id": JSON, "content": JSON},
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=150)
@given(MESSAGES, st.sampled_from(["claude_text_editor", "apply_patch"]))
def test_no_conversation_breaks_it(messages: list[dict[str, Any]], mapping: str) -> None:
    assert len(shown("opencode", mapping, *messages)) == len(messages)
