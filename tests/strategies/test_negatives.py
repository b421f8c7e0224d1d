"""Text that talks about tools or opens like a call and is none: never a call, never changed, and a note says why."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gateway.core.events import Note
from gateway.core.tools import Tool, ToolSet
from strategies.dialects.rows import BY_ID, TABLE
from strategies.writing.renderer import CannotExpress
from tests.bench.corpus import DIFFERENCES, main
from tests.support.chat import answer_body, answer_events, hear_body, hear_stream, prepared, stream, whole
from tests.support.damage import (
    DATA_FORMS,
    TAG_FORMS,
    Form,
    Outcome,
    damaged_calls,
    outcome_of,
    read_in_pieces,
    read_whole,
    told_in_vain,
)
from tests.support.golden import own_labels
from tests.support.reading import AGENT_TOOLS, INTEGER, STRING, read, read_every_way, together, tool

RECORDS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "negatives.jsonl").read_text(encoding="utf-8").split("\n")
    if line
]


def by_kind() -> dict[str, dict[str, Any]]:
    """The records of each kind, by their names."""
    found: dict[str, dict[str, Any]] = {}
    for record in RECORDS:
        found.setdefault(record["kind"], {})[record["id"]] = record
    return found


BY_KIND = by_kind()


@pytest.mark.parametrize("kind", BY_KIND)
def test_no_call_and_no_change(kind):
    together("record", BY_KIND[kind])(left_alone)()


def left_alone(record):
    for parts in ([record["text"]], list(record["text"])):
        found = read(parts)
        assert found.calls == []
        assert found.text == record["text"]
        assert found.dropped == []
    if any(isinstance(event, Note) and event.seen for event in found.events):
        assert told_in_vain(record["text"], AGENT_TOOLS) == [], "nor where the model was asked again"
    assert_no_part_flows_as_a_call(record)


def assert_no_part_flows_as_a_call(record):
    found = read(list(record["text"]), reasoned=True, stream_arguments="incremental", reason="length")
    assert found.calls == []
    if record["kind"] != "unfinished":
        assert found.broken == []


def test_the_set_is_broad():
    assert len(RECORDS) >= 300
    assert len({record["id"] for record in RECORDS}) == len(RECORDS)
    languages = Counter(record["lang"] for record in RECORDS)
    assert len(languages) >= 6
    assert min(languages.values()) >= 40
    assert len({record["kind"] for record in RECORDS}) >= 15


# --- The command that reads labelled answers of other engines, on the project's own, and its list of differences


LISTED: dict[str, Any] = json.loads(DIFFERENCES.read_bytes())


def written(folder: Path, labels: list[dict[str, Any]], known: dict[str, str]) -> list[str]:
    """The command's arguments for these labels, in two files of a folder, and these known differences."""
    (folder / "labels").mkdir()
    half = len(labels) // 2
    for name, some in (("one", labels[:half]), ("two", labels[half:])):
        (folder / "labels" / f"{name}.jsonl").write_text("".join(json.dumps(label) + "\n" for label in some))
    (folder / "known.json").write_text(json.dumps({"records": known}))
    return [str(folder / "labels"), "--differences", str(folder / "known.json")]


def test_the_projects_own_answers_are_read_as_labelled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = own_labels(step=3)
    calls = [label for label in labels if label["kind"] == "valid"]
    assert main(written(tmp_path, labels, {})) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"negative    {len(labels) - len(calls):4} of {len(labels) - len(calls)} as labelled",
        f"valid       {len(calls):4} of {len(calls)} as labelled",
    ]


CALL, PLAIN = '<tool_call>\n{"name": "glob", "arguments": {"pattern": "*"}}\n</tool_call>', "Nothing to do."


