"""What clients of tags get: their own tags, exactly, or the model's own words."""

import json
import random
import re
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.answer.stream import StreamExchange
from gateway.core.client import Client
from gateway.core.limits import Limits
from gateway.core.reasons import Reason
from gateway.wire.chat_request import parse_request
from strategies.base import Options
from strategies.clients import recognise
from strategies.xml_text import XmlTextStrategy
from tests.support.chat import answer_body, answer_events, event, hear_body, hear_stream, stream, whole
from tests.support.tag_clients import CLIENTS, TOOLS, Use, parse, prompt, tag_request, unescaped_once


def prepared(client, *messages, model="deepseek-chat", **options):
    return XmlTextStrategy().prepare(
        tag_request(client, *messages, model=model), Options(client=CLIENTS[client], **options)
    )


def fence(name, arguments, info="json"):
    return f"```{info}\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n```"


def tagged(name, arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def answer(client, text, *, size=7, how=None, finish="stop"):
    """The client's content, the same streamed and whole; and the bytes, and what was refused."""
    how = how or prepared(client)
    events = answer_events([text[at : at + size] for at in range(0, len(text), size)], finish)
    out, exchange = stream(events, how)
    heard = hear_stream(out)
    assert heard.calls == []
    assert heard.finish == finish
    assert heard.done
    body, _ = whole(answer_body(text, finish), how)
    told = hear_body(body)
    assert (told.content, told.finish, told.calls) == (heard.content, finish, [])
    if heard.content == (text or None):
        assert out == b"".join(events)
        assert body == answer_body(text, finish)
    return heard.content, [verdict.reasons[-1] for verdict in exchange.facts.refused if verdict.reasons], exchange.facts


def uses(client, text, model="m") -> list[Use]:
    return parse(text, client, tools=TOOLS[client], model=model)


@pytest.mark.parametrize("client", TOOLS)
@pytest.mark.parametrize(
    "call",
    [
        fence("list_files", {"path": "src", "recursive": True}),
        fence("list_files", {"path": "src", "recursive": True}, "tool_call"),
        '<tool_call>\n{"name": "list_files", "arguments": {"path": "src", "recursive": true}}\n</tool_call>',
        "<tool_call>\n<function=list_files>\n<parameter=path>\nsrc\n</parameter>\n"
        "<parameter=recursive>\ntrue\n</parameter>\n</function>\n</tool_call>",
        '<function_calls>\n<invoke name="list_files">\n<parameter name="path">src</parameter>\n'
        '<parameter name="recursive">true</parameter>\n</invoke>\n</function_calls>',
        '{"name": "list_files", "arguments": {"path": "src", "recursive": true}}',
    ],
    ids=["JSON fence", "tool_call fence", "hermes", "qwen3_coder", "invoke", "bare JSON"],
)
def test_a_call_in_another_form_arrives_in_the_clients_tags(client, call):
    content, _, facts = answer(client, f"I look.\n\n{call}\n")
    assert content == "I look.\n\n<list_files>\n<path>src</path>\n<recursive>true</recursive>\n</list_files>"
    assert uses(client, content) == [Use("list_files", {"path": "src", "recursive": "true"}, False)]
    assert [call.verdict.name for call in facts.calls] == ["list_files"]


OWN = [
    "<read_file>\n<args>\n  <file>\n    <path>a.py</path>\n  </file>\n</args>\n</read_file>",
    "Thinking.\n\n<write_to_file>\n<path>a.md</path>\n<content>\n# A\n```json\n"
    '{"name": "list_files", "arguments": {"path": "."}}\n```\n</content>\n</write_to_file>\n\nand more ',
    "<list_files><path>.</path></list_files>" * 2,
    "```xml\n<list_files>\n<path>.</path>\n</list_files>\n```",
    "<execute_command>\n<command>a &amp;&amp; b &lt; c</command>\n"
    "<requires_approval>false</requires_approval>\n</execute_command>",
    "<list_files>\n<path>.</path>\n</list_files>\n" + fence("list_files", {"path": "b"}),
    "<write_to_file>\n<path>a</path>\n<content>never closed",
    "<tool_call><list_files>\n<path>.</path>\n</list_files></tool_call>",
]


@pytest.mark.parametrize("client", TOOLS)
@pytest.mark.parametrize("text", OWN)
@pytest.mark.parametrize("size", [1, 5, 4096])
def test_a_call_in_the_clients_own_tags_passes_byte_for_byte(client, text, size):
    content, _, _ = answer(client, text, size=size)
    assert content == text


@pytest.mark.parametrize(
    "text",
    [
        "No tool is needed.\n",
        "Use `<list_files>` like this:\n```xml\n<list_files>\n<path>.</path>\n</list_files>\n```\nShall I?",
        'For example:\n```json\n{"name": "list_files", "arguments": {"path": "src"}}\n```\n',
        fence("no_such_tool", {"path": "src"}),
        fence("list_files", {"path": "src", "recursive": [1]}),
        fence("write_to_file", {"path": "src"}),
        "",
    ],
)
def test_what_is_no_call_of_a_known_tool_is_the_models_own_bytes(text):
    assert answer("roo", text)[0] == (text or None)


def test_its_own_call_flows_while_it_is_written():
    parts = ["<write_to_file>\n<path>a</path>\n<content>\n", "line one\n", "line two\n", "x</content>"]
    running = StreamExchange(prepared("roo"), make_id=lambda _: "", limits=Limits())
    given = [running.feed(part) for part in answer_events(parts)[:3]]
    assert b"line one" in b"".join(given)


def test_of_several_calls_the_first_is_told_and_what_follows_it_is_dropped():
    one, two = tagged("list_files", {"path": "a"}), tagged("list_files", {"path": "b"})
    content, _, facts = answer("roo", f"First.\n{one}\nthen\n{two}\nbye")
    assert [use.params["path"] for use in uses("roo", content)] == ["a"]
    assert content.endswith("</list_files>")
    assert facts.undelivered == 1
    kept = answer("roo", f"First.\n{one}\nbye", how=prepared("roo", trailing_text="keep"))[0]
    assert kept.endswith("</list_files>\nbye")


def test_an_answer_cut_by_its_length_keeps_its_reason_and_its_text():
    cut = '```json\n{"name": "list_files", "arguments": {"path": "sr'
    assert answer("roo", cut, finish="length")[0] == cut
    content, _, _ = answer("roo", tagged("list_files", {"path": "a"}) + "\nand", finish="length")
    assert uses("roo", content) == [Use("list_files", {"path": "a", "recursive": "false"}, False)]


def test_names_and_parameters_of_a_broken_call_are_put_right():
    told = answer("roo", "<read_file>\n<file>a.py</file>\n</read_file>")[0]
    assert uses("roo", told)[0].params == {"args": "<file>\n<path>a.py</path>\n</file>"}
    told = answer("roo", '<ask_followup>\n<question>Which?</question>\n<options>["a", "b"]</options>\n</ask_followup>')[
        0
    ]
    assert uses("roo", told)[0].name == "ask_followup_question"


@pytest.mark.parametrize(
    ("name", "arguments", "params"),
    [
        ("read_file", {"path": "a.py"}, {"args": "<file>\n<path>a.py</path>\n</file>"}),
        ("read_file", {"file_path": "a.py"}, {"args": "<file>\n<path>a.py</path>\n</file>"}),
        (
            "read_file",
            {"files": [{"path": "a", "line_ranges": [[1, 40], [90, 120]]}, {"path": "b"}]},
            {
                "args": "<file>\n<path>a</path>\n<line_range>1-40</line_range>\n"
                "<line_range>90-120</line_range>\n</file>\n<file>\n<path>b</path>\n</file>"
            },
        ),
        (
            "read_file",
            {"args": {"file": [{"path": "a", "line_range": "3-9"}, {"path": "b"}]}},
            {"args": "<file>\n<path>a</path>\n<line_range>3-9</line_range>\n</file>\n<file>\n<path>b</path>\n</file>"},
        ),
        ("read_file", {"args": "<file><path>x</path></file>"}, {"args": "<file><path>x</path></file>"}),
        (
            "read_file",
            {"path": "a", "start_line": 2, "end_line": "5"},
            {"args": "<file>\n<path>a</path>\n<line_range>2-5</line_range>\n</file>"},
        ),
        ("list_files", {}, {"path": ".", "recursive": "false"}),
        ("list_files", {"path": "a"}, {"path": "a", "recursive": "false"}),
        ("write_to_file", {"path": "a", "content": "x\ny"}, {"path": "a", "content": "x\ny", "line_count": "2"}),
        (
            "write_to_file",
            {"path": "a", "content": "x", "line_count": 7},
            {"path": "a", "content": "x", "line_count": "7"},
        ),
        (
            "ask_followup_question",
            {"question": "Which?", "suggestions": ["a", "b"]},
            {"question": "Which?", "follow_up": "<suggest>a</suggest>\n<suggest>b</suggest>"},
        ),
        (
            "ask_followup",
            {"question": "Which?", "options": [{"text": "a", "mode": "code"}, "b"]},
            {"question": "Which?", "follow_up": '<suggest mode="code">a</suggest>\n<suggest>b</suggest>'},
        ),
        (
            "ask_followup_question",
            {"question": "Which?", "follow_up": "- a\n- b"},
            {"question": "Which?", "follow_up": "<suggest>a</suggest>\n<suggest>b</suggest>"},
        ),
        (
            "use_mcp_tool",
            {"server_name": "s", "tool_name": "t", "arguments": {"q": "</arguments>", "n": 1}},
            {"server_name": "s", "tool_name": "t", "arguments": '{"q": "\\u003c/arguments>", "n": 1}'},
        ),
        ("search_files", {"path": ".", "pattern": "x"}, {"path": ".", "regex": "x"}),
        ("execute_command", {"cmd": "ls"}, {"command": "ls"}),
    ],
)
def test_roo_gets_the_forms_its_tools_take(name, arguments, params):
    content, refused, _ = answer("roo", fence(name, arguments, "tool_call"))
    (use,) = uses("roo", content)
    real = "ask_followup_question" if name == "ask_followup" else name
    assert (use.name, use.params) == (real, params), refused


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read_file", {"path": "a<b"}),
        ("read_file", {"path": "a&lt;b"}),
        ("read_file", {}),
        ("search_files", {"path": ".", "regex": " x "}),
        ("search_files", {"path": ".", "regex": "</regex>"}),
        ("write_to_file", {"path": "a", "content": "```python\nx\n```"}),
        ("write_to_file", {"path": "a", "content": "x" * (100 << 10)}),
        ("ask_followup_question", {"question": "Which?"}),
        ("ask_followup_question", {"question": "Which?", "suggestions": ["<b>"]}),
        ("use_mcp_tool", {"server_name": "s", "tool_name": "t", "arguments": "not JSON"}),
        ("attempt_completion", {"result": " done"}),
    ],
)
def test_what_the_tags_cannot_say_is_left_alone_and_counted(name, arguments):
    text = fence(name, arguments)
    content, refused, _ = answer("roo", text, size=4096)
    assert content == text
    assert refused[-1:] == [Reason.UNSAYABLE]


