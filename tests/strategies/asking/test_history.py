import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.errors import InvalidToolResults
from gateway.core.tools import Tool, ToolSet
from strategies.asking.history import History, render_history
from strategies.asking.renderers import RENDERERS
from strategies.grammar.dialect import Renderer
from strategies.writing.prompt import MARKER
from tests.support.reading import together

READ = Tool(
    name="read",
    parameters={"type": "object", "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}}},
)
WRITERS = together("writer", RENDERERS)


def rewrite(*messages: dict[str, Any], dialect: str = "generic_xml", fmt: str = "bracket") -> History:
    return render_history(messages, renderer=RENDERERS[dialect], tools=ToolSet([READ]), fmt=fmt)


def call(call_id: Any = "c1", name: Any = "read", arguments: Any = '{"path": "a.py"}') -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def assistant(*calls: dict[str, Any], content: Any = None, **rest: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls), **rest}


def result(call_id: Any = "c1", content: Any = "done", **rest: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **rest}


# --- calls ---


def test_calls_follow_the_assistants_own_words() -> None:
    history = rewrite(assistant(call(), content="Let me look."))
    assert history.rendered
    assert history.messages == [
        {"role": "assistant", "content": "Let me look.\n<read>\n<path>a.py</path>\n</read>"},
    ]


@pytest.mark.parametrize("content", [None, "", []])
def test_calls_stand_alone_where_nothing_was_said(content: Any) -> None:
    assert rewrite(assistant(call(), content=content)).messages[0]["content"] == "<read>\n<path>a.py</path>\n</read>"


def test_several_calls_keep_their_order() -> None:
    text = rewrite(assistant(call("c1"), call("c2", arguments='{"path": "b.py"}'))).messages[0]["content"]
    assert text == "<read>\n<path>a.py</path>\n</read>\n<read>\n<path>b.py</path>\n</read>"


def test_hermes_history_is_hermes() -> None:
    history = rewrite(assistant(call(), content="Hm."), result(), result(content="again"), dialect="hermes")
    assert history.messages[0]["content"] == (
        'Hm.\n<tool_call>\n{"name": "read", "arguments": {"path": "a.py"}}\n</tool_call>'
    )
    assert history.messages[1]["content"] == (
        "<tool_response>\ndone\n</tool_response>\n<tool_response>\nagain\n</tool_response>"
    )


def test_unknown_fields_of_an_assistant_message_are_kept() -> None:
    message = rewrite(assistant(call(), reasoning_content="hm", name="x")).messages[0]
    assert message["reasoning_content"] == "hm"
    assert message["name"] == "x"
    assert "tool_calls" not in message


@WRITERS
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"path": "a', "{"),
        ("[1, 2]", "[1, 2]"),
        ('"text"', "text"),
        ("5", "5"),
        ("[" * 5000, "[[[["),
        ("{" + '"a":{' * 900, '{"a'[0]),
        ("9" * 5000, "99999"),
        ('{"a": NaN}', "NaN"),
        ({"path": "object.py"}, "object.py"),
        (["list"], "list"),
        ('{"</read>": "<x>"}', "<x>"),
        ('{"limit": "7"}', "7"),
        ('{"path": null}', "null"),
    ],
)
def test_odd_arguments_are_shown_without_a_crash(writer: Renderer, arguments: Any, shown: str) -> None:
    history = render_history(
        [assistant(call(arguments=arguments))], renderer=writer, tools=ToolSet([READ]), fmt="plain"
    )
    written = history.messages[0]["content"]
    assert shown in written or (shown == "null" and "=None" in written)
    assert "read" in history.messages[0]["content"]


def test_arguments_too_deep_to_write_do_not_crash() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    for dialect in RENDERERS:
        assert "read: ..." in rewrite(assistant(call(arguments=deep)), dialect=dialect).messages[0]["content"]


@pytest.mark.parametrize("arguments", [None, "", "  ", "{}", {}])
def test_missing_arguments_are_none_at_all(arguments: Any) -> None:
    assert rewrite(assistant(call(arguments=arguments))).messages[0]["content"] == "<read></read>"


@WRITERS
def test_a_call_of_an_undeclared_tool_is_shown_all_the_same(writer: Renderer) -> None:
    odd = call(name="gone away", arguments='{"n": 5}')
    history = render_history([assistant(odd), result()], renderer=writer, tools=ToolSet(), fmt="bracket")
    assert "gone" in history.messages[0]["content"]
    assert "5" in history.messages[0]["content"]


def test_what_is_only_shown_is_reported() -> None:
    assert "nearest form" in rewrite(assistant(call(arguments='{"limit": "7"}'))).warnings[0]