@pytest.mark.parametrize(
    ("text", "expected", "known", "told"),
    [
        (CALL, [{"name": "glob", "arguments": {"pattern": "**"}}], {}, "nobody says why: it"),
        (CALL, [], {}, "made a call of plain text: it"),
        (PLAIN, [], {"it": "a_cause"}, "listed as a difference, but read as labelled: it"),
        (CALL, [{"name": "glob", "arguments": {"pattern": "**"}}], {"it": "a_cause"}, ""),
    ],
)
def test_what_is_read_otherwise_is_told_unless_it_is_listed(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    expected: list[dict[str, Any]],
    known: dict[str, str],
    told: str,
) -> None:
    label = {"id": "it", "text": text, "expected": expected, "kind": "valid" if expected else "negative"}
    label["tools"] = [{"type": "function", "function": {"name": "glob", "parameters": {"type": "object"}}}]
    assert main(written(tmp_path, [label], known)) == (1 if told else 0)
    assert told in capsys.readouterr().out


def test_a_set_without_answers_proves_nothing(tmp_path: Path) -> None:
    assert main(written(tmp_path, [], {})) == 1


def test_every_cause_has_a_reason_and_a_record() -> None:
    causes, used = LISTED["causes"], set(LISTED["records"].values())
    assert causes.keys() == used
    assert all(len(reason.split()) >= 8 and reason.endswith(".") for reason in causes.values())
    assert list(causes) == sorted(causes)
    assert list(LISTED["records"]) == sorted(LISTED["records"])


# --- The classes of answers that models give, and what is made of each: calls of what was meant, text of all the
# rest.


PATHS = ("/src/app.py", "docs/a b.md", "C:\\work\\x.ts", "/tmp/ü.txt", "./-")

TEXTS = ("x = 1\n", "<b>bold</b>", 'say "hi"', "```\nfence\n```", "a\\nb", "{}", "</write>", "it's", "漢字\n\n")

LEADS = ("", "Reading the file.\n\n", "I need to look at this first.\n", "好的。\n\n", "Je regarde le fichier.\n\n")


def meant(rng: random.Random) -> tuple[str, dict[str, Any]]:
    calls: tuple[tuple[str, dict[str, Any]], ...] = (
        ("read", {"filePath": rng.choice(PATHS), "limit": rng.randint(1, 500)}),
        ("write", {"filePath": rng.choice(PATHS), "content": "".join(rng.choices(TEXTS, k=3))}),
        ("grep", {"pattern": rng.choice(("def \\w+", "TODO|FIXME", "<div")), "include": "*.py"}),
        ("bash", {"command": rng.choice(("ls -la", "pytest -q", "echo 'a' > b"))}),
        ("edit", {"filePath": "/a", "oldString": rng.choice(TEXTS), "newString": "", "replaceAll": True}),
    )
    return rng.choice(calls)


def heard_both_ways(text: str, **options: Any) -> Any:
    how = prepared(prompted=None, wait=True, **options)
    streamed = hear_stream(stream(answer_events(list(text)), how)[0])
    assert hear_body(whole(answer_body(text), how)[0]).meaning == streamed.meaning
    return streamed


def test_json_in_a_tool_code_fence_is_recovered() -> None:
    rng = random.Random(4)
    right = 0
    for _ in range(200):
        name, arguments = meant(rng)
        keys = rng.choice((("name", "arguments"), ("tool", "parameters"), ("name", "args"), ("tool_name", "input")))
        said = json.dumps({keys[0]: name, keys[1]: arguments}, ensure_ascii=False, indent=rng.choice((None, 2)))
        heard = heard_both_ways(f"{rng.choice(LEADS)}```tool_code\n{said}\n```")
        found = [(call["name"], json.loads(call["arguments"])) for call in heard.calls]
        assert found in ([], [(name, arguments)])
        right += bool(found)
    assert right >= 190