def test_entities_are_written_only_where_the_client_undoes_them():
    arguments = {"path": "a.html", "content": "&lt;b&gt; &amp;lt; </content> & <i>"}
    told = answer("roo", fence("write_to_file", arguments))[0]
    assert "&amp;lt;b" in told
    assert "&lt;/content>" in told
    assert "& <i>" in told
    assert uses("roo", told)[0].params["content"] == arguments["content"]
    claude = prepared("roo", model="claude-sonnet-4")
    told = answer("roo", fence("write_to_file", arguments), how=claude)[0]
    assert "&lt;b&gt; &amp;lt; </content> & <i>" in told
    assert uses("roo", told, "claude-sonnet-4")[0].params["content"] == arguments["content"]
    told = answer("roo", fence("search_files", {"path": ".", "regex": "&lt;a"}))[0]
    assert "<regex>&lt;a</regex>" in told
    for client in ("kilo", "cline"):
        assert "&lt;" not in answer(client, fence("write_to_file", {"path": "a", "content": "1 < 2"}))[0]


# Every call, or none


WORDS = (
    *("x", " ", "\n", "\n\n", "\t", "{", "}", "[", "]", "|", "&", "<", ">", '"', "'", "`", "\\", "\\n", "$&", "%s"),
    *("</content>", "<content>", "</path>", "</write_to_file>", "<read_file>", "</diff>", "</command>", "<line_count>"),
    *("<![CDATA[", "]]>", "&lt;", "&amp;", "&amp;lt;", "&quot;", "&#39;", "<tool_call>", "</tool_call>", "</think>"),
    *("```", "```json\n", "1 | a", "[x] done", "- item", "<<<<<<< SEARCH\n", "=======\n", ">>>>>>> REPLACE"),
    *("é", "漢字", "\U0001f600", "\u00a0", "\u2028", "\ufeff", "\x1f"),
)