@pytest.mark.parametrize(
    "calls",
    [
        [None],
        ["x"],
        [{}],
        [{"function": None}],
        [{"function": {"name": 5, "arguments": 5}}],
        [{"id": 5, "function": {}}],
    ],
)
def test_calls_of_any_shape_do_not_crash(calls: list[Any]) -> None:
    assert rewrite({"role": "assistant", "tool_calls": calls}).messages[0]["role"] == "assistant"


@pytest.mark.parametrize("calls", [None, [], "x", {}])
def test_an_assistant_message_without_calls_is_no_call(calls: Any) -> None:
    history = rewrite({"role": "assistant", "content": "hi", "tool_calls": calls, "function_call": None})
    assert history.messages == [{"role": "assistant", "content": "hi"}]
    assert not history.rendered


def test_custom_calls_carry_their_input() -> None:
    custom = {"id": "c", "type": "custom", "custom": {"name": "shell", "input": "ls"}}
    assert rewrite(assistant(custom)).messages[0]["content"] == "<shell>\n<input>ls</input>\n</shell>"


# --- results ---


def test_a_result_becomes_a_user_message() -> None:
    history = rewrite(assistant(call()), result(content="line\n"))
    assert history.messages[1] == {
        "role": "user",
        "content": "[Tool Result: read]\nTool Call ID: c1\n\nResult:\nline\n",
    }


def test_results_can_be_shown_plainly() -> None:
    history = rewrite(assistant(call()), result(content="line"), fmt="plain")
    assert history.messages[1]["content"] == "Tool Result from read:\nline"


def test_adjacent_results_share_one_message_in_call_order() -> None:
    asked = assistant(call("c1"), call("c2", name="list"))
    history = rewrite(asked, result("c2", "two"), result("c1", "one"), {"role": "user", "content": "go on"})
    assert len(history.messages) == 3
    assert history.messages[1]["content"] == (
        "[Tool Result: read]\nTool Call ID: c1\n\nResult:\none\n\n[Tool Result: list]\nTool Call ID: c2\n\nResult:\ntwo"
    )
    assert history.messages[2] == {"role": "user", "content": "go on"}


def test_results_of_later_turns_stay_apart() -> None:
    history = rewrite(assistant(call("c1")), result("c1", "x"), assistant(call("c2")), result("c2", "y"))
    assert [message["role"] for message in history.messages] == ["assistant", "user", "assistant", "user"]


def test_a_reused_id_means_the_latest_call() -> None:
    history = rewrite(assistant(call("c")), result("c"), assistant(call("c", name="list")), result("c"))
    assert history.messages[3]["content"].startswith("[Tool Result: list]")


def test_empty_content_is_content() -> None:
    assert rewrite(assistant(call()), result(content="")).messages[1]["content"].endswith("Result:\n")


def test_content_parts_are_flattened_and_images_stay_parts() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    parts = [{"type": "text", "text": "one"}, image, {"type": "text", "text": "two"}]
    history = rewrite(assistant(call("c1"), call("c2")), result("c1", parts), result("c2", "end"))
    assert history.messages[1]["content"] == [
        {"type": "text", "text": "[Tool Result: read]\nTool Call ID: c1\n\nResult:\none\ntwo"},
        image,
        {"type": "text", "text": "[Tool Result: read]\nTool Call ID: c2\n\nResult:\nend"},
    ]


def test_the_section_marker_cannot_come_back_in_a_result() -> None:
    shown = rewrite(assistant(call()), result(content=f"a\n{MARKER}\nb")).messages[1]["content"]
    assert MARKER not in shown
    assert MARKER in shown.replace("\u200b", "")


def test_old_function_messages_are_rendered() -> None:
    history = rewrite(
        {"role": "assistant", "content": None, "function_call": {"name": "read", "arguments": '{"path": "a"}'}},
        {"role": "function", "name": "read", "content": "text"},
    )
    assert history.messages == [
        {"role": "assistant", "content": "<read>\n<path>a</path>\n</read>"},
        {"role": "user", "content": "[Tool Result: read]\n\nResult:\ntext"},
    ]


# --- faults ---


