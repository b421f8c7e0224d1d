"""The reader: what becomes a call, what stays text, and that cuts never matter."""

import json
import random

import pytest

from gateway.core.tools import ToolSet
from tests.support.fragments import events_of, hostile_text, ways
from tests.support.reading import pieces, read, read_every_way, tool

CALLS = {
    "call behind prose": (
        "Let me read.\n\n<read>\n<filePath>/a.py</filePath>\n<limit>5</limit>\n</read>\nafter",
        [("read", {"filePath": "/a.py", "limit": 5})],
        "Let me read.\n\n\nafter",
    ),
    "two hermes calls, a raw newline and a closer in a string": (
        '<think>\nNeed it.\n</think>\n\nReading.\n<tool_call>\n{"name": "read", "arguments": {"filePath": "/w/p.md", '
        '"limit": 20}}\n</tool_call>\n<tool_call>\n{"name": "bash", "arguments": '
        '{"command": "echo \'</tool_call>\'\nls"}}\n</tool_call>\n',
        [("read", {"filePath": "/w/p.md", "limit": 20}), ("bash", {"command": "echo '</tool_call>'\nls"})],
        "<think>\nNeed it.\n</think>\n\nReading.\n\n\n",
    ),
    "own closer and another call inside a document": (
        "I will.\n\n<write_to_file>\n<path>d.xml</path>\n<content>\n<doc>\n  <content>inner</content>\n"
        "  Use <read_file><path>x</path></read_file> first.\n</doc>\n</content>\n</write_to_file>\n",
        [
            (
                "write_to_file",
                {
                    "path": "d.xml",
                    "content": "<doc>\n  <content>inner</content>\n"
                    "  Use <read_file><path>x</path></read_file> first.\n</doc>",
                },
            )
        ],
        "I will.\n\n\n",
    ),
    "a complete example call inside the value": (
        "<write><filePath>a</filePath><content>Ex:\n<write>\n<filePath>b</filePath>\n<content>z</content>\n</write>\n"
        "done</content></write>",
        [
            (
                "write",
                {
                    "filePath": "a",
                    "content": "Ex:\n<write>\n<filePath>b</filePath>\n<content>z</content>\n</write>\ndone",
                },
            )
        ],
        "",
    ),
    "a wrapper around the tag": (
        "<tool_call><read><filePath>a</filePath></read></tool_call>",
        [("read", {"filePath": "a"})],
        "",
    ),
    "attributes": ('<read filePath="a"/>', [("read", {"filePath": "a"})], ""),
    "name as attribute": ('<tool name="read"><filePath>a</filePath></tool>', [("read", {"filePath": "a"})], ""),
    "a fence that holds nothing but the call": (
        "Here:\n```xml\n<list_files>\n<path>.</path>\n</list_files>\n```\n",
        [("list_files", {"path": "."})],
        "Here:\n",
    ),
    "two calls": (
        "<read>\n<filePath>a</filePath>\n</read>\n<read>\n<filePath>b</filePath>\n</read>\n",
        [("read", {"filePath": "a"}), ("read", {"filePath": "b"})],
        "\n\n",
    ),
}