def hostile(rng: random.Random) -> str:
    text = "".join(rng.choice(WORDS) for _ in range(rng.randint(0, 12)))
    return "".join(chr(rng.randint(32, 126)) for _ in range(rng.randint(1, 9))) + text if rng.random() < 0.5 else text


def call(rng: random.Random, client: str) -> Any:
    path = rng.choice(["src/a.py", "b c.txt", "ü/漢.md", hostile(rng)])
    shell = {"command": hostile(rng)} | ({"requires_approval": True} if client == "cline" else {})
    edit = "replace_in_file" if client == "cline" else "apply_diff"
    return rng.choice(
        [
            ("write_to_file", {"path": path, "content": hostile(rng)}),
            ("write_to_file", {"path": "a.py", "content": "def f():\n    return 1\n" + hostile(rng)}),
            ("execute_command", shell),
            (edit, {"path": path, "diff": hostile(rng)}),
            ("attempt_completion", {"result": hostile(rng)}),
            ("list_files", {"path": path}),
            ("read_file", {"path": path}),
        ]
    )


def meant(client: str, name: str, arguments: dict[str, Any], params: dict[str, str]) -> bool:
    """Whether what the client carries out is the very same, but for last line breaks that it takes from any call."""
    if name == "read_file" and "args" in params:
        found = re.fullmatch(r"<file>\n<path>(.*)</path>\n</file>", params["args"], re.DOTALL)
        return found is not None and unescaped_once(found[1]) == arguments["path"]
    added: dict[str, Any] = {
        "list_files": {"recursive": "false"},
        "write_to_file": {"line_count": params.get("line_count")},
    }
    said = {key: {True: "true"}.get(value, value) for key, value in arguments.items()}
    for key in ("diff", "command", "result", *(["content"] if client == "cline" else [])):
        said = {**said, key: said[key].rstrip("\r\n")} if key in said else said
    expected = {**added.get(name, {}), **said}
    return {key: value for key, value in expected.items() if value is not None} == params


