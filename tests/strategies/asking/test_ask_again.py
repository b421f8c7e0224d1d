"""When a broken call is asked for again, and what the model is told about it."""

import json
from typing import Any

import msgspec
import pytest

from gateway.core.events import NONE_MARKUP, Drop, Note, Text, Verdict
from gateway.wire.chat_request import ChatRequest, parse_request
from strategies.asking.ask_again import AskAgain, Demand, asking_again, demanded, fault_of
from strategies.asking.forbidden import CallsForbidden, forbids_calls
from strategies.asking.intent import IntentWatch, asks_for_tools
from strategies.base import BrokenCall, InTurns, Options, PassesText, Prepared
from strategies.native import NativeStrategy
from strategies.recovery import RecoveryStrategy
from strategies.writing.samples import sample_arguments
from strategies.xml_prompt import XmlPromptStrategy
from tests.support.chat import answer_body, answer_events, hear_stream, stream, whole
from tests.support.reading import AGENT_TOOLS, pieces

TOOLS = [
    {"type": "function", "function": {"name": tool.name, "description": "", "parameters": tool.parameters}}
    for tool in AGENT_TOOLS
]

READ, GLOB = (tool for tool in AGENT_TOOLS if tool.name in ("read", "glob"))

USER = {"role": "user", "content": "Look at the file."}


def prepared(strategy: Any = None, *messages: dict[str, Any], dialect: str | None = None, **fields: Any) -> Prepared:
    body = {"model": "m", "messages": list(messages) or [USER], "tools": TOOLS, "stream": True, **fields}
    options = Options(dialect=dialect)
    result: Prepared = (strategy or XmlPromptStrategy()).prepare(parse_request(json.dumps(body).encode()), options)
    return result


def ask_of(how: Prepared) -> AskAgain:
    assert isinstance(how.ask_again, AskAgain)
    return how.ask_again


def attempts(answer: str, how: Prepared, reason: str = "stop") -> list[Note]:
    assert how.make_reader is not None
    reader = how.make_reader()
    events = [*reader.feed(answer), *reader.finish(reason)]
    return [event for event in events if isinstance(event, Note) and ask_of(how).is_broken_call(event)]


def said(answer: str, how: Prepared | None = None) -> str:
    """What the model is told about an answer."""
    how = how or prepared()
    notes = attempts(answer, how)
    assert notes or ask_of(how).required
    messages = json.loads(ask_of(how).body([BrokenCall(content=answer, notes=tuple(notes))]))["messages"]
    assert messages[-1]["role"] == "user"
    text: str = messages[-1]["content"]
    return text


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ("<read>\n<filePath>a.py", "`<filePath>` was not closed"),
        ("<read>\n<filePath>a.py\n</read>", "`<filePath>` was not closed"),
        ("<write>\n<filePath>a</filePath>\n<content>x\ny", "`<content>` was not closed"),
        ("<read>\n<filePath>a.py</filePath>\n<limit>many</limit>\n</read>", "`limit` must be a number"),
        ("<read>\n<limit>3</limit>\n</read>", "missing required argument `filePath`"),
        ('<tool_call>\n{"name": "read", "arguments": {"limit": 3}}\n</tool_call>', "missing required argument"),
        ('<tool_call>\n{"name": "read", "arguments": {"filePath" "a"}}\n</tool_call>', "its JSON is not valid"),
        ('<tool_call>\n{"name": "read", "arguments": {"filePath": "a.py', "its JSON is not complete"),
        ("<function=read>\n<parameter=limit>\nmany\n</parameter>\n</function>", "must be a number"),
    ],
)
def test_feedback_names_the_tool_what_is_wrong_and_the_right_form(answer: str, fault: str) -> None:
    text = said(answer)
    tool = "write" if "<write>" in answer else "read"
    assert f"the tool `{tool}`" in text
    assert fault in text
    assert f"<{tool}>\n<filePath>src/main.py</filePath>" in text


def test_the_right_form_is_that_of_the_dialect_the_model_was_told() -> None:
    text = said("<read>\n<filePath>a.py", prepared(dialect="hermes"))
    assert '<tool_call>\n{"name": "read", "arguments": {"filePath": "src/main.py"' in text


def test_a_model_with_native_tools_is_shown_arguments() -> None:
    text = said("<read>\n<filePath>a.py", prepared(RecoveryStrategy()))
    assert "`<filePath>` was not closed" in text
    assert text.endswith('{"filePath": "src/main.py", "offset": 1}')
    assert "<read>" not in text


