"""What the next request of a conversation tells of the last answer."""

import json
import re
import secrets
import string
from collections.abc import Callable
from typing import Any

import pytest
from attrs import field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.rollout import outcomes
from gateway.rollout.call_ids import CallIds, CallMark
from gateway.rollout.conversation import conversation_key
from gateway.rollout.outcomes import Fared, LastAnswer, fault_in_call, last_answer, outcome_records
from gateway.wire.chat_request import parse_request
from strategies.dialects.rows import TABLE
from tests.support.cost import assert_linear

UNKNOWN = {
    "ai-sdk": "Model tried to call unavailable tool 'ls'. Available tools: bash, read, write.",
    "opencode": "The arguments provided to the tool are invalid: Model tried to call unavailable tool 'find'. "
    "Available tools: bash, edit, invalid.",
    "claude-code": "<tool_use_error>Error: No such tool available: Lookup</tool_use_error>",
    "codex": "unsupported call: list_files",
    "qwen-code": 'Tool "bash" not found in registry. Tools must use the exact names that are registered.',
    "qwen-code-older": 'Error executing tool bash: Tool "bash" not found in registry.',
    "pi": "Tool ls not found",
    "roo": '[ERROR] Unknown tool "list". Please use one of the available tools.',
    "langgraph": "Error: nope is not a valid tool, try one of [read, write].",
    "openai-node": 'Invalid tool_call: "nope". Available options are: "read". Please try again',
    "pydantic-ai": "Unknown tool name: 'nope'. Available tools: 'read'\n\nFix the errors and try again.",
    "mcp": "MCP error -32602: Tool nope not found",
    "llm": 'Error: tool "nope" does not exist',
    "json": '{"error": "Unknown tool: nope"}',
    "json-more": '{"ok": false, "name": "nope", "error": "Unknown tool: nope"}',
}

MISSING = {
    "cline": "The tool execution failed with the following error:\n<error>\n"
    "Missing value for required parameter 'path'. Please retry with complete response.\n\n# Reminder",
    "roo-native": '{"status":"error","message":"The tool execution failed",'
    '"error":"Missing value for required parameter \'path\'. Please retry"}',
    "qwen-code": "params must have required property 'file_path'",
    "qwen-code-response": '{"error":"params must have required property \'file_path\'"}',
    "claude-code": "<tool_use_error>InputValidationError: Write failed due to the following issues:\n"
    "The required parameter `file_path` is missing\nThe required parameter `content` is missing</tool_use_error>",
    "opencode": 'The write tool was called with invalid arguments: SchemaError(Missing key at ["content"]).',
    "opencode-zod": 'The read tool was called with invalid arguments: [\n  {\n    "expected": "string",\n '
    '   "message": "Invalid input: expected string, received undefined"\n  }\n].',
    "codex": "failed to parse function arguments: missing field `command` at line 1 column 2",
    "copilot": "ERROR: Your input to the tool was invalid (must have required property 'dirPath')",
    "continue": "Required parameter filepath missing",
    "langchain": "Error invoking tool 'read' with kwargs {} with error:\n path: Field required\n Please fix the error",
    "mcp": 'MCP error -32602: Input validation error: Invalid arguments for tool read: "path" is required',
}

INVALID = {
    "qwen-code": "params/is_background must be boolean",
    "ai-sdk": 'Invalid input for tool edit: JSON parsing failed: Text: {"filePath":\n.Error message: JSON Parse error',
    "ai-sdk-4": "Invalid arguments for tool read: Type validation failed: Value: {}",
    "opencode": "The arguments provided to the tool are invalid: "
    "Invalid input for tool bash: JSON parsing failed: Text:",
    "codex": "failed to parse function arguments: expected value at line 1 column 1",
    "claude-code": "<tool_use_error>InputValidationError: Ask failed due to the following issue:\n"
    "The parameter `questions` type is expected as `array` but provided as `string`</tool_use_error>",
    "claude-code-json": "<tool_use_error>InputValidationError: Read was called with input that could not be parsed.",
    "roo": "The tool execution failed with the following error:\n<error>\nInvalid JSON argument used with use_mcp_tool."
    " Please retry with a properly formatted JSON argument.\n</error>",
    "pi": 'Validation failed for tool "read":\n  - path: must be string',
    "openai-agents": "An error occurred while running the tool. Please try again. "
    "Error: Invalid JSON input for tool read",
    "instructor": "Validation Error found:\n1 validation error for User\nRecall the function correctly, fix the errors",
    "pydantic-ai": '1 validation error:\n```json\n[\n  {"type": "int_type", "loc": ["limit"], "msg": "Input"}]\n```',
}