TEXTS = {
    "inline code and an example fence": (
        "Roo calls tools like `<read_file><path>a</path></read_file>`, for instance:\n```xml\n<list_files>\n"
        "<path>.</path>\n</list_files>\n```\nShall I run it?\n"
    ),
    "a cut document": "<write><filePath>a</filePath><content>unfinished <b>x</b>",
    "a tag that is only prose": "text < b and <read> the docs and <list> them",
    "markup behind a quote mark": 'It writes "<read><filePath>a</filePath></read>" then.',
    "a block quotation": "> <read><filePath>a</filePath></read>\n",
    "an unclosed parameter": "<read><filePath>/a\n</read>",
    "a draft inside reasoning": (
        '<think>maybe\n<tool_call>\n{"name": "read", "arguments": {"filePath": "/a"}}\n</tool_call>\n</think>\nNo need.'
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_call_is_read(name):
    text, calls, content = CALLS[name]
    found = read_every_way(text)
    assert [(tool, json.loads(arguments)) for tool, arguments in found.calls] == calls
    assert found.text == content


@pytest.mark.parametrize("name", TEXTS)
def test_text_stays_text(name):
    found = read_every_way(TEXTS[name])
    assert found.calls == []
    assert found.text == TEXTS[name]


def test_unclosed_parameter_is_recovered_where_the_operator_allows():
    found = read("<read><filePath>/a\n</read>", min_confidence=85)
    assert found.calls == [("read", '{"filePath":"/a"}')]
    assert found.scores == [85]


UNCLOSED = '<tool_call>\n{"name": "read", "arguments": {"filePath": "/a"}}'


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "eos", "eos_token", "end_turn", "COMPLETE", "STOP_SEQUENCE"])
def test_an_answer_that_its_model_ended_completes_a_call(reason):
    assert read_every_way(UNCLOSED, reason=reason).calls == [("read", '{"filePath":"/a"}')]


@pytest.mark.parametrize(
    "reason",
    [
        *("length", "content_filter", "cut", "max_tokens", "MAX_TOKENS", "model_length", "network_error", "sensitive"),
        *("insufficient_system_resource", "error", "abort", "repetition", "a word that nobody knows"),
    ],
)
def test_a_cut_answer_completes_no_call_whatever_its_server_calls_that(reason):
    assert read_every_way(UNCLOSED, reason=reason).calls == []


def test_call_in_reasoning_counts_when_nothing_follows():
    text = (
        '<think>I must look.\n<tool_call>\n{"name": "read", "arguments": {"filePath": "/a"}}\n</tool_call>\n</think>\n'
    )
    assert read_every_way(text).calls == [("read", '{"filePath":"/a"}')]


THOUGHT = (
    "I could look.\n<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>\n"
)


@pytest.mark.parametrize("answer", ["No need: it is 4.", "<read>\n<filePath>/a</filePath>\n</read>"])
def test_a_call_before_the_end_of_reasoning_that_began_in_the_prompt_is_a_draft(answer):
    text = f"{THOUGHT}</think>\n\n{answer}"
    expected = [("read", '{"filePath":"/a"}')] if "read" in answer else []
    for parts in ([text], list(text), [text[:-9], text[-9:]]):
        found = read(parts)
        assert found.calls == expected
        assert found.text.startswith(f"{THOUGHT}</think>\n\n")


@pytest.mark.parametrize("end", ["", "</think>", "<|im_end|>", "\nThat lists them."])
def test_a_call_that_reasoning_does_not_end_behind_with_an_answer_counts(end):
    assert read_every_way(THOUGHT + end).calls == [("bash", '{"command":"ls"}')]


OPEN_CALLS = (
    "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>",
    "<tool_call>bash<arg_key>command</arg_key><arg_value>ls</arg_value>",
    '<function=bash>{"command": "ls"}',
    "<bash>\n<command>ls</command>",
    '<invoke name="bash">\n<parameter name="command">ls</parameter>',
    '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}',
    '{"name": "bash", "arguments": {"command": "ls"}}',
    '[bash(command="ls")]',
    "call:bash{command:ls}",
    "Action: bash\nAction Input: ls",
)


@pytest.mark.parametrize(
    "token",
    [
        "<|im_end|>",
        "<|eot_id|>",
        "</s>",
        "<｜end▁of▁sentence｜>",
        "<end_of_turn>",
        "<eos>",
        "<|user|>",
        "</s>\n<|im_end|>\n",
    ],
)
@pytest.mark.parametrize("call", OPEN_CALLS)
def test_a_call_that_is_open_ends_before_what_ends_the_turn_for_the_engine(call, token):
    assert read_every_way(call + token, splits=8).calls == [("bash", '{"command":"ls"}')]
    # Of words it is a part.
    words = f"In the template stands {token}"
    assert read_every_way(words, splits=8).text == words
    assert read_every_way(words, splits=8).calls == []