@pytest.mark.parametrize(
    "answer",
    [
        "I need to read the file first.",
        "To read a file, use <read> and say which.",
        "```xml\n<read>\n<filePath>a.py\n```\nThat is how it is done.",
        "`<read><filePath>a.py`",
        'I would call {"name": "read", "arguments": {"limit": 1}} here.',
        '```json\n{"name": "read", "arguments": {"limit": 3}}\n```',
        "<nothing>\n<filePath>a.py",
        "<read>\n<where>a.py",
        "```xml\n<read>\n<limit>3</limit>\n</read>\n```",
        "```bash\nrm -rf /\n```",
    ],
)
def test_what_is_not_plainly_a_call_is_not_asked_for(answer: str) -> None:
    assert attempts(answer, prepared()) == []
    assert attempts(answer, prepared(RecoveryStrategy())) == []


def test_a_broken_call_that_the_client_sent_is_a_quotation() -> None:
    broken = "<write>\n<filePath>/etc/passwd</filePath>\n<content>root"
    page = {"role": "user", "content": f"Summarise this page:\n\nHello.\n{broken}\n"}
    assert attempts(broken, prepared(None, page)) == []
    assert attempts(f"The page says:\n{broken}\nand nothing else.", prepared(None, page)) == []
    assert attempts(broken, prepared()) != []


def test_a_copied_call_and_one_of_a_tool_that_may_not_be_recovered_are_not_asked_for() -> None:
    ask = ask_of(prepared())
    for reason in ("provenance", "tool not in RECOVERY_TOOLS", "unknown_tool", "too_large"):
        verdict = Verdict(dialect="generic_xml", name="read", score=97, accepted=False, reasons=("tag 97", reason))
        assert not ask.is_broken_call(Note(verdict, seen="<read>", size=6))


def test_several_choices_are_never_asked_for_again() -> None:
    assert prepared(n=2).ask_again is None
    assert prepared(RecoveryStrategy(), n=2).ask_again is None
    assert prepared(n=1).ask_again is not None


def test_no_tools_no_repair() -> None:
    for strategy in (XmlPromptStrategy(), RecoveryStrategy(), NativeStrategy()):
        assert prepared(strategy, tool_choice="none").ask_again is None


def test_the_second_request_is_the_first_one_and_what_came_of_it() -> None:
    how = prepared(temperature=0.5, stream_options={"include_usage": True})
    notes = attempts("So.\n<read>\n<filePath>a", how)
    body = json.loads(ask_of(how).body([BrokenCall(content="So.\n<read>\n<filePath>a", notes=tuple(notes))]))
    first = json.loads(how.body)
    assert body["messages"][: len(first["messages"])] == first["messages"]
    assert body["messages"][-2] == {"role": "assistant", "content": "So.\n<read>\n<filePath>a"}
    assert body["stream"] is False
    assert "stream_options" not in body
    assert "tools" not in body
    assert body["temperature"] == 0.5


def test_a_third_request_tells_of_both_answers() -> None:
    how = prepared()
    answers = ["<read>\n<filePath>a", "<read>\n<limit>3</limit>\n</read>"]
    tries = [BrokenCall(content=answer, notes=tuple(attempts(answer, how))) for answer in answers]
    messages = json.loads(ask_of(how).body(tries))["messages"]
    assert [message["role"] for message in messages[-4:]] == ["assistant", "user", "assistant", "user"]
    assert "was not closed" in messages[-3]["content"]
    assert "missing required argument" in messages[-1]["content"]


@pytest.mark.parametrize(
    ("choice", "required", "name"),
    [
        (None, False, None),
        ("auto", False, None),
        ("none", False, None),
        ("required", True, None),
        ("any", True, None),
        ({"type": "function", "function": {"name": "read"}}, True, "read"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}}, True, None),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}, False, None),
        ({"type": "function"}, False, None),
    ],
)
def test_what_a_choice_demands(choice: Any, required: bool, name: str | None) -> None:
    demand = demanded(choice)
    assert (demand.required, demand.name) == (required, name)


def test_a_missing_call_is_asked_for_in_its_form() -> None:
    choice = {"type": "function", "function": {"name": "glob"}}
    text = said("I would rather not.", prepared(tool_choice=choice))
    assert "a call of the tool `glob` is required now" in text
    assert "<glob>\n<pattern>" in text
    assert "is required now" in said("No.", prepared(tool_choice="required"))