NEVER = {
    "natural language": "I need to list the files first, then read the configuration and run the tests.",
    "a question": "Shall I read /src/app.py and write the result to /src/out.py?",
    "a plan": "1. read the file\n2. edit it with the new name\n3. bash: run the tests\n4. write a summary",
    "an error explained": 'The call failed: read() got no filePath. Pass {"filePath": "..."} next time.',
    "malformed JSON": '```tool_code\n{"name": "read", "arguments": {"filePath": \n```',
    "an unknown tool": '```tool_code\n{"name": "launch_rocket", "arguments": {"filePath": "/a"}}\n```',
    "a missing argument": '```tool_code\n{"name": "read", "arguments": {"limit": 3}}\n```',
    "a shell block in an explanation": "To run the tests yourself:\n\n```bash\npytest -q\n```\n\nThat is all you need.",
    "a shell command": "Let me look.\n\n```bash\nls -la\n```",
}


@pytest.mark.parametrize("kind", NEVER)
def test_everything_else_comes_back_byte_for_byte(kind: str) -> None:
    text = NEVER[kind]
    how = prepared(prompted=None, wait=True)
    events = answer_events(list(text))
    assert stream(events, how)[0] == b"".join(events)
    assert whole(answer_body(text), how)[0] == answer_body(text)


def test_low_confidence_comes_back_byte_for_byte() -> None:
    text = '```tool_code\n{"name": "read", "arguments": {"filePath": "/a"}}\n```'
    how = prepared(prompted=None, wait=True, min_confidence=97)
    events = answer_events([text])
    assert stream(events, how)[0] == b"".join(events)
    assert heard_both_ways(text).calls


def test_shell_command_is_a_call_only_where_the_operator_allows() -> None:
    heard = heard_both_ways(NEVER["a shell command"], recovery_shell=True)
    assert [(call["name"], json.loads(call["arguments"])["command"]) for call in heard.calls] == [("bash", "ls -la")]
    for forbidden in ("rm -rf /", "ls; rm x", "ls | sh", "ls > x", "$(ls)"):
        assert not heard_both_ways(f"Let me look.\n\n```bash\n{forbidden}\n```", recovery_shell=True).calls
    assert not heard_both_ways(NEVER["a shell block in an explanation"], recovery_shell=True).calls


SEEDS = 3
ELSEWHERE = {
    *("apply_patch", "shell"),  # a command or a patch has no markup of its own within
    *("prefixed_xml", "named_function"),  # damaged already; the undamaged form is in the list
}


def tally(seed: int, count: int) -> Counter[Outcome]:
    """What so many damaged calls came to, read whole, in pieces and while they are shown; none may be wrong."""
    rng = random.Random(seed)
    outcomes: Counter[Outcome] = Counter()
    for case in damaged_calls(seed, count):
        prompted = rng.random() < 0.6
        whole = read_whole(case, prompted=prompted)
        outcome = outcome_of(case, whole)
        shown = f"{case.form.id}, {case.damage}:\n{case.text}\ncame to {whole.calls}"
        assert outcome != "wrong", shown
        assert read_in_pieces(case, rng, prompted=prompted).outcome == whole.outcome, shown
        if rng.random() < 0.3:
            live = read_in_pieces(case, rng, prompted=prompted, stream_arguments="incremental")
            assert outcome_of(case, live) != "wrong", shown
        if outcome == "asked" and case.level == "A" and (vain := told_in_vain(case.text, case.tools)):
            assert vain == case.expected[: len(vain)], f"{shown}, asked again in vain to {vain}"
        outcomes[outcome] += 1
    return outcomes


@pytest.mark.parametrize("seed", range(SEEDS))
def test_damaged_markup_changes_no_value(seed: int) -> None:
    outcomes = tally(seed, 1000)
    assert outcomes["right"] > 400, "many of them are read all the same"


def test_a_number_that_holds_another_parameter_is_not_told_in_vain() -> None:
    said = (
        '<minimax:tool_call>\n<invoke name="bash">\n<parameter name="command">ls</parameter>\n'
        '<parameter name="timeout">7</parameter>\n<{} name="description">List.</parameter>\n</invoke>\n'
        "</minimax:tool_call>"
    )
    assert len(read(said.format("parameter"), tools=AGENT_TOOLS).calls) == 1
    assert told_in_vain(said.format("paramter"), AGENT_TOOLS) == []


