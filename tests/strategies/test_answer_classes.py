"""The classes of answers that models give, and what is made of each: calls of what was meant, text of all the rest."""

import json
import random
from typing import Any

import pytest

from tests.support.chat import answer_body, answer_events, hear_body, hear_stream, prepared, stream, whole

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