def test_an_empty_answer_is_not_shown_again() -> None:
    how = prepared(tool_choice="required")
    messages = json.loads(ask_of(how).body([BrokenCall(content="")]))["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "user"]


def test_unusable_arguments_are_answered_where_a_tool_would_answer() -> None:
    how = prepared(NativeStrategy())
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"filePath": '}}
    body = json.loads(ask_of(how).body([BrokenCall(content="So.", calls=(call,))]))
    assistant, tool = body["messages"][-2:]
    assert assistant["content"] == "So."
    assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == {"arguments": '{"filePath": '}
    assert tool["role"] == "tool"
    assert tool["tool_call_id"] == assistant["tool_calls"][0]["id"] == "c1"
    assert "not a JSON object" in tool["content"]
    assert '{"filePath": "src/main.py"' in tool["content"]
    assert body["tools"] == TOOLS


@pytest.mark.parametrize("call", [{}, {"function": None}, {"id": 5, "function": {"name": 7, "arguments": [1]}}])
def test_calls_of_any_shape_can_be_answered(call: dict[str, Any]) -> None:
    body = json.loads(ask_of(prepared(NativeStrategy())).body([BrokenCall(content="", calls=(call,))]))
    assert json.loads(body["messages"][-2]["tool_calls"][0]["function"]["arguments"]) is not None


@pytest.mark.parametrize(
    ("arguments", "usable"),
    [("{}", True), ("", True), ({"a": 1}, True), ("[]", False), ('{"a', False), (None, False), ("[" * 99999, False)],
)
def test_arguments_are_usable_when_they_are_an_object(arguments: Any, usable: bool) -> None:
    ask = ask_of(prepared(NativeStrategy()))
    assert ask.is_usable("read", arguments) is usable
    assert not ask.is_usable("nothing", {})


def test_the_reason_holds_nothing_that_the_model_wrote() -> None:
    how = prepared()
    secret = "<read>\n<filePath>secret-name.py"
    ask = ask_of(how)
    assert ask.reason(BrokenCall(content=secret, notes=tuple(attempts(secret, how)))) == "value not closed"
    assert ask.reason(BrokenCall(content=secret)) == "required_call_missing"
    assert ask.reason(BrokenCall(content=secret, calls=({},))) == "bad_arguments"


def note(*reasons: str, seen: str = "<read>", name: str = "read", size: int | None = None) -> Note:
    verdict = Verdict(dialect="generic_xml", name=name, score=97, accepted=False, reasons=reasons)
    return Note(verdict, seen=seen, size=len(seen) if size is None else size)


@pytest.mark.parametrize(
    ("reasons", "fault"),
    [
        (("JSON: no colon",), "its JSON is not valid (no colon)"),
        (("missing_braces -3", "confidence 0.80 is below 0.90"), "its JSON is not complete"),
        (("call_closer_missing -2", "confidence 0.80 is below 0.90"), "its closing tag is missing or wrong"),
        (("value_tag -2", "confidence 0.80 is below 0.90"), "it is not written exactly in the required form"),
        (("tag 97", "text between parameters"), "it is not written in the required form (text between parameters)"),
    ],
)
def test_a_fault_is_told_in_words_to_act_on(reasons: tuple[str, ...], fault: str) -> None:
    assert fault_of(note(*reasons), READ) == fault


def test_a_tag_is_called_unclosed_only_where_all_of_the_candidate_was_seen() -> None:
    seen = "<read>\n<filePath>a"
    told = [fault_of(note("value not closed", seen=seen, size=size), READ) for size in (None, 900)]
    assert told == ["`<filePath>` was not closed", "it is not written in the required form (value not closed)"]


def test_the_tool_of_a_candidate_may_be_named_in_its_text_only() -> None:
    ask = ask_of(prepared())
    found = ask.tool_of(note("JSON", seen='{"tool": "write_to_file"', name="wrte"))
    assert found is not None
    assert found.name == "write_to_file"
    assert ask.tool_of(note("JSON", seen="nothing to readers", name="wrte")) is None


def test_the_examples_own_arguments_are_an_echo_unless_the_model_had_meant_them() -> None:
    ask = ask_of(prepared())
    example = json.dumps(sample_arguments(READ))
    meant = [BrokenCall(content="<read>", notes=(note("value not closed"),))]
    assert ask.is_echo("read", example, meant)
    assert not ask.is_echo("read", '{"filePath": "other.py"}', meant)
    assert not ask.is_echo("read", "[]", meant)
    assert not ask.is_echo("read", "{}", meant)
    assert not ask.is_echo("nothing", example, meant)
    assert not ask.is_echo("glob", json.dumps(sample_arguments(GLOB)), meant)
    said_before = [BrokenCall(content=f"<read>{example}", notes=meant[0].notes)]
    assert not ask.is_echo("read", example, said_before)


def test_a_call_of_a_tool_that_is_not_declared_is_asked_for_in_general() -> None:
    ask = asking_again(ask_of(prepared()).request, demand=Demand(required=True, name="zap"))
    assert ask is not None
    text = json.loads(ask.body([BrokenCall(content="No.")]))["messages"][-1]["content"]
    assert text.endswith("a call of one of the tools is required now.")
    assert ask.satisfies("zap")
    assert not ask.satisfies("read")


# --- Answers to requests that offer tools and forbid calls: markup is counted, and left out where that is wanted


HERMES = '<tool_call>\n{"name": "read", "arguments": {"filePath": "a.py"}}\n</tool_call>'

TAGS = "<read>\n<filePath>a.py</filePath>\n</read>"

GEMMA = "<|tool_call>call:launch{}<tool_call|>"

MARKUP = {"hermes": HERMES, "generic_xml": TAGS, "gemma4": GEMMA}

NO_MARKUP = {
    "JSON": 'It is `{"a": 1}`, so\n```json\n{"name": "read", "arguments": {"filePath": "a.py"}}\n```',
    "bare": '{"name": "read", "arguments": {"filePath": "a.py"}}',
    "in code": f"You would write `{TAGS}`.",
    "a fence": f"So it goes:\n```xml\n{HERMES}\n```\nand so on.",
    "half": "<tool_call>\n{",
    "the form in a fence": f"It is written so:\n\n```\n{HERMES}\n```",
    "a tool of nobody": "<web_fetch>\n<url>x</url>\n</web_fetch>",
    "prose": "Nothing is to be done.\n\n",
}


def request(**more: Any) -> ChatRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": TOOLS, "tool_choice": "none"}
    return parse_request(json.dumps({**body, **more}).encode())


def how(mode: str, strategy: Any = CallsForbidden, **more: Any) -> Prepared:
    made: Prepared = strategy().prepare(request(**more), Options(none_markup=mode))  # type: ignore[arg-type]
    return made


def test_which_requests_forbid_calls() -> None:
    assert forbids_calls(request())
    assert not forbids_calls(request(tool_choice="auto"))
    assert not forbids_calls(request(tools=[]))
    assert how("keep", n=2).make_reader is None
    assert how("keep").body == request().raw


@pytest.mark.parametrize("strategy", [CallsForbidden, XmlPromptStrategy])
@pytest.mark.parametrize(("dialect", "markup"), MARKUP.items(), ids=MARKUP)
def test_markup_is_noted_and_stays_or_is_left_out(dialect: str, markup: str, strategy: Any) -> None:
    text = f"I would look.\n{markup}"
    for parts in ([text], list(text)):
        events = answer_events(parts)
        out, exchange = stream(events, how("keep", strategy))
        assert out == b"".join(events)
        (noted,) = exchange.facts.intents
        assert (noted.dialect, noted.reasons[-1], exchange.facts.calls) == (dialect, NONE_MARKUP, [])
        out, exchange = stream(events, how("drop", strategy))
        heard = hear_stream(out)
        assert ((heard.content or "").strip(), heard.calls, heard.finish) == ("I would look.", [], "stop")
        assert (exchange.facts.dropped[NONE_MARKUP], len(exchange.facts.intents)) == (1, 1)
    body = answer_body(text)
    assert whole(body, how("keep", strategy))[0] == body
    message = json.loads(whole(body, how("drop", strategy))[0])["choices"][0]["message"]
    assert (message["content"].strip(), "tool_calls" in message) == ("I would look.", False)


@pytest.mark.parametrize("mode", ["keep", "drop"])
@pytest.mark.parametrize("text", NO_MARKUP.values(), ids=NO_MARKUP)
def test_what_is_no_markup_is_no_ones_affair(text: str, mode: str) -> None:
    events = answer_events(list(text))
    out, exchange = stream(events, how(mode))
    assert (out, exchange.facts.intents, exchange.facts.refused) == (b"".join(events), [], [])
    body = answer_body(text)
    assert whole(body, how(mode))[0] == body


@pytest.mark.parametrize("mode", ["keep", "drop"])
def test_the_readers_say_the_same_however_they_are_fed(mode: str) -> None:
    make = how(mode).make_reader
    assert make is not None
    text = "x " * 4500 + f"\nOne.\n{HERMES}\nTwo. <b>x</b>\n\n{HERMES.replace('a.py', 'b.py')}\n"
    for cuts in ((), range(1, len(text)), range(5, len(text), 700)):
        reader = make()
        assert isinstance(reader, InTurns)
        assert isinstance(reader, PassesText)
        told = [event for piece in pieces(text, cuts) for event in reader.feed(piece)] + reader.finish("stop")
        assert "".join(event.raw for event in told if not isinstance(event, Note)) == text
        assert len([event for event in told if isinstance(event, Note)]) == 2
        assert any(isinstance(event, Drop) for event in told) is (mode == "drop")
        reader, told = make(), []
        told += reader.step(text)  # type: ignore[attr-defined]
        while reader.busy:  # type: ignore[attr-defined]
            told += reader.step()  # type: ignore[attr-defined]
        told += reader.finish("stop")
        said = "".join(event.raw for event in told if isinstance(event, Text))
        assert (HERMES in said) is (mode == "keep")
    assert make().idle


# --- Requests for tool work that offer no tools: read beside, never touched

LEAKED = '<tool_call>\n{"name": "read", "arguments": {"filePath": "src/a.py"}}\n</tool_call>'


def plain_request(text, **fields):
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **fields}
    return parse_request(msgspec.json.encode(body))