INNER = ("hermes", "qwen3_coder", "glm", "claude_invoke", "nova", "ds_v31", "functiongemma", "seed_oss", "spark")
PAGE = "Some words of a long page.\n" * 40
SHORT_ALONE = {
    # What no declared tool gives a marker is seen by what stands before it, and so far back nobody looks.
    *("pythonic", "functionary", "gptme", "hermes_unopened", "glm_bare", "kimi_k2_stripped", "mistral_stripped"),
    *("json_bare", "json_fence", "xlam", "tool_code", "ds_stripped", "cwm", "arrows", "olmo3", "smollm3"),
    *("react", "continue", "gemma_stripped", "xai", "llama3_tag"),
}


@pytest.mark.parametrize("form", [form for form in (*TAG_FORMS, *DATA_FORMS) if not form.id.endswith("_xml")])
def test_what_a_call_of_no_declared_tool_would_have_written_is_no_call(form: Form) -> None:
    """An element of a name that nobody declared may be anything's; all other forms say that a call was meant."""
    deploy = tool("deploy", "path", "content")
    told = 0
    for inner in (BY_ID[name].example for name in INNER):
        pages = (inner, f"text\n{inner}\nmore", f"{PAGE}{inner}\nmore")
        for content in pages[: 2 if form.id in SHORT_ALONE else 3]:
            try:
                text = form.call(deploy, {"path": "a.md", "content": content})
            except CannotExpress:
                continue
            told += 1
            assert {name for name, _ in read(text, tools=AGENT_TOOLS).calls} <= {"deploy"}, text
    assert told > 5


@pytest.mark.parametrize("reason", ["length", "stop"])
@pytest.mark.parametrize("form", [form for form in TAG_FORMS if not form.id.endswith("_xml")])
def test_nor_where_the_answer_ends_within_it(form: Form, reason: str) -> None:
    deploy = tool("deploy", "path", "content")
    for inner in (BY_ID[name].example for name in INNER):
        try:
            text = form.call(deploy, {"path": "a.md", "content": f"{PAGE}{inner}\nmore and more"})
        except CannotExpress:
            continue
        cut = text[: text.index("more and")]
        assert {name for name, _ in read(cut, tools=AGENT_TOOLS, reason=reason).calls} <= {"deploy"}, cut


def test_every_dialect_is_damaged() -> None:
    forms = {form.id for form in (*TAG_FORMS, *DATA_FORMS)}
    assert forms | ELSEWHERE == {dialect.id for dialect in TABLE}
    assert {case.form.id for case in damaged_calls(1, 2500)} == forms


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(100, 200))
def test_damaged_markup_changes_no_value_in_a_hundred_thousand(seed: int) -> None:
    print(dict(tally(seed, 1000)))


PYTHON = ToolSet([tool("python", "code")])

COUNT = ToolSet([tool("python", "n", n=INTEGER)])

SAVE = ToolSet(
    [tool("save", "path", line=INTEGER, extra={"type": "object"}, tags={"type": "array", "items": STRING})],
)

CODE = "<|channel|>commentary to=functions.python code<|message|>x = 1"

INTERPRETER = "<|action_start|><|interpreter|>\nx = 1"

LEGACY, LEGACY_END = "<function_calls>\n<invoke>\n", "</invoke>\n</function_calls>"

FLOWER = "✿FUNCTION✿: "

GEMMA, GEMMA_END = "<|tool_call>call:save{", "}<tool_call|>"

SHELL = {"recovery_shell": True, "min_confidence": 80}

