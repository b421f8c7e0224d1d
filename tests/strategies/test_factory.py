from importlib.metadata import EntryPoint

import msgspec
import pytest

from gateway.core.rules import Rule
from gateway.wire.chat_request import ChatRequest, parse_request
from strategies.base import Options, Prepared
from strategies.factory import GROUP, Capability, ToolExecutionFactory, load_strategies

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