@pytest.mark.parametrize(
    "text",
    [
        "Read the file src/app.py",
        "please run the command below",
        "Could you list all files in this folder?",
        "search the repo for TODO",
        "Edit main.py so that it prints 2",
        "write a script that counts words",
        "execute the tests",
        [{"type": "text", "text": "open config.toml"}],
        "Lies bitte die Datei",
        "Ouvre le fichier",
        "Ejecuta el comando",
        "Прочитай файл",
        "请读取这个文件",
        "x" * 9000 + "\nread the file",
    ],
)
def test_tool_work_is_recognised(text):
    assert asks_for_tools(plain_request(text))


@pytest.mark.parametrize("text", ["What is a monad?", "hi", "", [], None, "Write a poem about rain", "read\nthe file"])
def test_other_questions_are_not(text):
    assert not asks_for_tools(plain_request(text))


def test_only_the_last_user_message_counts():
    messages = [{"role": "user", "content": "read the file"}, {"role": "assistant", "content": "x"}]
    assert asks_for_tools(plain_request("", messages=messages))
    assert not asks_for_tools(plain_request("", messages=[*messages, {"role": "user", "content": "thanks"}]))
    assert not asks_for_tools(plain_request("", messages=[{"role": "system", "content": "read the file"}]))


@pytest.mark.parametrize("size", [1, 6, 500])
def test_a_well_formed_call_is_noted_and_nothing_is_touched(size):
    prepared = IntentWatch().prepare(plain_request("read the file"), Options())
    events = answer_events([LEAKED[at : at + size] for at in range(0, len(LEAKED), size)])
    out, exchange = stream(events, prepared)
    assert out == b"".join(events)
    assert [verdict.name for verdict in exchange.facts.intents] == ["read"]
    assert exchange.facts.calls == []
    body = answer_body(LEAKED)
    assert whole(body, prepared)[0] == body


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"name": "read", "arguments": {"filePath": "a"}}\n```',  # not certain enough
        '<tool_call>\n{"name": "read", "arguments": {"filePath": "a", "odd": 1}}\n</tool_call>',
        '<tool_call>\n{"name": "nobody", "arguments": {}}\n</tool_call>',
        "Only words.",
    ],
)
def test_less_than_a_well_formed_call_is_not_noted(text):
    prepared = IntentWatch().prepare(plain_request("read the file"), Options())
    out, exchange = stream(answer_events([text]), prepared)
    assert exchange.facts.intents == []
    assert out == b"".join(answer_events([text]))


def test_several_choices_are_not_read():
    assert IntentWatch().prepare(plain_request("read the file", n=2), Options()).make_reader is None


def test_a_reader_that_fails_beside_an_answer_harms_nothing():
    make_reader = IntentWatch().prepare(plain_request("read the file"), Options()).make_reader
    assert make_reader is not None
    reader: Any = make_reader()

    class Failing:
        idle = True

        def feed(self, text):
            raise ZeroDivisionError

        finish = feed

    reader._inner = Failing()
    assert [event.raw for event in (*reader.feed("a"), *reader.feed("b"))] == ["a", "b"]
    assert reader.finish("stop") == []
