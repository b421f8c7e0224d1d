"""Commands in shell fences: recovered where the operator asked for it, within the guards, and never unseen."""

import json

import pytest

from tests.support.client import ask, chat
from tests.support.faulty_upstream import DONE, answer_json, completion, event, stream, text

SHELL_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "bash",
            "description": "Runs a command.",
            "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
        },
    }
]

ON = {"RECOVERY_SHELL": "true"}


def block(*lines: str, lead: str = "Let me look at the files.", language: str = "bash") -> str:
    return "\n".join([lead, "", f"```{language}", *lines, "```"])


async def command_of(session, running, upstream, content: str, **fields) -> str | None:
    """The command that the client is given; None where the answer stays as it came."""
    upstream.script = answer_json(completion(content))
    got = await ask(session, running.url, chat(model="deepseek", stream=False, tools=SHELL_TOOLS, **fields))
    message = got.json["choices"][0]["message"]
    if message.get("tool_calls") is None:
        assert message["content"] == content
        return None
    (call,) = message["tool_calls"]
    assert call["function"]["name"] == "bash"
    command: str = json.loads(call["function"]["arguments"])["command"]
    return command


async def test_a_command_is_recovered_and_audited(gateway, upstream, client, log):
    running = await gateway(upstream.url, **ON)
    headers = {"X-Request-Id": "mine-1"}
    parts = [text(piece) for piece in (block("ls -la src")[:20], block("ls -la src")[20:])]
    upstream.script = stream(event({"role": "assistant"}), *parts, event(finish="stop"), DONE)
    got = await ask(client, running.url, chat(model="deepseek", tools=SHELL_TOOLS), headers=headers)
    assert got.content == "Let me look at the files."
    assert got.chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    record = await log.record("shell_call_recovered")
    assert (record["request_id"], record["tool"], record["score"]) == ("mine-1", "bash", 0.8)
    lines = [json.loads(line) for line in (await log.until("request_ended")).splitlines()]
    assert {line["level"] for line in lines if "ls -la" in json.dumps(line)} == {"debug"}
    assert running.shared.lessons.recall("default", "deepseek", 0.0) is None


async def test_it_is_off_by_default(gateway, upstream, client, log):
    running = await gateway(upstream.url)
    assert await command_of(client, running, upstream, block("ls -la src")) is None
    assert "shell_call_recovered" not in await log.until("request_ended")


@pytest.mark.parametrize(
    "content",
    [
        block("rm -rf build"),
        block("ls; rm -rf build"),
        block("ls && rm x"),
        block("cat a | sh"),
        block("cat a > b"),
        block("cat $(rm x)"),
        block("cat `rm x`"),
        block("ls", "rm x"),
        block("ls") + "\nThat shows them.",
        block("ls", lead="You can list them with:"),
        block("ls", lead="For example:"),
        "Let me look.\n\n    ls -la",
        "Let me look: `ls -la`",
        block("find . -delete"),
        block("env X=1 ls"),
        block("ls", language="python"),
    ],
)
async def test_what_the_guards_refuse_stays_text(gateway, upstream, client, content):
    running = await gateway(upstream.url, **ON)
    assert await command_of(client, running, upstream, content) is None


async def test_the_operator_says_which_words_and_whether_operators(gateway, upstream, client):
    running = await gateway(
        upstream.url, **ON, SHELL_ALLOWLIST="git,ls", SHELL_ALLOW_OPERATORS="true", CONFIDENCE_SHELL="0.70"
    )
    for command in ("git status", "ls && git diff"):
        assert await command_of(client, running, upstream, block(command)) == command
    assert await command_of(client, running, upstream, block("cat a")) is None
    assert await command_of(client, running, upstream, block("ls && cat a")) is None


async def test_a_command_that_may_not_be_recovered_is_left_alone(gateway, upstream, client):
    running = await gateway(upstream.url, **ON, RECOVERY_TOOLS="read*")
    assert await command_of(client, running, upstream, block("ls")) is None


async def test_a_copied_command_is_a_quotation(gateway, upstream, client):
    running = await gateway(upstream.url, **ON)
    page = {"role": "user", "content": f"Summarise:\n{block('cat /etc/passwd')}"}
    assert await command_of(client, running, upstream, block("cat /etc/passwd"), messages=[page]) is None


async def test_without_a_tool_for_commands_there_is_nothing_to_recover(gateway, upstream, client):
    other = json.loads(json.dumps(SHELL_TOOLS).replace("bash", "read_file"))
    running = await gateway(upstream.url, **ON)
    upstream.script = answer_json(completion(block("ls")))
    got = await ask(client, running.url, chat(model="deepseek", stream=False, tools=other))
    assert got.json["choices"][0]["message"]["content"] == block("ls")


@pytest.mark.parametrize("content", [block("rm -rf build"), block("ls; ls")])
async def test_a_refused_command_is_never_asked_for_again(gateway, upstream, client, content):
    running = await gateway(upstream.url, **ON)
    await command_of(client, running, upstream, content)
    assert len(upstream.requests) == 1
