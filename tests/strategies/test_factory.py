""""""

import json
from importlib.metadata import EntryPoint
from itertools import cycle
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.core.rules import Rule
from gateway.wire.chat_request import ChatRequest, parse_request
from strategies.base import Options, Prepared
from strategies.dialects.rows import BY_ID
from strategies.factory import GROUP, Capability, ToolExecutionFactory, load_strategies
from strategies.native import LEAKS, NativeStrategy, leaks_of
from tests.support.chat import answer_body, answer_events, event, hear_body, hear_stream, stream, whole
from tests.support.reading import AGENT_TOOLS

TOOLS = [{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}]

HISTORY = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {}}]},
    {"role": "tool", "tool_call_id": "c", "content": "x"},
]


class Named:
    """A strategy that does nothing but have a name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def prepare(self, request: ChatRequest, options: Options) -> Prepared:
        return Prepared(strategy=self.name, body=request.raw)


def request(model: str = "m", **fields) -> ChatRequest:
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], **fields}
    return parse_request(msgspec.json.encode(body))


def factory(*rules: Rule, enabled: bool = True) -> ToolExecutionFactory:
    strategies = {name: Named(name) for name in ("native", "recovery", "xml_prompt", "extra")}
    return ToolExecutionFactory(strategies, rules=rules, enabled=enabled)


def chosen(model: str, *rules: Rule, provider: str = "openai", native_tools: bool | None = None, **fields) -> str:
    fields.setdefault("tools", TOOLS)
    capability = Capability(native_tools=native_tools)
    return factory(*rules).select(provider, model, "native", request(model, **fields), capability).name


@pytest.mark.parametrize(
    ("model", "strategy"),
    [
        ("gpt-oss-120b", "recovery"),
        ("openai/gpt-oss:20b", "recovery"),
        ("gpt-4o", "native"),
        ("openai/GPT-5", "native"),
        ("claude-sonnet-4", "native"),
        ("o3-mini", "native"),
        ("chatgpt-4o-latest", "native"),
        ("google/gemini-2.5-pro", "native"),
        ("x-ai/grok-4", "native"),
        ("mistral-large-2411", "native"),
        ("mistral-small", "recovery"),
        ("command-a-03-2025", "native"),
        ("qwen3-coder", "xml_prompt"),
        ("Qwen/Qwen2.5-Coder-32B", "xml_prompt"),
        ("qwq-32b", "xml_prompt"),
        ("deepseek-chat", "recovery"),
        ("my-qwen", "recovery"),
    ],
)
def test_the_built_in_table_knows_the_families(model, strategy):
    assert chosen(model) == strategy


def test_a_rule_wins_over_the_table_and_the_first_one_wins():
    rules = (
        Rule(pattern="QWEN3*", strategy="native"),
        Rule(pattern="qwen*", strategy="extra"),
        Rule(pattern="*", strategy="recovery"),
    )
    assert chosen("org/qwen3-coder", *rules) == "native"
    assert chosen("qwen2", *rules) == "extra"
    assert chosen("gpt-4o", *rules) == "recovery"


def test_a_rule_matches_the_full_name_too():
    assert chosen("org/model", Rule(pattern="org/*", strategy="extra")) == "extra"
    assert chosen("other/model", Rule(pattern="org/*", strategy="extra")) == "recovery"


def test_a_rules_dialect_is_told():
    rule = Rule(pattern="qwen*", strategy="xml_prompt", dialect="hermes")
    selection = factory(rule).decide("openai", "qwen3", "native", request("qwen3", tools=TOOLS), Capability())
    assert (selection.strategy.name, selection.dialect, selection.reason) == ("xml_prompt", "hermes", "rule")


def test_what_was_learned_wins_over_the_table_but_not_over_a_rule():
    assert chosen("gpt-4o", native_tools=False) == "xml_prompt"
    assert chosen("gpt-4o", Rule(pattern="gpt*", strategy="native"), native_tools=False) == "native"


def test_provider_kinds_decide_for_all_their_models():
    assert chosen("whatever", provider="anthropic") == "native"
    assert chosen("whatever", provider="gemini") == "native"
    assert chosen("whatever", provider="qwen_web") == "xml_prompt"


@pytest.mark.parametrize("model", ["gpt-4o", "deepseek", "qwen3"])
def test_a_request_without_tools_passes_through_byte_for_byte(model):
    asked = request(model, odd={"b": 1, "a": [1.0]})
    strategy = factory().select("openai", model, "native", asked, Capability())
    prepared = strategy.prepare(asked, Options())
    assert prepared.strategy == "passthrough"
    assert prepared.body == asked.raw
    assert prepared.make_reader is None
    assert not prepared.mend_native


def test_tools_that_must_not_be_called_leave_the_answer_alone():
    assert chosen("deepseek", tool_choice="none") == "passthrough"
    assert chosen("qwen3", tool_choice="none") == "xml_prompt"


def test_old_calls_are_still_rendered_for_a_model_that_could_not_read_them():
    assert chosen("qwen3", tools=None, messages=HISTORY) == "xml_prompt"
    assert chosen("gpt-4o", tools=None, messages=HISTORY) == "passthrough"


@pytest.mark.parametrize("model", ["deepseek", "qwen3", "gpt-4o"])
def test_a_client_whose_tools_are_in_its_prompt_is_read_without_a_tools_field(model):
    selection = factory().decide("openai", model, "xml_text", request(model), Capability())
    assert (selection.strategy.name, selection.reason) == ("xml_text", "client")


def test_tools_in_the_request_win_over_those_of_a_prompt():
    assert factory().select("openai", "gpt-4o", "xml_text", request(tools=TOOLS), Capability()).name == "native"


WORK = [{"role": "user", "content": "Please read the file src/app.py"}]


def test_a_request_for_tool_work_without_tools_is_read_beside_only_where_that_is_looked_for():
    asked = request("deepseek", messages=WORK)
    seeing = ToolExecutionFactory(
        {name: Named(name) for name in ("native", "recovery", "xml_prompt")}, auto_detect=True
    )
    selection = seeing.decide("openai", "deepseek", "native", asked, Capability())
    assert (selection.strategy.name, selection.reason) == ("passthrough", "intent")
    assert selection.strategy.prepare(asked, Options()).body == asked.raw
    assert factory().decide("openai", "deepseek", "native", asked, Capability()).reason == "no_tools"
    assert seeing.decide("openai", "deepseek", "native", request(), Capability()).reason == "no_tools"


def test_switched_off_the_tools_are_taken_out_and_nothing_else():
    asked = request("qwen3", tools=TOOLS, tool_choice="auto", parallel_tool_calls=True, odd=1)
    prepared = factory(enabled=False).select("openai", "qwen3", "native", asked, Capability()).prepare(asked, Options())
    assert msgspec.json.decode(prepared.body) == {"model": "qwen3", "messages": asked.messages, "odd": 1}
    assert prepared.make_reader is None
    plain = request("qwen3", odd=None)
    strategy = factory(enabled=False).select("openai", "qwen3", "native", plain, Capability())
    assert strategy.prepare(plain, Options()).body == plain.raw


def test_a_rule_for_a_strategy_that_is_not_there_is_a_fault():
    assert factory().faults() == []
    assert factory(Rule(pattern="*", strategy="nope")).faults() == ["there is no strategy named 'nope'"]


def test_a_hostile_pattern_and_name_cost_linear_time():
    rule = Rule(pattern="*a*a*a*a*a*b", strategy="native")
    assert chosen("a" * 20_000, rule) == "recovery"


def test_the_built_in_strategies_enter_by_the_entry_point_group():
    loaded = load_strategies()
    assert {"native", "recovery", "xml_prompt"} <= set(loaded.strategies)
    assert loaded.faults == ()
    assert ToolExecutionFactory(loaded.strategies).faults() == []


class Broken:
    name = "broken"

    def __init__(self) -> None:
        raise ZeroDivisionError("at start")

    def prepare(self, request, options):
        raise AssertionError


class Working(Named):
    def __init__(self) -> None:
        super().__init__("working")


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name=name, value=value, group=GROUP)


def test_a_broken_plug_in_is_left_out_and_reported():
    here = __name__
    loaded = load_strategies(
        [
            point("broken", f"{here}:Broken"),
            point("missing", "no_such_module_anywhere:X"),
            point("plain", f"{here}:TOOLS"),
            point("misnamed", f"{here}:Working"),
            point("working", f"{here}:Working"),
            point("working", f"{here}:Worse"),
        ]
    )
    assert set(loaded.strategies) == {"working"}
    assert len(loaded.faults) == 5
    assert any("ZeroDivisionError: at start" in fault for fault in loaded.faults)
    assert any("the name is taken" in fault for fault in loaded.faults)


def test_a_plug_in_cannot_take_a_built_in_name():
    loaded = load_strategies(
        [point("native", f"{__name__}:Working"), point("native", "strategies.native:NativeStrategy")]
    )
    assert type(loaded.strategies["native"]).__name__ == "NativeStrategy"
    assert len(loaded.faults) == 1


def test_plug_in_that_exits_harms_only_itself():
    class Exits:
        name, value, group = "leaver", "leaver:Strategy", "toolgate.strategies"

        def load(self) -> object:
            raise SystemExit(3)

    loaded = load_strategies([Exits()])  # type: ignore[list-item]
    assert "leaver" not in loaded.strategies
    assert "SystemExit" in loaded.faults[0]


# --- Native models: their own family's markup in the text is a call, everything else is relayed


DECLARED = [
    {"type": "function", "function": {"name": tool.name, "description": "", "parameters": tool.parameters}}
    for tool in AGENT_TOOLS
]

INVOKE = '<invoke name="read">\n<parameter name="filePath">a.py</parameter>\n</invoke>'

LEAKED = {
    "claude-opus-4-8": f"I look.\n\n<function_calls>\n{INVOKE}\n</function_calls>",
    "anthropic/claude-sonnet-4.5": f"I look.\n\ncount\n{INVOKE}",
    "gpt-5.4": '<|channel|>commentary to=functions.read <|constrain|>json<|message|>{"filePath": "a.py"}<|call|>',
    "gpt-5.3-codex": 'I look.\nassistant to=functions.read commentary json\n{"filePath": "a.py"}',
    "gemini-3-pro": 'I look.\n```tool_code\nprint(default_api.read(filePath="a.py"))\n```',
    "google/gemini-2.5-flash": 'I look.\ndefault_api:read{filePath:"a.py"}',
    "mistral-large-2512": 'I look.[TOOL_CALLS]read[ARGS]{"filePath": "a.py"}',
    "mistral-medium-3": '[TOOL_CALLS][{"name": "read", "arguments": {"filePath": "a.py"}}]',
    "command-a-03-2025": '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "read", "parameters": '
    '{"filePath": "a.py"}}]<|END_ACTION|>',
    "grok-4": "I look.\n<read>\n<filePath>a.py</filePath>\n</read>",
    "o3": "<read>\n<filePath>a.py</filePath>\n</read>",
}

HERMES = '<tool_call>\n{"name": "read", "arguments": {"filePath": "a.py"}}\n</tool_call>'

RELAYED = [
    ("gpt-5.4", HERMES),
    ("gpt-5.4", f"I look.\n{INVOKE}"),
    ("claude-opus-4-8", HERMES),
    ("claude-opus-4-8", '[TOOL_CALLS]read[ARGS]{"filePath": "a.py"}'),
    ("claude-opus-4-8", '```json\n{"name": "read", "arguments": {"filePath": "a.py"}}\n```'),
    ("grok-4", "<|channel|>final<|message|>It is done."),
    ("grok-4", INVOKE),
    ("grok-4", "<web_fetch>\n<url>https://example.org</url>\n<prompt>x</prompt>\n</web_fetch>"),
    ("claude-opus-4-8", f"One writes `{INVOKE}` for it."),
    ("claude-opus-4-8", f"For example:\n```xml\n{INVOKE}\n```\nThat is all."),
    ("claude-opus-4-8", '<invoke name="launch">\n<parameter name="x">1</parameter>\n</invoke>'),
    ("claude-opus-4-8", '<invoke name="read">\n<parameter name="limit">3</parameter>\n</invoke>'),
    ("claude-opus-4-8", '<invoke name="read">\n<parameter name="filePath">a'),
    ("mistral-large-2512", "[TOOL_CALLS]"),
    ("gemini-3-pro", "```python\nprint(default_api)\n```"),
]


def native(model: str, options: Options | None = None, **more: Any) -> Prepared:
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "tools": DECLARED, **more}
    return NativeStrategy().prepare(parse_request(json.dumps(body).encode()), options or Options())


def test_every_leak_is_one_of_a_dialect() -> None:
    assert {name for _, names in LEAKS for name in names} <= BY_ID.keys()
    assert leaks_of("grok-4") == {"generic_xml", "grok", "xai"}
    assert leaks_of("glm-4.6") == {"generic_xml", "glm"}, "one that a rule makes native has its own markup, too"


@pytest.mark.parametrize(("model", "text"), LEAKED.items())
def test_a_leak_of_the_family_is_a_call(model: str, text: str) -> None:
    for parts in ([text], list(text)):
        out, exchange = stream(answer_events(parts), native(model))
        heard = hear_stream(out)
        assert [(call["name"], json.loads(call["arguments"])) for call in heard.calls] == [
            ("read", {"filePath": "a.py"})
        ]
        assert heard.finish == "tool_calls"
        assert exchange.facts.calls[0].verdict.dialect in leaks_of(model)
    assert hear_body(whole(answer_body(text), native(model))[0]).meaning == heard.meaning


@pytest.mark.parametrize(("model", "text"), RELAYED)
@pytest.mark.parametrize("more", [{}, {"tool_choice": "required"}])
def test_everything_else_goes_on_as_it_came_and_at_once(model: str, text: str, more: Any) -> None:
    events = answer_events(["Well. ", *text])
    out, exchange = stream(events, native(model, **more))
    assert out == b"".join(events)
    assert (exchange.facts.calls, exchange.ask_again) == ([], None)
    body = answer_body(text)
    assert whole(body, native(model, **more))[0] == body


def test_a_structured_call_beside_it_leaves_the_text_alone() -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "read", "arguments": '{"filePath":"a.py"}'}}
    text = LEAKED["claude-opus-4-8"]
    events = [event({"role": "assistant", "content": text}), event({"tool_calls": [call]})]
    events += [event({}, "tool_calls"), b"data: [DONE]\n\n"]
    out, exchange = stream(events, native("claude-opus-4-8"))
    assert out == b"".join(events)
    assert exchange.facts.calls == []


@pytest.mark.parametrize(
    "how",
    [
        native("claude-opus-4-8", Options(native_leaks=False)),
        native("claude-opus-4-8", n=2),
        native("claude-opus-4-8", tools=[]),
    ],
)
def test_it_can_be_left(how: Prepared) -> None:
    assert how.make_reader is None


def test_texts_that_are_no_calls_are_relayed() -> None:
    negatives = Path(__file__).parents[1] / "data" / "negatives.jsonl"
    texts = [json.loads(line)["text"] for line in negatives.read_text(encoding="utf-8").split("\n") if line]
    models = cycle([native(model) for model in LEAKED])
    for text, how in zip(texts, models, strict=False):
        body = answer_body(text)
        assert whole(body, how)[0] == body