RAN = {
    "file-not-found": "Error: File not found: /home/me/a.py",
    "exit-code": "Command failed with exit code 1\nbash: foo: command not found",
    "empty": "",
    "no-match": "No files found",
    "denied": "The user denied this operation.",
    "claude-code-changed": "<tool_use_error>File has been modified since read</tool_use_error>",
    "tool-execution": "The tool execution failed with the following error:\n<error>\nENOENT: no such file\n</error>",
    "quoted-in-a-file": "1: import os\n2: # Unknown tool: x\n3: params must have required property 'a'",
    "quoted-in-opencode-read": "<path>/log.txt</path>\n<content>\n1: unsupported call: x\n</content>",
    "late": " \n" * 3 + "log:\nError: No such tool available: x",
    "test-output": "2 validation errors for Settings\nport\n  field required",
    "shell": "tar: invalid option -- 'x'",
    "invalid-argument": "invalid argument: 'x'",
    "json-result": '{"error": null, "output": "unknown tool"}',
    "json-text": '{"output": "done"}',
    "parts-of-words": "Tooling not found",
}


@pytest.mark.parametrize("text", UNKNOWN.values(), ids=UNKNOWN)
def test_an_unknown_tool_is_told(text: str) -> None:
    assert fault_in_call(text) == "unknown_tool"


@pytest.mark.parametrize("text", MISSING.values(), ids=MISSING)
def test_a_missing_argument_is_told(text: str) -> None:
    assert fault_in_call(text) == "missing_argument"


@pytest.mark.parametrize("text", INVALID.values(), ids=INVALID)
def test_an_invalid_argument_is_told(text: str) -> None:
    assert fault_in_call(text) == "invalid_argument"


@pytest.mark.parametrize("text", RAN.values(), ids=RAN)
def test_a_tool_that_ran_has_accepted_its_call(text: str) -> None:
    assert fault_in_call(text) == ""


def test_a_report_beyond_the_head_is_content() -> None:
    assert fault_in_call(" " * 2000 + "Unknown tool: x") == "unknown_tool"
    assert fault_in_call(" " * 2100 + "Unknown tool: x") == ""


