import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.core.errors import InvalidRequest, InvalidToolResults, TooManyTools
from gateway.core.events import End, Start
from gateway.core.limits import Limits
from gateway.core.tools import ToolSet
from gateway.wire.chat_request import parse_request
from strategies.base import AnswerReader, Options, Prepared, ToolExecutionStrategy
from strategies.writing.prompt import MARKER, SEPARATOR
from strategies.xml_prompt import XmlPromptStrategy


class Readers:
    """Remembers what readers were asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[str, ...], str, str | None]] = []

    def __call__(
        self, *, tools: ToolSet, options: Options, model: str, prompted: str | None, messages: object = ()
    ) -> Callable[[], AnswerReader]:
        self.asked.append((tools.names, model, prompted))

        def make() -> AnswerReader:
            raise NotImplementedError

        return make


def function(name: Any = "read", **rest: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    return {"type": "function", "function": {"name": name, "description": "Reads.", "parameters": parameters, **rest}}


USER = {"role": "user", "content": "hi"}
SYSTEM = {"role": "system", "content": "You are careful.\n"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "text"}


def raw(*messages: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"model": "qwen3", "messages": list(messages) or [SYSTEM, USER], **fields}).encode()


def prepare(body: bytes, readers: Readers | None = None, **options: Any) -> Prepared:
    return XmlPromptStrategy(readers or Readers()).prepare(parse_request(body), Options(**options))


def sent(*messages: dict[str, Any], options: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    fields.setdefault("tools", [function()])
    body: dict[str, Any] = json.loads(prepare(raw(*messages, **fields), **(options or {})).body)
    return body


def test_it_is_a_strategy() -> None:
    assert isinstance(XmlPromptStrategy(Readers()), ToolExecutionStrategy)


def test_tools_move_from_the_request_into_the_prompt() -> None:
    body = sent(tool_choice="auto", parallel_tool_calls=False, functions=[], function_call="auto")
    assert body.keys() == {"model", "messages"}
    assert body["messages"][0]["content"].startswith(f"You are careful.\n{SEPARATOR}{MARKER}\n")
    assert "\n## read\n" in body["messages"][0]["content"]
    assert body["messages"][1] == USER


def test_unknown_fields_are_kept() -> None:
    extra: dict[str, Any] = {
        "stop": ["Observation:"],
        "stream_options": {"include_usage": True},
        "x_new": {"a": [1, None]},
        "seed": None,
    }
    body = sent(stream=True, **extra)
    assert {key: body[key] for key in extra} == extra
    assert body["stream"] is True


def test_the_reader_is_made_for_what_was_prompted() -> None:
    readers = Readers()
    prepared = prepare(raw(tools=[function(), function("write")]), readers, dialect="hermes")
    assert prepared.strategy == "xml_prompt"
    assert prepared.make_reader is not None
    assert readers.asked == [(("read", "write"), "qwen3", "hermes")]
    assert b"<tool_call>" in prepared.body


@pytest.mark.parametrize("dialect", [None, "hermes"])
def test_the_usual_reader_takes_the_prompted_form(dialect: str | None) -> None:
    request = parse_request(raw(USER, CALL, RESULT, tools=[function()]))
    prepared = XmlPromptStrategy().prepare(request, Options(dialect=dialect))
    assert prepared.make_reader is not None
    reader = prepared.make_reader()
    history = json.loads(prepared.body)["messages"][2]["content"]
    ends = [event for event in [*reader.feed(history), *reader.finish("stop")] if isinstance(event, End)]
    assert [(end.name, end.arguments) for end in ends] == [("read", '{"path":"a"}')]


def test_a_dialect_that_cannot_be_written_falls_back_to_tags() -> None:
    readers = Readers()
    prepared = prepare(raw(tools=[function()]), readers, dialect="unheard_of")
    assert readers.asked[0][2] == "generic_xml"
    assert "unheard_of" in prepared.warnings[0]


def test_a_request_without_tools_passes_byte_for_byte() -> None:
    body = b'{ "model":"qwen3", "messages":[{"role":"user","content":[{"type":"text","text":"x"}]}] }'
    prepared = prepare(body)
    assert prepared.body == body
    assert prepared.make_reader is None


def test_old_calls_are_rendered_without_tools() -> None:
    prepared = prepare(raw(USER, CALL, RESULT))
    messages = json.loads(prepared.body)["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[1]["content"] == "<read>\n<path>a</path>\n</read>"
    assert messages[2]["content"].startswith("[Tool Result: read]")
    assert MARKER not in prepared.body.decode()
    assert prepared.make_reader is None


def test_tool_choice_none_leaves_the_tools_out() -> None:
    prepared = prepare(raw(SYSTEM, USER, CALL, RESULT, tools=[function("not usable!")], tool_choice="none"))
    body = json.loads(prepared.body)
    assert body.keys() == {"model", "messages"}
    assert body["messages"][0] == SYSTEM
    assert body["messages"][3]["role"] == "user"
    assert prepared.ask_again is None
    assert prepared.make_reader is not None  # what stands there all the same is counted
    reader = prepared.make_reader()
    events = [*reader.feed("<read>\n<path>a</path>\n</read>"), *reader.finish("stop")]
    assert not any(isinstance(event, Start | End) for event in events)


@pytest.mark.parametrize(
    ("choice", "demanded"),
    [
        ("auto", None),
        (None, None),
        ("required", "one of the tools"),
        ({"type": "function", "function": {"name": "read"}}, "`read`"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [function()]}}, "one of the tools"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [function()]}}, None),
        ({"type": "something else"}, None),
    ],
)
def test_a_required_call_is_demanded(choice: Any, demanded: str | None) -> None:
    text = sent(tool_choice=choice)["messages"][0]["content"]
    assert ("You must call" in text) == (demanded is not None)
    assert (demanded or "") in text.rpartition("</tools>")[2]


def test_only_allowed_tools_are_shown() -> None:
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [function("write")]}}
    text = sent(tools=[function(), function("write")], tool_choice=allowed)["messages"][0]["content"]
    assert "## write" in text
    assert "## read" not in text


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "function": {"name": "gone"}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [None, function("gone")]}},
    ],
)
def test_a_choice_of_tools_that_are_not_there_is_refused(choice: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        sent(tool_choice=choice)
    assert caught.value.param == "tool_choice"


@pytest.mark.parametrize(
    ("calls", "parallel", "first"),
    [
        ("auto", None, True),
        ("auto", True, False),
        ("auto", False, True),
        ("all", None, False),
        ("all", False, True),
        ("first", True, True),
    ],
)
def test_how_many_calls_are_told_and_delivered(calls: Any, parallel: bool | None, first: bool) -> None:
    fields = {} if parallel is None else {"parallel_tool_calls": parallel}
    prepared = prepare(raw(tools=[function()], **fields), calls_per_message=calls)
    assert prepared.shape.first_only is first
    assert (b"exactly one call per message" in prepared.body) is first


def test_trailing_text_is_kept_on_request() -> None:
    assert prepare(raw(tools=[function()]), trailing_text="keep").shape.keep_trailing
    assert not prepare(raw(tools=[function()])).shape.keep_trailing


def test_results_are_shown_as_the_setting_says() -> None:
    body = sent(USER, CALL, RESULT, options={"result_format": "plain"})
    assert body["messages"][3] == {"role": "user", "content": "Tool Result from read:\ntext"}


@pytest.mark.parametrize(
    "entry", [{}, {"type": "function"}, function(None), function(""), function("  "), {"name": "x"}]
)
def test_a_tool_without_a_usable_name_is_left_out_with_a_warning(entry: dict[str, Any]) -> None:
    prepared = prepare(raw(tools=[entry, function()]))
    assert "tools[0]" in prepared.warnings[0]
    assert "\\n## read\\n" in prepared.body.decode()


def test_nothing_usable_is_no_section_and_no_reader() -> None:
    prepared = prepare(raw(tools=[{"type": "web_search"}]))
    assert prepared.make_reader is None
    assert json.loads(prepared.body) == {"model": "qwen3", "messages": [SYSTEM, USER]}


@pytest.mark.parametrize("name", ["a b", "x.y", "ä", "</tools>", "a\n", "a" * 65])
def test_a_name_outside_the_alphabet_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        sent(tools=[function(), function(name)])
    assert caught.value.param == "tools[1].function.name"
    assert caught.value.status == 400


def test_too_many_tools_are_refused_not_dropped() -> None:
    tools = [function(f"t{index}") for index in range(4)]
    with pytest.raises(TooManyTools):
        sent(tools=tools, options={"limits": Limits(max_tools=3)})
    assert "## t3" in sent(tools=tools, options={"limits": Limits(max_tools=4)})["messages"][0]["content"]


def test_faulty_results_are_refused() -> None:
    with pytest.raises(InvalidToolResults):
        sent(USER, RESULT)


def test_a_body_too_deep_to_write_is_refused() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    request = parse_request(raw(tools=[function()]))
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        XmlPromptStrategy(Readers()).prepare(replace(request, body={**request.body, "metadata": deep}), Options())


def test_a_prompt_that_holds_the_section_is_not_given_another() -> None:
    first = sent(USER, CALL, RESULT, USER, tool_choice="required")
    again = sent(*first["messages"], tool_choice="required")
    assert again["messages"] == first["messages"]


TEXT = st.text(max_size=40)


@given(
    st.lists(
        st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant"]), "content": TEXT}), min_size=1
    ),
    TEXT,
    st.sampled_from([None, "hermes"]),
)
@settings(max_examples=80, deadline=None)
def test_preparing_is_deterministic_and_idempotent(
    messages: list[dict[str, Any]], description: str, dialect: str | None
) -> None:
    tools = [function(description=description)]
    body = raw(*messages, tools=tools)
    once = prepare(body, dialect=dialect)
    assert prepare(body, dialect=dialect).body == once.body
    prepared = json.loads(once.body)["messages"]
    twice = prepare(raw(*prepared, tools=tools), dialect=dialect)
    assert json.loads(twice.body)["messages"] == prepared
    assert twice.make_reader is not None
    told = prepared[1:] if len(prepared) > len(messages) else [messages[0], *prepared[1:]]
    assert told == messages
    assert prepared[0]["content"].count(MARKER) == 1