REFUSED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "harmony: code for nobody": (CODE, "unknown_tool", {}),
    "harmony: code for a tool that takes a number": (CODE, "no arguments", {"tools": COUNT}),
    "harmony: code that was cut": (CODE, "cut", {"tools": PYTHON, "reason": "length"}),
    "hermes: a comment that never ends": (
        '<tool_call>\n{"name": "read", "arguments": {"filePath": "/a"}}\n<!-- never ends',
        "comment never ends",
        {},
    ),
    "hermes: words behind a mended object": (
        '<tool_call>\n{"name": "read", "arguments": {\'filePath\': \'/a"b\'}} and more\n</tool_call>',
        "text after the object",
        {},
    ),
    "internlm: code that was cut": (INTERPRETER, "cut", {"tools": PYTHON, "reason": "length"}),
    "invoke: another element than the name": (f"{LEGACY}<tool>read</tool>{LEGACY_END}", "no name", {}),
    "invoke: a name that is not closed": (f"{LEGACY}<tool_name>read</name>{LEGACY_END}", "no name", {}),
    "invoke: nobody's name": (
        f"{LEGACY}<tool_name>nobody</tool_name>\n<parameters>\n</parameters>\n{LEGACY_END}",
        "unknown tool",
        {},
    ),
    "invoke: words in the place of the parameters": (
        f"{LEGACY}<tool_name>read</tool_name>\nthe file /a{LEGACY_END}",
        "no parameters",
        {},
    ),
    "json: a list that holds more than objects": (
        '```json\n[{"name": "read", "arguments": {"filePath": "/a"}}, 3]\n```',
        "no object",
        {},
    ),
    "llama: a built-in's call that breaks off": ("<|python_tag|>search.call(query=", "not a plain value", {}),
    "llama: a built-in's call in an expression": (
        '<|python_tag|>search.call(query="x") + 1',
        "text behind a call",
        {},
    ),
    "llama: a built-in's call and another's": (
        '<|python_tag|>search.call(query="x"); os.remove(path="y")',
        "not a built-in's call",
        {},
    ),
    "functionary: code that was cut": (">>>python\nx = 1", "cut", {"tools": PYTHON, "reason": "length"}),
    "qwen3_coder: half an opener": ("<tool_call>\nfunction=read\n<parameter=x>\n", "no function inside", {}),
    "qwen_agent: code for a tool that takes none": (
        f"{FLOWER}read\n✿ARGS✿: ```\nx\n```",
        "code for a tool that takes none",
        {},
    ),
    "qwen_agent: code that never ends": (f"{FLOWER}bash\n✿ARGS✿: ```sh\nls", "fence is not closed", {}),
    "qwen_agent: a comment that never ends": (
        f'{FLOWER}bash\n✿ARGS✿: {{"command": "ls"}} <!-- x',
        "comment never ends",
        {},
    ),
    "qwen_agent: a name at a cut": (f"{FLOWER}todoread", "cut", {"reason": "length"}),
    "python: a member without its colon": ('[read(filePath={"a" 1})]', "missing colon", {}),
    "python: a member twice": ('[read(filePath={"a": 1, "a": 2})]', "`a` is given twice", {}),
    "python: no number": ('[bash(command="ls", timeout=1.2.3)]', "not a number", {}),
    "python: a constructor with a position": (
        '```tool_code\nread(filePath=Path("a"))\n```',
        "not a plain value",
        {},
    ),
    "harmony: a header without end": ("<|channel|>" * 14 + "x", "no header", {}),
    "gemma: half a character": (f'{GEMMA}path:"a\\ud83d"{GEMMA_END}', "JSON: surrogate", {"tools": SAVE}),
    "glm: a schema below the tool's name": (
        'read\n{"type": "object", "properties": {"filePath": {"type": "string"}}}',
        "no arguments of this tool",
        {},
    ),
    "function: words in the place of a parameter": ("<function=list>\n< b\n</function>", "no parameter", {}),
    "function: an empty parameter at a cut": (
        "<function=list>\n<parameter=path/>\n",
        "cut",
        {"reason": "length"},
    ),
    "tag: an empty parameter at a cut": ("<list><path/>\n", "cut", {"reason": "length"}),
    "tag: closed by another": ("<list><path/></foo>", "not closed", {}),
    "glm: a key of nobody": (
        "<tool_call>nobody</arg_key><arg_value>/a</arg_value></tool_call>",
        "no name",
        {},
    ),
    "gemma: a parameter twice": (f'{GEMMA}path:<|"|>a<|"|>,path:<|"|>b<|"|>{GEMMA_END}', "`path` is given twice", {}),
    "gemma: a member twice": (
        f'{GEMMA}path:<|"|>a<|"|>,extra:{{k:1,k:2}}{GEMMA_END}',
        "`k` is given twice",
        {},
    ),
    "gemma: a bare word beyond all bounds": (f"{GEMMA}path:{'x' * 5000}{GEMMA_END}", "value not closed", {}),
    "gemma: a JSON string that never ends": (f'{GEMMA}path:"a', "value not closed", {}),
    "function: names as text, and nobody's": (
        "<function=write>\n<parameter>nobody</parameter> a\n<parameter>content</parameter> x\n</function>",
        "not closed",
        {},
    ),
    "function: names as text, and no end": (
        "<function=write>\n<parameter>filePath</parameter> a\n<parameter>content</parameter> x < y",
        "value not closed",
        {},
    ),
    "tag: JSON that cannot be mended": (
        '<read>{"filePath": "/a" "limit"}</read>',
        "missing comma or closing brace",
        {},
    ),
    "tag: YAML whose document never ends": (
        "<write>\nfilePath: a.py\ncontent: |\n  x\n",
        "value not closed",
        {},
    ),
    "tag: short words without end": (
        f"<read>{''.join(f'<x{number}>a</x{number}>' for number in range(12))}<filePath>/a</filePath></read>",
        "no parameter of this tool",
        {},
    ),
    "tag: below its name, cut": ("read\n<filePath>/a</filePath>\n", "cut", {"reason": "length"}),
    "shell: a tool that takes no command": (
        "I'll look.\n\n```bash\nls -la\n```",
        "no parameter for a command",
        {"tools": ToolSet([tool("bash", "text")]), **SHELL},
    ),
}