def called(*ids: str, name: str = "read") -> dict[str, Any]:
    calls = [{"id": one, "type": "function", "function": {"name": name, "arguments": "{}"}} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str, content: Any = "done", **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


ANSWERED = {"role": "assistant", "content": "I would read it."}


def test_results_accept_and_reject_their_calls() -> None:
    told = last_answer([user("go"), called("a", "b"), result("a"), result("b", "unsupported call: read")])
    assert told.follows == "tool_result"
    assert told.outcomes == (
        Fared(outcome="accepted", tool="read", call_id="a"),
        Fared(outcome="rejected", reason="unknown_tool", tool="read", call_id="b"),
    )


def test_only_what_is_new_counts() -> None:
    history = [user("go"), called("a"), result("a", "unsupported call: x"), called("b")]
    assert [fared.call_id for fared in last_answer([*history, result("b")]).outcomes] == ["b"]
    assert last_answer(history) == LastAnswer()
    assert last_answer([user("go")]) == LastAnswer()


def test_a_call_has_one_outcome() -> None:
    told = last_answer([called("a"), result("a"), result("a", "unsupported call: x")])
    assert [fared.outcome for fared in told.outcomes] == ["accepted"]


def test_result_of_parts_is_read() -> None:
    parts = [{"type": "text", "text": "Model tried to call unavailable tool 'x'."}]
    assert last_answer([called("a"), result("a", parts)]).outcomes[0].reason == "unknown_tool"


def test_result_without_a_known_call_keeps_its_own_name() -> None:
    told = last_answer([called("a"), result("z", name="grep"), {"role": "function", "name": "ls", "content": "x"}])
    assert [(fared.tool, fared.call_id) for fared in told.outcomes] == [("grep", "z"), ("ls", "")]


def test_text_after_an_answer_is_text() -> None:
    assert last_answer([ANSWERED, user("Thanks, and now b.py")]) == LastAnswer("text")
    assert last_answer([ANSWERED, {"role": "system", "content": "x"}]) == LastAnswer()


def test_text_beside_results_changes_nothing() -> None:
    told = last_answer([called("a"), result("a"), user("<environment_details>")])
    assert told.follows == "tool_result"


HEADED = [
    ("[read_file for 'a.py'] Result:\n\n1 | x", "accepted", ""),
    ("[execute_command for 'ls\n-l'] Result:\nExit code: 2", "accepted", ""),
    (
        "[read_file] Result:\nThe tool execution failed with the following error:\n<error>\n"
        "Missing value for required parameter 'path'.",
        "rejected",
        "missing_argument",
    ),
]


@pytest.mark.parametrize(("text", "outcome", "reason"), HEADED)
def test_results_of_clients_whose_calls_are_text(text: str, outcome: str, reason: str) -> None:
    name = text[1:].split(" ")[0].rstrip("]")
    for content in (text, [{"type": "text", "text": text}], _split(text)):
        told = last_answer([ANSWERED, user(content)])
        assert told.follows == "tool_result"
        assert [(fared.tool, fared.outcome, fared.reason) for fared in told.outcomes] == [(name, outcome, reason)]


def _split(text: str) -> list[dict[str, str]]:
    head, mark, rest = text.partition("] Result:")
    texts = (head + mark, rest, "<environment_details>\n</environment_details>")
    return [{"type": "text", "text": part} for part in texts]


def test_prose_in_brackets_is_no_result() -> None:
    assert last_answer([ANSWERED, user("[sic for real] no Result")]).follows == "text"


def test_a_client_complains_that_no_tool_was_used() -> None:
    text = (
        "[ERROR] You did not use a tool in your previous response! Please retry with a tool use.\n\n# Reminder"
        + "x" * 999
    )
    assert last_answer([ANSWERED, user(text)]) == LastAnswer("complaint", (Fared(outcome="no_tool_used"),))


def test_a_quoted_complaint_is_text() -> None:
    text = "It says: [ERROR] You did not use a tool in your previous response!"
    assert last_answer([ANSWERED, user(text)]).outcomes == ()


@pytest.mark.parametrize(
    "text", ["Please call the tool", "use the read tool", "You didn't use the tool!", "you did not call any function"]
)
def test_a_person_asks_for_the_tool(text: str) -> None:
    assert last_answer([ANSWERED, user(text)]) == LastAnswer("complaint")
    assert last_answer([called("a"), user(text)]).follows == "text"
    assert last_answer([ANSWERED, user(text + " " + "word " * 80)]).follows == "text"


@pytest.mark.parametrize("text", ["Use the other file", "call me later", "how do tools work?", "Fix the tool bar"])
def test_other_words_are_no_complaint(text: str) -> None:
    assert last_answer([ANSWERED, user(text)]).follows == "text"


def test_ids_tell_where_a_call_was_made() -> None:
    ids = CallIds(b"key", lambda size: bytes(range(size)))
    ours = ids.make(arm="live", strategy="recovery", dialect="hermes", epoch=3)
    told = last_answer([called(ours, "foreign"), result(ours), result("foreign", "unsupported call: x")])
    fallback = CallMark(arm="control", strategy="native", dialect=None, epoch=5)
    first, second = outcome_records(told, ids, at=9.0, key="k", fallback=fallback, reported_by="r")
    assert (first.arm, first.strategy, first.dialect, first.epoch) == ("live", "recovery", "hermes", 3)
    assert (second.arm, second.strategy, second.dialect, second.epoch) == ("control", "native", "none", 5)
    assert (first.outcome, second.outcome, second.reason) == ("accepted", "rejected", "unknown_tool")
    assert {(one.at, one.key, one.reported_by, one.tool) for one in (first, second)} == {(9.0, "k", "r", "read")}


def test_a_complaint_counts_where_the_conversation_is() -> None:
    told = last_answer([ANSWERED, user("[ERROR] You did not use a tool in your previous response!")])
    fallback = CallMark(arm="live", strategy=None, dialect=None, epoch=0)
    (record,) = outcome_records(told, CallIds(b"k", bytes), at=1.0, key="k", fallback=fallback, reported_by="r")
    assert (record.arm, record.strategy, record.outcome, record.call_id) == ("live", "none", "no_tool_used", "")


def test_outcomes_of_one_request_are_bounded() -> None:
    ids = [f"c{number}" for number in range(1000)]
    assert len(last_answer([called(*ids), *map(result, ids)]).outcomes) == 128


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["text", "id", "function", "name", "arguments"]), inner, max_size=3)
    ),
    max_leaves=8,
)

ANY = st.dictionaries(st.sampled_from(["content", "tool_calls", "tool_call_id", "name"]), VALUES)

ROLES = st.sampled_from(["system", "user", "assistant", "tool", "function", "developer"])


@settings(max_examples=200)
@given(st.lists(st.builds(lambda role, rest: {**rest, "role": role}, ROLES, ANY), max_size=6))
def test_any_messages_are_read(messages: list[dict[str, Any]]) -> None:
    told = last_answer(messages)
    assert told.outcomes == () or told.follows in ("tool_result", "complaint")


