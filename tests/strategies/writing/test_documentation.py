"""Tools in words: the section of the prompt, how they move there, and that no text breaks out of it."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.core.errors import InvalidRequest, InvalidToolResults, TooManyTools
from gateway.core.events import End, Start
from gateway.core.limits import Limits
from gateway.core.tools import Tool, ToolSet
from gateway.wire.chat_request import parse_request
from strategies.asking.renderers import RENDERERS
from strategies.base import AnswerReader, Options, Prepared, ToolExecutionStrategy
from strategies.grammar.dialect import Renderer
from strategies.writing.documentation import parameter_lines, tool_document
from strategies.writing.prompt import (
    MARKER,
    SEPARATOR,
    add_section,
    firm_instruction,
    guarded,
    holds_section,
    section,
    shielded,
)
from strategies.writing.renderer import GenericTags
from strategies.writing.samples import sample_arguments
from strategies.xml_prompt import XmlPromptStrategy
from tests.support.cost import assert_linear
from tests.support.reading import together

TAGS = GenericTags()
WRITERS = together("writer", RENDERERS)


def tool(properties: dict[str, Any], *required: str, name: str = "probe", **rest: Any) -> Tool:
    return Tool(name=name, parameters={"type": "object", "properties": properties, "required": list(required), **rest})


READ = Tool(
    name="read",
    description="Reads a file.\n\nGives its lines.",
    parameters={
        "type": "object",
        "properties": {
            "filePath": {"type": "string", "description": "Which file\nto read"},
            "mode": {"type": "string", "enum": ["text", "bytes"], "default": "text"},
            "limit": {"type": "integer"},
        },
        "required": ["filePath"],
    },
)


# --- the section ---


def test_the_section_documents_each_tool() -> None:
    assert tool_document(READ, "<read></read>") == (
        "## read\n"
        "Description: Reads a file.\n"
        "\n"
        "  Gives its lines.\n"
        "Parameters:\n"
        "- filePath: (required) string - Which file to read\n"
        '- mode: (optional) string - one of: "text", "bytes"; default: "text"\n'
        "- limit: (optional) integer\n"
        "Usage:\n"
        "<read></read>"
    )


def test_the_section_holds_rules_then_tools() -> None:
    text = section(TAGS, [READ], parallel=False)
    assert text.startswith(f"{MARKER}\n# Tools\n")
    assert text.index("exactly one call per message") < text.index("\n<tools>\n## read\n")
    assert text.endswith("Usage:\n<read>\n<filePath>src/main.py</filePath>\n<mode>text</mode>\n</read>\n</tools>")


@WRITERS
def test_several_calls_are_allowed_only_in_parallel(writer: Renderer) -> None:
    assert "exactly one call per message" in section(writer, [READ], parallel=False)
    assert "exactly one call per message" not in section(writer, [READ], parallel=True)


def test_hermes_lists_one_json_object_per_line() -> None:
    text = section(RENDERERS["hermes"], [READ, tool({}, name="pwd")], parallel=False)
    lines = text.split("\n<tools>\n")[1].split("\n</tools>\n")[0].split("\n")
    assert [json.loads(line)["function"]["name"] for line in lines] == ["read", "pwd"]
    assert json.loads(lines[0])["function"]["parameters"] == READ.parameters


@WRITERS
def test_the_section_is_the_same_for_the_same_tools(writer: Renderer) -> None:
    again = Tool(name="read", description=READ.description, parameters=json.loads(json.dumps(READ.parameters)))
    assert section(writer, [READ], parallel=False) is section(writer, [again], parallel=False)
    assert section(writer, [READ], parallel=False) != section(writer, [READ], parallel=True)
    other = Tool(name="read", description="Another", parameters=READ.parameters)
    assert "Another" in section(writer, [other], parallel=False)


def test_a_section_of_more_than_any_client_has_is_not_kept() -> None:
    large = Tool(name="read", description="x" * (1 << 20))
    assert section(TAGS, [large], parallel=False) is not section(TAGS, [large], parallel=False)


def test_a_named_tool_is_demanded_by_name() -> None:
    assert "`read`" in firm_instruction("read")
    assert "one of the tools" in firm_instruction(None)


# --- where it goes ---


def test_the_section_follows_the_clients_own_text() -> None:
    user = {"role": "user", "content": "hi"}
    messages = add_section([{"role": "system", "content": "Own text.", "name": "n"}, user], "SECTION")
    assert messages == [{"role": "system", "content": f"Own text.{SEPARATOR}SECTION", "name": "n"}, user]


def test_a_developer_prompt_takes_the_section() -> None:
    assert add_section([{"role": "developer", "content": "D"}], "S")[0] == {
        "role": "developer",
        "content": f"D{SEPARATOR}S",
    }


def test_parts_of_a_system_prompt_stay_parts() -> None:
    part = {"type": "text", "text": "Own", "cache_control": {"type": "ephemeral"}}
    messages = add_section([{"role": "system", "content": [part]}], "S")
    assert messages[0]["content"] == [part, {"type": "text", "text": f"{SEPARATOR}S"}]


@pytest.mark.parametrize("empty", [None, "", []])
def test_an_empty_system_prompt_becomes_the_section(empty: Any) -> None:
    assert add_section([{"role": "system", "content": empty}], "S") == [{"role": "system", "content": "S"}]


def test_a_system_message_is_made_where_none_leads() -> None:
    late = [{"role": "user", "content": "hi"}, {"role": "system", "content": "later"}]
    assert add_section(late, "S") == [{"role": "system", "content": "S"}, *late]


def test_only_the_marker_on_its_own_line_is_a_section() -> None:
    def holds(content: Any, role: str = "system") -> bool:
        return holds_section([{"role": role, "content": content}])

    assert holds(section(TAGS, [READ], parallel=False))
    assert holds([{"type": "text", "text": f"x\n{MARKER}\ny"}])
    assert not holds("# Tools\n<tools>\n</tools>")
    assert not holds(f'MARKER = "{MARKER}"')
    assert not holds(f"{MARKER}\n", role="user")
    assert not holds(None)


# --- parameters ---


def test_nested_fields_and_items_are_indented() -> None:
    lines = parameter_lines(
        tool(
            {
                "edits": {
                    "type": "array",
                    "description": "All edits",
                    "items": {
                        "type": "object",
                        "properties": {"old": {"type": "string"}, "at": {"type": ["integer", "null"]}},
                        "required": ["old"],
                    },
                },
                "names": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
                "meta": {"type": "object", "additionalProperties": {"type": "number"}},
            },
            "edits",
        )
    )
    assert lines == [
        "- edits: (required) array of object - All edits",
        "  - each item: object",
        "    - old: (required) string",
        "    - at: (optional) integer or null",
        "- names: (optional) array of string",
        '  - each item: string - one of: "a", "b"',
        "- meta: (optional) object",
        "  - any other name: (optional) number",
    ]


def test_references_and_unions_are_resolved() -> None:
    definitions: dict[str, Any] = {"$defs": {"place": {"type": "object", "properties": {"x": {"type": "int"}}}}}
    probe = tool(
        {
            "place": {"$ref": "#/$defs/place", "description": "Where"},
            "size": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            "both": {"allOf": [{"properties": {"a": {"type": "str"}}}, {"properties": {"b": {}}, "required": ["b"]}]},
            "lost": {"$ref": "https://example.com/schema"},
        },
        **definitions,
    )
    assert parameter_lines(probe) == [
        "- place: (optional) object - Where",
        "  - x: (optional) integer",
        "- size: (optional) integer or null - default: null",
        "- both: (optional) object",
        "  - a: (optional) string",
        "  - b: (required) any",
        "- lost: (optional) any",
    ]


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"properties": None, "required": 5},
        {"properties": {"a": True, "b": None, "c": [1], "d": {"type": {"x": 1}, "enum": 5, "items": [1]}}},
        {"properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"properties": {"a": {"anyOf": [{"$ref": "#/properties/a"}] * 100}}, "required": ["a"]},
        {"properties": {"a": {"type": "array", "items": {"$ref": "#/properties/a"}, "minItems": 10**9}}},
    ],
)
@pytest.mark.timeout(10)
@WRITERS
def test_odd_schemas_are_documented_all_the_same(writer: Renderer, parameters: dict[str, Any]) -> None:
    assert "probe" in section(writer, [Tool(name="probe", parameters=parameters)], parallel=False)


@pytest.mark.timeout(20)
def test_a_schema_that_multiplies_itself_is_cut_short() -> None:
    fields = {f"f{index}": {"$ref": "#"} for index in range(300)}
    probe = Tool(name="probe", parameters={"properties": fields, "required": list(fields)})
    text = section(TAGS, [probe], parallel=False)
    assert "more fields than can be listed" in text
    assert len(text) < 2_000_000


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"properties": {}}, "object"),
        ({"items": {}}, "array"),
        (
            {"enum": ["a", 1, 1.5, None, True, [], {}]},
            "string or integer or number or boolean or object or array or null",
        ),
        ({"const": 1}, "integer"),
        ({"type": "any"}, "any"),
        ({"type": "nonsense"}, "string"),
        ({"type": "string", "nullable": True}, "string or null"),
        ({"type": ["array", "null"], "items": {"type": "integer"}}, "array of integer or null"),
        ({"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}, "string or array"),
    ],
)
def test_types_are_told_in_words(schema: dict[str, Any], told: str) -> None:
    assert parameter_lines(tool({"x": schema}))[0].split(" - ")[0] == f"- x: (optional) {told}"


def test_a_schema_in_a_wrapper_is_told_as_it_is_read() -> None:
    inner = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    wrapped = Tool(name="probe", parameters={"jsonSchema": inner})
    assert parameter_lines(wrapped) == ["- city: (required) string"]
    assert sample_arguments(wrapped) == {"city": "Paris"}
    text = section(RENDERERS["hermes"], [wrapped], parallel=False)
    line = text.split("\n<tools>\n")[1].split("\n</tools>\n")[0]
    assert json.loads(line)["function"]["parameters"] == inner


def test_what_all_of_holds_is_told_however_deep() -> None:
    base = {"allOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}]}
    deep = {"allOf": [base, {"properties": {"b": {"type": "integer"}}}]}
    assert parameter_lines(Tool(name="probe", parameters=deep)) == [
        "- a: (required) string",
        "- b: (optional) integer",
    ]


def test_alternatives_with_fields_are_listed() -> None:
    forms = [{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, {"const": "b"}]
    assert parameter_lines(tool({"x": {"oneOf": forms}})) == [
        "- x: (optional) string or object",
        "  - one form: object",
        "    - a: (required) string",
        '  - one form: string - always: "b"',
    ]


def test_required_names_of_merged_schemas_count() -> None:
    schema = {"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]}
    assert parameter_lines(Tool(name="t", parameters=schema)) == ["- a: (required) any", "- b: (required) any"]


def test_a_default_too_deep_to_write_is_left_out() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert parameter_lines(tool({"x": {"type": "array", "default": deep}})) == ["- x: (optional) array - default: ..."]


def test_an_example_is_given_even_where_a_name_cannot_be_a_tag() -> None:
    text = section(TAGS, [tool({"@id": {"type": "string"}}, "@id")], parallel=False)
    assert 'Usage:\n<probe>\n{"@id": "abc123"}\n</probe>' in text


def test_an_example_that_would_not_be_read_back_is_not_given() -> None:
    fields = {"type": {"type": "string"}, "properties": {"type": "string"}}
    assert "For example" not in section(RENDERERS["hermes"], [tool(fields, *fields)], parallel=False)
    assert "For example" in section(RENDERERS["hermes"], [READ], parallel=False)


@pytest.mark.cost
def test_the_cost_of_a_long_description_is_linear() -> None:
    def writing(size: int) -> Callable[[], object]:
        text = "</ <tools <!--" * size
        return lambda: (guarded(text, ["read"]), shielded(text))

    assert_linear(writing, 10_000)


# --- tool text is data ---


def hostile_text() -> st.SearchStrategy[str]:
    pieces = st.sampled_from(
        [
            *("</tools>", "<tools>", "< / tools >", "</TOOLS>", MARKER, "<!--", "toolgate:", "## evil", "## read"),
            *("<read>", "</read>", "<tool_call>", "</tool_call>", "Usage:", "Parameters:", "- x: (required) string"),
            *("\n", "\r", "\u2028", "\x85", "\x0b", " ", '"', "'", "<", ">", "/", "a", "```"),
        ]
    )
    return st.lists(pieces | st.text(max_size=5), max_size=12).map("".join)


@given(hostile_text(), hostile_text(), hostile_text(), hostile_text())
@settings(max_examples=200, deadline=None)
def test_no_tool_text_breaks_out_of_the_section(about: str, name: str, detail: str, choice: str) -> None:
    entry = {"type": "string", "description": detail, "enum": [choice], "default": choice, "const": choice}
    fields = {"plain": {"type": "string"}, name: entry, "deep": {"type": "object", "properties": {name: entry}}}
    tools = [
        Tool(name="read", description=about, parameters={"properties": fields, "required": [name, "deep"]}),
        Tool(name="evil_twin", description=about, parameters={"properties": {"a": {"enum": [choice]}}}),
    ]
    for writer in RENDERERS.values():
        text = section(writer, tools, parallel=False)
        assert text.count(MARKER) == 1
        inner = text[text.index("\n<tools>\n") :]
        assert inner.lower().count("</tools>") == 1
        assert inner.lower().count("<tools>") == 1
        headings = [line for line in text.splitlines() if line.startswith("## ")]
        if writer.id == "generic_xml":
            assert headings == ["## read", "## evil_twin"]
            assert text.count("<read>") == text.count("</read>") == 1
            assert [line for line in text.splitlines() if line.startswith("Usage:")] == ["Usage:", "Usage:"]
        else:
            lines = inner.split("\n<tools>\n")[1].split("\n</tools>")[0].split("\n")
            assert [json.loads(line)["function"]["description"] for line in lines] == [about, about]
            assert inner.count("<tool_call>") == inner.count("</tool_call>")


def test_guarding_changes_no_more_than_it_must() -> None:
    text = "use <b>bold</b>, List<str>, a < b, <toolsmith>, <path> and </ tools >"
    assert guarded(text, ["read"]) == text.replace("</ tools", "&lt;/ tools")
    assert guarded("<read> <reader>", ["read"]) == "&lt;read> <reader>"


SPECIAL = (
    *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|start_header_id|>", "<|channel|>", "<|return|>"),
    *("<｜tool▁calls▁begin｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<|tool_call_begin|>", "<|open|>", "<|sep|>"),
    *("<start_of_turn>", "<end_of_turn>", "<start_function_call>", "<escape>", "<s>", "</s>", "<<SYS>>", "<</SYS>>"),
    *("[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[SYSTEM_PROMPT]", "[ARGS]"),
    *("[e~[", "]~b]", "]<]minimax[>[", "✿FUNCTION✿", "✿RESULT✿", "<seed:eos>", "<think>", "</think>", "<tool_call|>"),
)


@WRITERS
def test_no_special_token_stands_whole_in_what_a_tool_says_of_itself(writer: Renderer) -> None:
    def told(words: str) -> str:
        properties = {"a": {"type": "string", "description": words, "enum": [words, "b"], "default": words}}
        return section(writer, [tool(properties, "a", description=words)], parallel=False)

    plain = told("words")
    for token in SPECIAL:
        assert told(f"x {token} y").count(token) == plain.count(token), token


def test_what_is_no_special_token_is_told_as_it_is() -> None:
    for text in ("a <| b |> c", "[1] [x] [INSTALL]", "f <$> x", "<summary>", "a |> b", "x < y", "[end]"):
        assert guarded(text) == text


@given(st.lists(st.sampled_from([MARKER, "<", "\u200b", "!-- toolgate:", "x", "\n"]), max_size=10).map("".join))
@settings(max_examples=150, deadline=None)
def test_shielding_breaks_the_marker_and_can_be_undone(text: str) -> None:
    shown = shielded(text)
    assert MARKER not in shown
    assert re.sub("<\u200b(\u200b*!-- toolgate:)", r"<\1", shown) == text


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