@pytest.mark.parametrize(("text", "reason", "how"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_call_stays_text(text: str, reason: str, how: dict[str, Any]) -> None:
    found = read_every_way(text, **how)
    assert found.calls == []
    assert found.text == text
    assert reason in [given for note in found.notes for given in note]


ACCEPTED: dict[str, tuple[str, list[Tool], dict[str, Any]]] = {
    "harmony: code": (CODE, [tool("python", "code")], {"code": "x = 1"}),
    "internlm: code without its closer": (INTERPRETER, [tool("python", "code")], {"code": "x = 1"}),
    "deepseek: no arguments": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>stop<｜tool▁sep｜><｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [tool("stop")],
        {},
    ),
    "functionary: a name and the end of the message": (
        'read\n{"path": "/a"} <|eot_id|>',
        [tool("read", "path")],
        {"path": "/a"},
    ),
    "gemma: a number beyond all bounds is a text": (
        f"{GEMMA}path:a,extra:{{n:1e99999}}{GEMMA_END}",
        [*SAVE],
        {"path": "a", "extra": {"n": "1e99999"}},
    ),
    "gemma: an object without quotes": (
        "call:save{extra:{a:1},path:b}",
        [*SAVE],
        {"extra": {"a": 1}, "path": "b"},
    ),
    "json: a comment that the answer's end ends": (
        '```json\n{"name": "read", "arguments": {"path": "/a"}}\n// as asked',
        [tool("read", "path")],
        {"path": "/a"},
    ),
    "tag: a space in a closer": ("<read><path>a</path ></read >", [tool("read", "path")], {"path": "a"}),
    "gemma: lists and numbers without quotes": (
        "call:save{tags:[x,y],path:a,line:3}",
        [*SAVE],
        {"tags": ["x", "y"], "path": "a", "line": 3},
    ),
    "kimi_k3: a call before another section": (
        '<|open|>tools<|sep|><|open|>call tool="read" index="1"<|sep|><|open|>argument key="path" type="string"<|sep|>a'
        "<|close|>argument<|sep|><|close|>call<|sep|><|open|>message<|sep|>",
        [tool("read", "path")],
        {"path": "a"},
    ),
    "python: comments around a call": (
        '```tool_code\n# look first\n# then read\nread(path="a")\n# done\n```',
        [tool("read", "path")],
        {"path": "a"},
    ),
    "qwen_agent: code for a tool that runs some": (
        f"{FLOWER}bash\n✿ARGS✿: ```sh\nls\n```",
        [tool("bash", "command")],
        {"command": "ls"},
    ),
    "shell: a list of commands": (
        "I'll look.\n\n```bash\nls -la\n```",
        [tool("bash", "commands", commands={"type": "array", "items": STRING})],
        {"commands": ["ls -la"]},
    ),
    "tag: YAML without a value": ("<show>\nname:\n</show>", [tool("show", "name")], {"name": ""}),
    "tag: a name in another spelling": (
        "<tool_use>\n<name>Read</name>\n<path>a</path>\n</tool_use>",
        [tool("read", "path")],
        {"path": "a"},
    ),
    "tag: a document below the tool's name": (
        "write\n<path>a</path>\n<content>\nx\n</content>\n",
        [tool("write", "path", "content")],
        {"path": "a", "content": "x"},
    ),
}


@pytest.mark.parametrize(("text", "tools", "arguments"), ACCEPTED.values(), ids=ACCEPTED)
def test_an_unusual_form_is_read(text: str, tools: list[Tool], arguments: dict[str, Any]) -> None:
    how = SHELL if text.startswith("I'll") else {}
    found = read_every_way(text, tools=ToolSet(tools), **how)
    assert [(name, json.loads(given)) for name, given in found.calls] == [(tools[0].name, arguments)]


@pytest.mark.parametrize("lost", ["<arg_key><arg_key>", "<arg_key>\n<arg_key>"])
def test_a_doubled_key_tag_costs(lost: str) -> None:
    """GLM: a tag that stands twice is a mend like one that is missing."""
    plain = "<tool_call>read\n<arg_key>filePath</arg_key>\n<arg_value>/a</arg_value>\n</tool_call>"
    doubled = read_every_way(plain.replace("<arg_key>", lost))
    assert doubled.calls == read_every_way(plain).calls != []
    assert doubled.scores < read_every_way(plain).scores


def test_another_spelling_of_the_name_costs() -> None:
    mended = read_every_way("<tool_use>\n<name>Read</name>\n<filePath>/a</filePath>\n</tool_use>")
    plain = read_every_way("<tool_use>\n<name>read</name>\n<filePath>/a</filePath>\n</tool_use>")
    assert mended.calls == plain.calls
    assert mended.scores < plain.scores


@pytest.mark.parametrize(
    "text",
    [
        "<function=list>\n<parameter=path/>\n<parameter=path/>\n</function>",
        '<function_calls><invoke name="list">' + '<parameter name="path"/>' * 2 + "</invoke></function_calls>",
        "<list><path/><path/></list>",
    ],
)
def test_an_empty_parameter_given_twice_breaks_a_call_that_flows(text: str) -> None:
    """What was streamed cannot be taken back, and two of a name are no arguments."""
    assert read_every_way(text).calls == [("list", '{"path":""}')]
    flowed = read(text, reasoned=True, stream_arguments="incremental")
    assert (flowed.calls, flowed.broken) == ([], ["parameter given twice"])


@pytest.mark.parametrize("form", ["default_api.{}", "print(default_api.{})"])
def test_bare_calls_of_the_own_prefix_follow_each_other(form: str) -> None:
    text = "\n".join(form.format(f'read(filePath="{path}")') for path in ("/a", "/b"))
    found = read_every_way(text)
    assert found.calls == [("read", '{"filePath":"/a"}'), ("read", '{"filePath":"/b"}')]
    assert set(found.dialects) == {"tool_code"}