@pytest.mark.parametrize("model", ["deepseek-chat", "claude-3"])
@pytest.mark.parametrize("client", TOOLS)
def test_every_call_arrives_as_it_was_meant_or_is_left_alone_and_counted(client, model):
    rng = random.Random(f"{client} {model}")
    how = prepared(client, model=model)
    arrived = 0
    for _ in range(350):
        name, arguments = call(rng, client)
        text = rng.choice(["", "Doing it.\n\n"]) + fence(name, arguments, rng.choice(["json", "tool_call"]))
        out, exchange = stream(answer_events([text]), how)
        content = hear_stream(out).content or ""
        if content == text:
            assert any(verdict.reasons for verdict in exchange.facts.refused), text
            continue
        found = uses(client, content, model)
        assert [use.name for use in found] == [name], (text, content)
        assert meant(client, name, arguments, found[0].params), (text, content)
        arrived += 1
    assert arrived > 100


def test_a_file_reaches_a_client_that_trims_its_last_line_break_but_not_one_that_begins_in_blanks():
    told = answer("cline", fence("write_to_file", {"path": "a.py", "content": "x = 1\n"}))[0]
    assert uses("cline", told)[0].params["content"] == "x = 1"
    told = answer("cline", fence("execute_command", {"command": "ls\n", "requires_approval": True}))[0]
    assert uses("cline", told)[0].params["command"] == "ls"
    for content in ("  x\n", "x ", "\nx"):
        left = fence("write_to_file", {"path": "a.py", "content": content})
        assert answer("cline", left)[0] == left
    assert (
        uses("roo", answer("roo", fence("write_to_file", {"path": "a", "content": "x\n"}))[0])[0].params["content"]
        == "x\n"
    )


# Who is asking


def test_clients_are_told_apart_by_what_they_call_themselves_and_by_their_prompt():
    for name, client in CLIENTS.items():
        for told, who in ((name, client), (name, Client()), ("roo", client)):
            found = recognise(tag_request(told), who)
            assert found is not None
            assert found.profile.id == name


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "hi"}],
        [{"role": "system", "content": "You are Roo, made to rename branches."}, {"role": "user", "content": "hi"}],
        [{"role": "system", "content": "## Notes\nDescription: none\n\nUse XML."}, {"role": "user", "content": "hi"}],
        [{"role": "system", "content": None}, {"role": "user", "content": [{"type": "image_url"}]}],
    ],
)
def test_a_prompt_without_tools_makes_no_client_of_tags(messages):
    request = tag_request("roo")
    request.body["messages"] = messages
    plain = replace(request, raw=b"", model="m", messages=messages)
    assert recognise(plain, CLIENTS["roo"]) is None


