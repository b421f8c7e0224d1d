"""Conversations with a broken past, mended on their way up."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.core.errors import InvalidToolResults
from gateway.wire.chat_request import ChatRequest, parse_request
from gateway.wire.structured_calls import NativeCalls
from strategies.asking import beginnings, history, past_calls
from strategies.asking.family_ids import known_ids
from strategies.asking.past_calls import NOT_CARRIED_OUT, mend
from strategies.base import Options
from strategies.native import NativeStrategy
from strategies.recovery import RecoveryStrategy
from strategies.xml_prompt import XmlPromptStrategy

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]},
        },
    }
    for name, key in (("read", "filePath"), ("bash", "command"))
]

USER = {"role": "user", "content": "go on"}


def call(call_id, name="read", arguments='{"filePath": "/a"}', **more):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def said(*calls, content=None):
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(call_id, content="ok"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def request(*messages, model="deepseek-chat") -> ChatRequest:
    return parse_request(msgspec.json.encode({"model": model, "messages": [USER, *messages], "tools": TOOLS}))


def mended(*messages, model="deepseek-chat"):
    return mend(request(*messages, model=model), Options()).messages[1:]


GOOD = [
    [USER],
    [said(call("c1")), result("c1"), USER],
    [
        said(call("c1"), call("c2", "bash", '{"command": "ls"}')),
        result("c1"),
        result("c2"),
        {"role": "assistant", "content": "x"},
    ],
    [said(call("c1", arguments="{}"), content="I look.")],
    [{"role": "assistant", "content": "Use <tool_call> tags."}, USER],
    [
        {
            "role": "assistant",
            "content": 'See `<tool_call>{"name": "read", "arguments": {"filePath": "/a"}}</tool_call>`.',
        }
    ],
    [{"role": "tool", "tool_call_id": "nobody", "content": "x"}, {"role": "tool", "content": "x"}],
    [
        said(call("c1", "unknown_tool"), {"id": "c2", "type": "custom", "custom": {"name": "x", "input": "y"}}),
        result("c2"),
    ],
]


@pytest.mark.parametrize("messages", GOOD)
@pytest.mark.parametrize("strategy", [NativeStrategy, RecoveryStrategy])
def test_what_is_not_certainly_wrong_goes_up_byte_for_byte(messages, strategy):
    asked = request(*messages)
    prepared = strategy().prepare(asked, Options())
    assert prepared.body == asked.raw
    assert prepared.warnings == ()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, {}),
        ("", {}),
        ({"filePath": "/a"}, {"filePath": "/a"}),
        ("{'filePath': '/a'}", {"filePath": "/a"}),
        ('{"filePath": "/a",}', {"filePath": "/a"}),
        ('{"filePath": "/a', {"arguments": '{"filePath": "/a'}),
        ("[1]", {"arguments": "[1]"}),
        ('"text"', {"arguments": '"text"'}),
        ("NaN", {"arguments": "NaN"}),
        ([1], {"arguments": [1]}),
        ("not JSON", {"arguments": "not JSON"}),
        ("[" * 5000, {"arguments": "[" * 5000}),
    ],
)
def test_arguments_become_a_json_object(given, expected):
    turn = mended(said(call("c1", arguments=given)), result("c1"))[0]
    assert json.loads(turn["tool_calls"][0]["function"]["arguments"]) == expected


def test_a_missing_id_is_made_and_its_result_follows():
    turn, answer, last = mended(
        said(call(""), call(None, "bash")), result("", "one"), {"role": "tool", "content": "two"}
    )
    ids = [made["id"] for made in turn["tool_calls"]]
    assert len(set(ids)) == 2
    assert all(re.fullmatch(r"call_[0-9a-f]{24}", made) for made in ids)
    assert [(answer["tool_call_id"], answer["content"]), (last["tool_call_id"], last["content"])] == [
        (ids[0], "one"),
        (ids[1], "two"),
    ]


def test_an_id_that_comes_twice_is_told_apart_with_its_results():
    turns = mended(said(call("call_0")), result("call_0", "one"), said(call("call_0")), result("call_0", "two"))
    first, second = turns[0]["tool_calls"][0]["id"], turns[2]["tool_calls"][0]["id"]
    assert first == "call_0"
    assert second != first
    assert [turns[1]["tool_call_id"], turns[3]["tool_call_id"]] == [first, second]
    beside = mended(said(call("x"), call("x", "bash")), result("x", "one"), result("x", "two"))
    ids = [made["id"] for made in beside[0]["tool_calls"]]
    assert len(set(ids)) == 2
    assert [(message["tool_call_id"], message["content"]) for message in beside[1:]] == [
        (ids[0], "one"),
        (ids[1], "two"),
    ]


def test_a_result_belongs_to_the_newest_call_of_its_id():
    turns = mended(said(call("x")), USER, said(call("x")), result("x"))
    assert turns[3]["tool_call_id"] == turns[2]["tool_calls"][0]["id"]


def test_results_stand_behind_their_calls_in_their_order():
    turns = mended(said(call("a"), call("b", "bash")), USER, result("b"), result("a"), USER)
    assert [message.get("tool_call_id", message["role"]) for message in turns] == [
        "assistant",
        "a",
        "b",
        "user",
        "user",
    ]


def test_a_result_without_id_is_certain_when_one_call_waits():
    assert mended(said(call("a")), {"role": "tool", "content": "x"})[1]["tool_call_id"] == "a"
    assert "tool_call_id" not in mended(said(call("a"), call("b")), {"role": "tool", "content": "x"})[1]


LEAKS = [
    '<tool_call>\n{"name": "read", "arguments": {"filePath": "/a"}}\n</tool_call>',
    "<tool_call>\n<function=read>\n<parameter=filePath>\n/a\n</parameter>\n</function>\n</tool_call>",
    '<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>{"filePath": "/a"}'
    "<|tool_call_end|><|tool_calls_section_end|>",
]


@pytest.mark.parametrize("leak", LEAKS)
def test_a_call_that_was_left_as_text_shows_as_one_that_was_not_carried_out(leak):
    turn, answer, user = mended({"role": "assistant", "content": f"I look.\n\n{leak}"}, USER)
    assert turn["content"] == "I look."
    (made,) = turn["tool_calls"]
    assert made["function"] == {"name": "read", "arguments": '{"filePath":"/a"}'}
    assert answer == {"role": "tool", "tool_call_id": made["id"], "content": NOT_CARRIED_OUT}
    assert user == USER


@pytest.mark.parametrize("leak", LEAKS)
def test_a_structured_call_that_was_said_as_text_too_is_said_once(leak):
    turns = mended(said(call("a"), content=f"I look.\n{leak}"), result("a"))
    assert turns == [said(call("a"), content="I look."), result("a")]
    other = said(call("a", arguments='{"filePath": "/other"}'), content=leak)
    assert mended(other, result("a"))[0] == other


@pytest.mark.parametrize(
    "content",
    [
        LEAKS[0].replace('"read"', '"unknown"'),
        LEAKS[0] + "\nThis is how it is written.",
        f"```\n{LEAKS[0]}\n```\nas an example",
        LEAKS[0][:30],
    ],
)
def test_what_is_not_certainly_a_leaked_call_stays(content):
    message = {"role": "assistant", "content": content}
    assert mended(message, USER) == [message, USER]


def test_kimi_gets_ids_that_count_the_calls_of_the_conversation():
    turns = mended(
        said(call("call_a"), call("functions_bash_7", "bash")),
        result("call_a"),
        result("functions_bash_7"),
        said(call("call_c")),
        result("call_c"),
        model="moonshotai/Kimi-K2-Instruct",
    )
    assert [made["id"] for turn in turns for made in turn.get("tool_calls", [])] == [
        "functions.read:0",
        "functions.bash:1",
        "functions.read:2",
    ]
    assert [turn["tool_call_id"] for turn in turns if turn["role"] == "tool"] == [
        "functions.read:0",
        "functions.bash:1",
        "functions.read:2",
    ]


def test_mistral_gets_nine_letters_and_digits():
    turns = mended(
        said(call("call_" + "a" * 24), call("a1B2c3D4e")),
        result("call_" + "a" * 24),
        result("a1B2c3D4e"),
        model="mistral-small",
    )
    ids = [made["id"] for made in turns[0]["tool_calls"]]
    assert re.fullmatch(r"[A-Za-z0-9]{9}", ids[0])
    assert ids[1] == "a1B2c3D4e"
    assert [turn["tool_call_id"] for turn in turns[1:]] == ids


BROKEN = [
    said(call("", arguments="{'filePath': '/a'}")),
    {"role": "tool", "content": "x"},
    {"role": "assistant", "content": LEAKS[0]},
    USER,
    said(call("c"), call("c")),
    result("c"),
    result("c"),
    said(call("c", arguments="broken")),
    result("c"),
    USER,
]


@pytest.mark.parametrize("model", ["deepseek-chat", "kimi-k2", "mistral-small"])
def test_a_longer_conversation_begins_with_the_same_messages(model):
    whole = mended(*BROKEN, model=model)
    for size in (2, 4, 7, 9):
        part = mended(*BROKEN[:size], model=model)
        assert whole[: len(part)] == part
    assert mended(*BROKEN, model=model) == whole


@pytest.mark.parametrize("model", ["deepseek-chat", "kimi-k2", "mistral-small"])
def test_what_was_mended_needs_no_mending(model):
    whole = mended(*BROKEN, model=model)
    assert mended(*whole, model=model) == whole


def test_every_strategy_sends_the_mended_history():
    asked = request(*BROKEN)
    for strategy in (NativeStrategy(), RecoveryStrategy()):
        prepared = strategy.prepare(asked, Options())
        body = json.loads(prepared.body)
        assert body["messages"] == mend(asked, Options()).messages
        assert {key: body[key] for key in ("model", "tools")} == {key: asked.body[key] for key in ("model", "tools")}
        assert prepared.warnings
    prompted = json.loads(XmlPromptStrategy().prepare(asked, Options()).body)
    assert NOT_CARRIED_OUT in json.dumps(prompted)
    assert "<tool_call>" not in json.dumps(prompted["messages"][1:])


def test_many_mends_are_told_in_few_words():
    turns = [
        message
        for number in range(50)
        for message in (said(call("", arguments="x")), {"role": "tool", "content": str(number)})
    ]
    notes = mend(request(*turns), Options()).notes
    assert len(notes) < 12
    assert "more" in notes[-1]


odd = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "x", "{}", "c", LEAKS[0], '{"filePath": 1}']),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "type", "function", "name", "arguments", "text"]), inner, max_size=4)
    ),
    max_leaves=12,
)

message = st.fixed_dictionaries(
    {"role": st.sampled_from(["assistant", "tool", "user", "system", "odd"])},
    optional={"content": odd, "tool_calls": odd | st.lists(odd, max_size=3), "tool_call_id": odd},
)


@settings(max_examples=150, deadline=None)
@given(st.lists(message, max_size=6), st.sampled_from(["m", "kimi-k2", "mistral-x"]))
def test_whatever_a_client_sends_mending_is_deterministic_and_loses_nothing_else(messages, model):
    asked = request(*messages, model=model)
    first, second = mend(asked, Options()), mend(asked, Options())
    assert first == second
    others = [message for message in first.messages if message["role"] not in ("assistant", "tool")]
    assert others == [message for message in asked.messages if message["role"] not in ("assistant", "tool")]
    assert len(first.messages) >= len(asked.messages)


def too_deep() -> list[object]:
    """Deeper than any encoder goes."""
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    return deep


def test_a_body_too_deep_to_write_goes_up_as_it_came():
    asked = request(said(call("", arguments="{}")))
    assert mend(asked, Options()).body(asked) != asked.raw
    deep = replace(asked, body={**asked.body, "metadata": too_deep()})
    assert mend(deep, Options()).body(deep) == asked.raw


def test_arguments_too_deep_to_write_harm_nothing():
    """They arrived as an object, which no server takes; what cannot be written as text is left out."""
    asked = request(said(call("c1")))
    turn = said(call("c1", arguments={"filePath": too_deep()}))
    (told,) = mend(replace(asked, messages=[turn]), Options()).messages
    assert told["tool_calls"][0]["function"]["arguments"] == "{}"


def test_a_text_is_not_held_against_more_tools_than_any_client_has():
    leak = {
        "role": "assistant",
        "content": '<tool_call>\n{"name": "read", "arguments": {"filePath": "/a"}}\n</tool_call>',
    }
    few = [*TOOLS, *({"type": "function", "function": {"name": f"t{number}"}} for number in range(1022))]
    for tools, is_read in ((few, True), ([*few, {"type": "function", "function": {"name": "one_more"}}], False)):
        body = msgspec.json.encode({"model": "m", "messages": [USER, leak, USER], "tools": tools})
        prepared = RecoveryStrategy().prepare(parse_request(body), Options())
        assert (prepared.make_reader is not None, prepared.body != body) == (is_read, is_read)
        assert any("too many" in warning for warning in prepared.warnings) is not is_read
        assert prepared.ask_again is not None


def test_a_conversation_is_read_up_to_a_bound():
    leak = '<tool_call>\n{"name": "read", "arguments": {"filePath": "/a"}}\n</tool_call>'
    long = {"role": "assistant", "content": "x" * 200_000 + f"\n\n{leak}"}
    found = mended(long, USER, long, USER, long, USER, {**long, "content": leak}, USER)
    assert [len(message.get("tool_calls", ())) for message in found if message["role"] == "assistant"] == [1, 1, 0, 1]
    assert found[: len(mended(long, USER))] == mended(long, USER)


def test_a_leaked_call_is_only_text_where_no_tools_are_declared():
    history = [{"role": "assistant", "content": LEAKS[0]}]
    asked = parse_request(msgspec.json.encode({"model": "m", "messages": [USER, *history]}))
    assert mend(asked, Options()).body(asked) == asked.raw


@pytest.mark.parametrize(
    "odd_call",
    [
        "read",
        {"id": "c2", "type": "function", "function": "read"},
        {"id": "c2", "type": "function", "function": {"name": "read"}},
        call("c2", arguments=None),
        call("c2", arguments="{"),
    ],
    ids=["a name", "no function", "no arguments", "null", "broken"],
)
def test_a_call_as_text_stays_beside_structured_calls_that_are_not_it(odd_call):
    text = '<tool_call>\n{"name": "read", "arguments": {"filePath": "/a"}}\n</tool_call>'
    assert mended(said(odd_call, content=text))[0]["content"] == text
    assert mended(said(odd_call, call("c1"), content=text))[0]["content"] is None


# --- Ids that a family insists on: what the server said is what it hears again, whatever the client makes of them


TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}


def mended_for(model: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    body = {"model": model, "messages": messages, "tools": [TOOL]}
    return mend(parse_request(json.dumps(body).encode()), Options()).messages


def answered(model: str, messages: list[dict[str, Any]], ids: list[str]) -> list[str]:
    """The ids that the client gets for the server's."""
    known = known_ids(model, messages)
    made = iter(range(100))
    native = NativeCalls(
        lambda _: f"call_made{next(made)}",
        taken_ids=known,
        next_id=known.next_id,
    )
    calls = [{"id": each, "type": "function", "function": {"name": "read", "arguments": "{}"}} for each in ids]
    native.mend_message(calls)
    return [str(call["id"]) for call in calls]