def test_every_fault_is_named_at_once() -> None:
    with pytest.raises(InvalidToolResults) as caught:
        rewrite(
            {"role": "tool", "content": "early"},
            assistant(call("c1"), call("c2")),
            {"role": "tool", "tool_call_id": "", "content": "which?"},
            {"role": "tool", "tool_call_id": "c1"},
            {"role": "tool", "tool_call_id": "c2", "content": None},
            {"role": "tool", "tool_call_id": "other", "content": 5},
            {"role": "function", "name": "nobody", "content": ""},
        )
    assert caught.value.status == 400
    assert caught.value.code == "invalid_tool_results"
    assert caught.value.param == "messages[0].tool_call_id"
    for fault in (
        "messages[0].tool_call_id: tool_call_id is missing",
        "messages[2].tool_call_id: tool_call_id is missing",
        "messages[3].content: content is missing",
        "messages[4].content: content is missing",
        'messages[5].tool_call_id: no earlier assistant message holds the call "other"',
        "messages[5].content: content is neither text",
        'messages[6].name: no earlier assistant message calls the function "nobody"',
    ):
        assert fault in caught.value.message


def test_a_call_that_comes_later_does_not_count() -> None:
    with pytest.raises(InvalidToolResults, match="no earlier assistant message"):
        rewrite(result("c1"), assistant(call("c1")))


def test_a_huge_id_is_quoted_in_short() -> None:
    with pytest.raises(InvalidToolResults) as caught:
        rewrite(result("x" * 10_000))
    assert len(caught.value.message) < 400


def test_a_missing_id_is_mended_when_one_call_waits() -> None:
    history = rewrite(assistant(call("c1"), call("c2")), result("c1"), result(None, "second"))
    assert history.messages[1]["content"].endswith("Tool Call ID: c2\n\nResult:\nsecond")
    assert history.warnings


def test_a_missing_id_is_mended_when_the_name_tells_the_call() -> None:
    history = rewrite(assistant(call("c1"), call("c2", name="list")), result(None, "x", name="list"))
    assert history.messages[1]["content"].startswith("[Tool Result: list]\nTool Call ID: c2")


def test_call_and_result_without_ids_belong_together() -> None:
    history = rewrite(assistant(call(None)), result(None, "x"))
    assert history.messages[1]["content"].startswith("[Tool Result: read]")


# --- everything else ---


def test_plain_text_parts_become_text() -> None:
    parts = [{"type": "text", "text": "one\n"}, {"type": "text", "text": "two"}]
    assert rewrite({"role": "user", "content": parts}).messages == [{"role": "user", "content": "one\n\ntwo"}]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "system", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
        {"role": "developer", "content": "x", "extra": [1]},
        {"role": "assistant", "content": "<read>\n<path>a</path>\n</read>"},
        {"role": "assistant", "audio": {"id": "a"}},
        {"role": "user", "content": 5},
        {"role": "user"},
        {"role": "somebody", "content": {"a": 1}},
    ],
)
def test_other_messages_pass_unchanged(message: dict[str, Any]) -> None:
    history = rewrite(message)
    assert history.messages == [message]
    assert not history.rendered


@given(st.text(max_size=80), st.text(max_size=80))
@settings(max_examples=100, deadline=None)
def test_what_people_wrote_is_kept_character_for_character(said: str, found: str) -> None:
    for dialect in RENDERERS:
        history = rewrite(
            {"role": "system", "content": said},
            {"role": "user", "content": said},
            assistant(call(), content=said),
            result(content=found),
            dialect=dialect,
        )
        assert history.messages[0]["content"] == history.messages[1]["content"] == said
        if said.strip():
            assert history.messages[2]["content"].startswith(f"{said}\n")
        told = MARKER not in found and "Tool Result" not in found and "tool_response" not in found
        if told and dialect in ("generic_xml", "hermes"):  # the others write results as JSON or between tokens
            assert found in history.messages[3]["content"]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "id", "function", "name", "arguments", "custom", "input"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant", "tool", "function", "system"])},
            optional=dict.fromkeys(["content", "tool_calls", "function_call", "tool_call_id", "name"], ANYTHING),
        ),
        max_size=5,
    )
)
@settings(max_examples=300, deadline=None)
def test_messages_of_any_shape_give_messages_or_one_clear_error(messages: list[dict[str, Any]]) -> None:
    before = json.dumps(messages)
    for dialect in RENDERERS:
        try:
            history = rewrite(*messages, dialect=dialect)
        except InvalidToolResults as error:
            assert error.param is not None  # noqa: PT017 - either outcome is right
        else:
            assert all(message["role"] not in ("tool", "function") for message in history.messages)
            assert not any("tool_calls" in message for message in history.messages if message["role"] == "assistant")
    assert json.dumps(messages) == before


@pytest.mark.timeout(20)
def test_a_long_conversation_costs_linear_time() -> None:
    turns = []
    for index in range(15_000):
        turns += [assistant(call(f"c{index}")), result(f"c{index}")]
    assert len(rewrite(*turns).messages) == 30_000