def test_explicit_tools_win():
    tools = [{"type": "function", "function": {"name": "x", "parameters": {}}}]
    assert recognise(tag_request("roo", tools=tools), CLIENTS["roo"]) is None


def test_the_request_goes_up_as_it_came():
    request = tag_request("roo")
    assert XmlTextStrategy().prepare(request, Options(client=CLIENTS["roo"])).body == request.raw


def test_the_reminder_is_added_once_and_is_the_same_every_time():
    request = tag_request("cline")
    options = Options(client=CLIENTS["cline"], prompt_reminder=True)
    body = json.loads(XmlTextStrategy().prepare(request, options).body)
    assert XmlTextStrategy().prepare(request, options).body == XmlTextStrategy().prepare(request, options).body
    system = body["messages"][0]["content"]
    assert system.startswith(request.messages[0]["content"])
    assert "Wrong:" in system
    assert "Right:\n<read_file>\n<path>src/main.py</path>\n</read_file>" in system
    assert body["messages"][1:] == request.messages[1:]
    again = parse_request(json.dumps(body).encode())
    assert json.loads(XmlTextStrategy().prepare(again, options).body)["messages"] == body["messages"]


def test_a_prompt_in_parts_gets_the_reminder_as_a_part():
    request = tag_request("roo")
    request.messages[0]["content"] = [{"type": "text", "text": request.messages[0]["content"]}]
    options = Options(client=CLIENTS["roo"], prompt_reminder=True)
    parts = json.loads(XmlTextStrategy().prepare(request, options).body)["messages"][0]["content"]
    assert len(parts) == 2
    assert "REMINDER" in parts[1]["text"]


def reminded(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages as they go up with the reminder switched on."""
    request = parse_request(json.dumps({"model": "m", "messages": messages}).encode())
    body = XmlTextStrategy().prepare(request, Options(client=CLIENTS["roo"], prompt_reminder=True)).body
    told: list[dict[str, Any]] = json.loads(body)["messages"]
    return told


@pytest.mark.parametrize("role", ["system", "developer"])
def test_the_reminder_stands_in_the_system_prompt_wherever_that_is(role: str) -> None:
    user = {"role": "user", "content": "hello"}
    first, second = reminded(user, {"role": role, "content": prompt("roo")})
    assert first == user
    assert second["content"].startswith(prompt("roo"))
    assert "REMINDER" in second["content"]


def test_a_prompt_that_a_user_sends_is_not_written_into() -> None:
    user = {"role": "user", "content": prompt("roo")}
    assert reminded(user) == [user]


def test_a_reminder_in_parts_is_added_once() -> None:
    parts = [{"type": "text", "text": prompt("roo")}]
    once = reminded({"role": "system", "content": parts}, {"role": "user", "content": "go on"})
    assert len(once[0]["content"]) == 2
    assert reminded(*once) == once


@pytest.mark.parametrize(
    ("tools", "right"),
    [
        ({"attempt_completion": ["result*"]}, "<attempt_completion>\n<result>Done.</result>\n</attempt_completion>"),
        ({"switch_mode": ["mode_slug*"]}, "<tool_name>\n<parameter>value</parameter>\n</tool_name>"),
        ({"execute_command": ["command*"]}, "<execute_command>\n<command>ls</command>\n</execute_command>"),
    ],
)
def test_the_reminder_shows_a_tool_that_the_prompt_has(tools: dict[str, list[str]], right: str) -> None:
    (told,) = reminded({"role": "system", "content": prompt("roo", tools)})
    assert told["content"].endswith(f"Right:\n{right}")


def test_a_request_of_no_client_of_tags_is_left_alone() -> None:
    request = parse_request(b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}')
    how = XmlTextStrategy().prepare(request, Options(prompt_reminder=True))
    assert (how.body, how.make_reader) == (request.raw, None)


def test_usage_and_foreign_fields_survive_beside_a_call():
    text = fence("list_files", {"path": "a"})
    events = [event({"role": "assistant", "content": text}, odd=1), event({}, "stop", usage={"prompt_tokens": 3})]
    out, _ = stream([*events, b"data: [DONE]\n\n"], prepared("roo"))
    assert b'"odd":1' in out
    assert b'"prompt_tokens":3' in out.replace(b" ", b"")