def conversation(model: str, turns: list[list[str]], told: Callable[[str], str]) -> tuple[list[str], list[str]]:
    """Ids as clients get them, and as the server gets them in the end; `told` is what the client makes of its own."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "x"}]
    got: list[str] = []
    for ids in turns:
        given = answered(model, mended_for(model, messages), ids)
        got += given
        calls = [
            {"id": told(each), "type": "function", "function": {"name": "read", "arguments": "{}"}} for each in given
        ]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": told(each), "content": "y"} for each in given]
    sent = mended_for(model, messages)
    called = [call["id"] for message in sent for call in message.get("tool_calls", [])]
    assert [message["tool_call_id"] for message in sent if message["role"] == "tool"] == called
    return got, called


@pytest.mark.parametrize("told", [str, lambda each: each.replace(".", "_").replace(":", "_")], ids=["kept", "cleaned"])
@pytest.mark.parametrize(
    "turns",
    [
        [["functions.read:0"], ["functions.read:1", "functions.read:2"], ["functions.read:3"]],
        [["functions.read:0"], ["functions.read:0", "functions.read:1"], ["functions.read:0"]],
        [["functions.read:0", "functions.read:0"], ["functions.read:0"]],
    ],
)
def test_kimis_ids_count_on_both_ways(turns: list[list[str]], told: Callable[[str], str]) -> None:
    got, sent = conversation("kimi-k2-instruct", turns, told)
    assert sent == [f"functions.read:{at}" for at in range(len(sent))]
    assert got == sent


def test_mistrals_ids_come_back_as_they_were() -> None:
    got, sent = conversation("mistral-small", [["a1B2c3D4e"], ["Z9y8X7w6V", "a1B2c3D4e"]], str)
    assert got == sent
    assert got[:2] == ["a1B2c3D4e", "Z9y8X7w6V"]
    assert len(set(got)) == 3
    assert all(len(each) == 9 and each.isalnum() for each in got)


def test_other_families_keep_what_they_have() -> None:
    assert answered("deepseek-chat", [], ["call_0", "call_0"]) == ["call_0", "call_made0"]
    past = [{"role": "assistant", "tool_calls": [{"id": "call_0"}]}]
    assert answered("deepseek-chat", past, ["call_0", "call_1"]) == ["call_made0", "call_1"]


@pytest.mark.parametrize("calls", [None, 5, [None, {"id": 5}], {}])
def test_a_strange_history_tells_nothing(calls: Any) -> None:
    known = known_ids("kimi-k2", [{"role": "assistant", "tool_calls": calls}, {"role": "user"}])
    assert known.next_id is not None
    assert known.next_id("", "read", 0).startswith("functions.read:")
    assert 5 not in known


@contextmanager
def nothing_remembered() -> Iterator[None]:
    """As in a process that has never seen this conversation."""
    kept = past_calls._beginnings, history._beginnings
    past_calls._beginnings, history._beginnings = beginnings.Beginnings(), beginnings.Beginnings()
    yield
    past_calls._beginnings, history._beginnings = kept


def sent(asked, strategy):
    """All that may differ of what goes upstream."""
    try:
        prepared = strategy.prepare(asked, Options())
    except InvalidToolResults as error:
        return str(error)
    again = prepared.ask_again
    return prepared.body, prepared.warnings, again and list(again.messages)


a_turn = st.sampled_from(
    [
        [USER],
        [said(call("c1")), result("c1")],
        [
            said(call("c1"), call("c2", "bash", '{"command": "ls"}')),
            result("c2"),
            result("c1", [{"type": "text", "text": "a"}]),
        ],
        [said(call("c3"), content="I look."), result("c3", "</read> <tools>"), {"role": "user", "content": ""}],
        [said(call("c1"))],
        [result("c1")],
        [said(call("c4", arguments="broken")), result("c4")],
        [
            said(call("c5", "odd name", '{"a b": 1}')),
            result("c5", [{"type": "image_url", "image_url": {"url": "data:,"}}]),
        ],
        [{"role": "assistant", "content": LEAKS[0]}],
        [{"role": "assistant", "content": "x", "function_call": {"name": "read", "arguments": "{}"}}],
        [{"role": "function", "name": "read", "content": "x"}],
        [said(call("n", arguments={"limit": 1})), result("n")],
        [said(call("n", arguments={"limit": True})), result("n")],
        [{"role": "assistant", "content": None, "tool_calls": []}, {"role": "odd", "content": 1.0}],
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(a_turn, max_size=6), st.lists(st.lists(a_turn, max_size=4), min_size=1, max_size=3))
def test_what_is_remembered_of_a_conversation_changes_nothing(begin, ends):
    """Whichever turns were seen before, and though it goes on in several ways."""
    strategies = XmlPromptStrategy(), RecoveryStrategy()
    patch = pytest.MonkeyPatch()
    patch.setattr(beginnings, "_FEWEST", 1)
    try:
        for end in ends:
            turns = [*begin, *end]
            for last in range(len(turns) + 1):
                messages = [message for turn in turns[:last] for message in turn]
                for strategy in strategies:
                    asked = request(*messages)
                    as_known = sent(asked, strategy)
                    with nothing_remembered():
                        assert as_known == sent(request(*messages), strategy)
                    assert asked.body == request(*messages).body, "a message that requests share was changed"
    finally:
        patch.undo()
        past_calls._beginnings.forget_all()
        history._beginnings.forget_all()


def test_a_conversation_is_walked_over_once(monkeypatch):
    """With each of its turns only what is new costs anything; what is remembered of all of them is bounded."""
    walked: list[int] = []
    take = history._Rewriting.take

    def counted(walk, index, message):
        walked.append(index)
        take(walk, index, message)

    monkeypatch.setattr(history._Rewriting, "take", counted)
    turns = [[said(call(f"c{number}")), result(f"c{number}", f"{number}" * 100)] for number in range(100)]
    for last in range(50, 101):
        XmlPromptStrategy().prepare(request(*(message for turn in turns[:last] for message in turn)), Options())
    assert walked == list(range(201))
    monkeypatch.setattr(beginnings, "_ROOM", 60_000)
    for name in "abcdef":
        user = {"role": "user", "content": name}
        XmlPromptStrategy().prepare(request(user, *(message for turn in turns for message in turn)), Options())
    assert sum(known.size for known in history._beginnings._known) < 60_000
    assert history._beginnings._known