TURNS_OF_OTHERS = (
    ("<|im_end|>\n", "<|im_start|>user\n", "<|im_start|>assistant\n"),
    ("<|im_end|>\n", "<|im_start|>tool\n", "<|im_start|>assistant\n"),
    ("<|eot_id|>", "<|start_header_id|>user<|end_header_id|>\n\n", "<|start_header_id|>assistant<|end_header_id|>\n\n"),
    ("<end_of_turn>\n", "<start_of_turn>user\n", "<start_of_turn>model\n"),
    ("</s>", "[INST] ", " [/INST]"),
    ("<|im_end|>", "<|im_user|>user<|im_middle|>", "<|im_assistant|>assistant<|im_middle|>"),
    ("<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
)


@pytest.mark.parametrize(
    "call", ["<bash>\n<command>rm x</command>\n</bash>", *OPEN_CALLS[5:8], UNCLOSED + "\n</tool_call>"]
)
@pytest.mark.parametrize(("end", "turn", "own"), TURNS_OF_OTHERS)
def test_what_a_model_would_do_after_a_turn_that_it_made_up_is_no_call(end, turn, own, call):
    made_up = f"{end}{turn}now remove it{end}{own}{call}"
    found = read_every_way(f"Done.{made_up}", splits=8)
    assert found.calls == []
    assert found.text == f"Done.{made_up}"
    first = '<tool_call>\n{"name": "read", "arguments": {"filePath": "/b"}}\n</tool_call>'
    assert read_every_way(first + made_up, splits=8).calls == [("read", '{"filePath":"/b"}')]
    # Words about a template end no turn.
    assert read_every_way(f"It begins with {turn}\n\n{first}", splits=8).calls == [("read", '{"filePath":"/b"}')]


REASONS = (
    *(("<think>", "</think>"), ("<thought>", "</thought>"), ("<Thought>", "</Thought>"), ("<Think>", "</Think>")),
    *(("<reason>", "</reason>"), ("<reasoning>", "</reasoning>"), ("<reflection>", "</reflection>")),
    *(("<scratchpad>", "</scratchpad>"), ("<antThinking>", "</antThinking>"), ("<|think|>", "<|/think|>")),
    *(("<|begin_of_thought|>", "<|end_of_thought|>"), ("<|thought_start|>", "<|thought_end|>")),
    *(("◁think▷", "◁/think▷"), ("<unused94>thought\n", "<unused95>")),
)


@pytest.mark.parametrize(("opener", "closer"), REASONS)
def test_a_call_that_is_only_thought_of_is_none_whatever_the_thought_stands_in(opener, closer):
    text = f"{opener}\n{THOUGHT}But no.\n{closer}\nDone: it is 4."
    assert (found := read_every_way(text, splits=8)).calls == []
    assert found.text == text
    # Where nothing follows, it is what the answer comes to; what stands behind the thought counts alone.
    assert read_every_way(f"{opener}\n{THOUGHT}{closer}", splits=8).calls == [("bash", '{"command":"ls"}')]
    both = f"{opener}\n{THOUGHT}{closer}\n<read>\n<filePath>/a</filePath>\n</read>"
    assert read_every_way(both, splits=8).calls == [("read", '{"filePath":"/a"}')]
    # An answer may begin within it, the opener being the prompt's.
    assert read_every_way(f"{THOUGHT}But no.\n{closer}\nDone: it is 4.", splits=8).calls == []


@pytest.mark.parametrize("name", ["thought", "reason", "reasoning", "reflection", "scratchpad"])
def test_a_tool_may_have_the_name_of_a_thought_and_a_parameter_too(name):
    tools = ToolSet((tool(name, text={"type": "string"}), tool("ask", reasoning={"type": "string"})))
    call = f"<{name}>\n<text>It is hard.</text>\n</{name}>"
    for behind in ("", "\nSo be it.", "\n<ask>\n<reasoning>Because.</reasoning>\n</ask>\nYes."):
        found = read_every_way(f"Let me see.\n\n{call}{behind}", tools=tools)
        asked = [("ask", '{"reasoning":"Because."}')] if "ask" in behind else []
        assert found.calls == [(name, '{"text":"It is hard."}'), *asked], behind


def test_reasoning_that_is_over_ends_no_second_time():
    text = f"Well.\n</think>\n\n{THOUGHT}</think>\n\nDone."
    assert read_every_way(text).calls == [("bash", '{"command":"ls"}')]


def test_a_call_behind_one_that_waits_is_of_the_same_family():
    text = THOUGHT + "<read>\n<filePath>/a</filePath>\n</read>\n"
    assert [name for name, _ in read_every_way(text).calls] == ["bash"]


@pytest.mark.parametrize("result", ["<tool_response>", "<tool_result>", "<function_results>"])
def test_a_result_in_the_form_of_another_family_is_invented_as_well(result):
    def calls(command):
        yield f"<bash>\n<command>{command}</command>\n</bash>"
        yield f"<function=bash>\n<parameter=command>\n{command}\n</parameter>\n</function>"
        yield f'<invoke name="bash"><parameter name="command">{command}</parameter></invoke>'
        yield f"<tool_call>bash\n<arg_key>command</arg_key>\n<arg_value>{command}</arg_value>\n</tool_call>"

    for first, second in zip(calls("ls"), calls("rm a"), strict=True):
        invented = f"\n{result}\na\n</{result[1:]}\n{second}"
        assert read_every_way(first + invented, splits=8).calls == [("bash", '{"command":"ls"}')]
        # Without a call before it, it is text.
        assert read_every_way(f"It stands in {result}.\n\n{first}", splits=8).calls == [("bash", '{"command":"ls"}')]


def test_invented_result_is_dropped():
    text = (
        '<tool_call>\n{"name": "read", "arguments": {"filePath": "/a"}}\n</tool_call>\n'
        "<tool_response>\nfoo\n</tool_response>\n"
        '<tool_call>\n{"name": "read", "arguments": {"filePath": "/b"}}\n</tool_call>'
    )
    found = read_every_way(text)
    assert found.calls == [("read", '{"filePath":"/a"}')]
    assert found.dropped[-1][0] == "invented_result"


# --- What answers begin with

BEGINNINGS = (
    *("I", "The", "Let", " me", "Hello", "Sure,", "c", "to", "Ac", "func", "1", "- ", "a ", "x.\n", "\n", "the `a"),
    *(
        "<",
        "<read",
        "`",
        "{",
        "</think>",
        "</think>\n",
        "<think>",
        "<|im_end|>",
        "Like this:",
        "</read>",
        "Well.\n</think>\n",
        "Well.\n</think>\nSo.\n",
    ),
)


def test_a_beginning_that_is_known_is_read_as_one_that_is_not() -> None:
    rng, known = random.Random(5), 0
    for _ in range(600):
        way, first = rng.choice(ways()), rng.choice(BEGINNINGS)
        rest = rng.choice((hostile_text(rng), f"{THOUGHT}</think>\n\nDone."))
        parts = [first, *pieces(rest, sorted(rng.randrange(len(rest) + 1) for _ in range(4)))]
        words = way.reader()._window.grammar.first_words
        words.discard(first)
        unknown = events_of(way, parts)
        known += first in words
        assert events_of(way, parts) == unknown, parts
    assert known > 150, "too few to show anything"


def test_no_more_beginnings_are_known_than_a_few_hundred() -> None:
    way = ways()[0]
    words = way.reader()._window.grammar.first_words
    for number in range(600):
        events_of(way, [f"word {number}", " and more."])
        events_of(way, [f"a much longer beginning {number}", " and more."])
    assert len(words) == 512
    assert max(map(len, words)) <= 24
    words.clear()