@settings(max_examples=100)
@given(st.sampled_from([*UNKNOWN.values(), *MISSING.values(), *INVALID.values()]), st.text(max_size=40))
def test_a_report_behind_other_text_is_content(report: str, before: str) -> None:
    first = before.strip()[:1]
    if first.isalnum():
        assert fault_in_call(f"{first}, as it said:\n{report}") == ""


PATTERNS = [value for value in vars(outcomes).values() if isinstance(value, re.Pattern)]

HOSTILE = ["a", " ", "\n", "\\n", "<error>", "error: ", "{", '{"status":"a",', "[a for ", "Error executing tool a", "'"]


@pytest.mark.cost
@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_results_cost_linear_time(unit: str) -> None:
    assert len(PATTERNS) >= 8

    def reading(size: int) -> Callable[[], None]:
        text = unit * (size // len(unit))

        def read() -> None:
            assert fault_in_call(text) == ""
            last_answer([ANSWERED, user(text[:300]), user(f"[a for {text}")])

        return read

    assert_linear(reading, 1 << 17)


def test_only_the_first_of_very_many_new_messages_are_looked_at():
    assistant, result = {"role": "assistant", "content": ""}, {"role": "tool", "content": "fine"}
    other = {"role": "system", "content": ""}
    assert last_answer([assistant, *[other] * 200, result]).follows == "tool_result"
    assert last_answer([assistant, *[other] * 200_000, result]).follows == "nothing"


# --- Ids of calls: what they look like, what they tell, and whom they tell nothing


KEY = b"0123456789abcdef0123456789abcdef"

NAMES = ["native", "recovery", "xml_prompt", "text", "native", *(row.id for row in TABLE)]


def ids(key: bytes = KEY, names: list[str] = NAMES) -> CallIds:
    return CallIds(key, secrets.token_bytes, names=names)


def test_an_id_is_call_and_24_letters_and_digits() -> None:
    made = [ids().make(arm="live", strategy="recovery", dialect="hermes") for _ in range(200)]
    assert all(re.fullmatch(r"call_[A-Za-z0-9]{24}", one) for one in made)
    assert len(set(made)) == len(made)


def test_all_known_names_have_marks_of_their_own() -> None:
    maker = ids()
    for name in set(NAMES):
        mark = maker.read(maker.make(arm="live", strategy="recovery", dialect=name))
        assert mark is not None
        assert mark.dialect == name


@given(
    arm=st.sampled_from(["live", "control", "dry_run", "off"]),
    strategy=st.sampled_from(["native", "recovery", "xml_prompt"]),
    dialect=st.sampled_from([row.id for row in TABLE]),
    epoch=st.integers(0, (1 << 10) - 1),
)
def test_the_facts_come_back(arm: str, strategy: str, dialect: str, epoch: int) -> None:
    made = ids().make(arm=arm, strategy=strategy, dialect=dialect, epoch=epoch)  # type: ignore[arg-type]
    assert ids().read(made) == CallMark(arm=arm, strategy=strategy, dialect=dialect, epoch=epoch)  # type: ignore[arg-type]


def test_another_process_with_the_key_reads_it_but_for_names_it_does_not_know() -> None:
    made = ids().make(arm="live", strategy="a_plugin", dialect="hermes")
    assert ids().read(made) == CallMark(arm="live", strategy=None, dialect="hermes", epoch=0)


def test_another_key_reads_nothing() -> None:
    made = ids().make(arm="live", strategy="recovery", dialect="hermes")
    assert ids(b"another key").read(made) is None


@given(st.integers(0, 23), st.sampled_from(string.ascii_letters + string.digits))
def test_a_changed_letter_makes_it_foreign(place: int, letter: str) -> None:
    made = ids().make(arm="live", strategy="recovery", dialect="hermes")
    at = len("call_") + place
    changed = made[:at] + letter + made[at + 1 :]
    assert (ids().read(changed) is None) == (changed != made)


@pytest.mark.parametrize(
    "foreign",
    ["", "call_", "call_0", "call_" + "z" * 24, "call_" + "0" * 25, "call_" + "é" * 24, "toolu_" + "0" * 24, "0" * 29],
)
def test_ids_of_others_are_not_read(foreign: str) -> None:
    assert ids().read(foreign) is None


def test_the_same_facts_do_not_look_the_same() -> None:
    one, other = (ids().make(arm="live", strategy="recovery", dialect="hermes") for _ in range(2))
    assert sum(left == right for left, right in zip(one[5:], other[5:], strict=True)) < 12


# --- A conversation keeps its key over its turns, and shares it with no other


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
