"""A history is told from where the last request's was told to, and says what it would have said from its beginning."""

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.surfaces.messages.surface import MESSAGES
from gateway.surfaces.messages.telling import THINKING
from gateway.surfaces.port import Asked, Server, Situation
from gateway.surfaces.responses.surface import RESPONSES
from gateway.surfaces.responses.telling import REASONING
from gateway.surfaces.seals import Seals
from gateway.wire import chat_request, conversations
from gateway.wire.conversations import forget_conversations
from tests.support.cost import steps

SECRET, SCOPE = b"secret", "somebody"
SEALS = Seals(SECRET, SCOPE)
MARK = {"cache_control": {"type": "ephemeral"}}
NAMES = st.sampled_from(["Read", "Edit", "mcp__x__Read", "mcp.x.Read", "Gone", "a name"])
TEXTS = st.sampled_from(["", "a", "b c", "<system-reminder>d</system-reminder>", "é\n"])
IDS = st.sampled_from(["t1", "t2", "t3", "t4"])
TOOLS = [{"name": name, "input_schema": {"type": "object"}} for name in ("Read", "Edit", "mcp__x__Read")]
SERVERS = st.builds(
    Server,
    knows_messages=st.booleans(),
    late_system=st.sampled_from(["user", "inline", "first"]),
    keeps_cache_control=st.booleans(),
    history_reasoning=st.sampled_from(["turn", "keep", "drop"]),
)


@pytest.fixture(autouse=True)
def short_ones_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "LONG", 64)
    monkeypatch.setattr(chat_request, "LONG", 64)


def situation(server: Server) -> Situation:
    return Situation(
        now=0.0, request_id="r", unique="u" * 24, secret=SECRET, scope=SCOPE, server=lambda _: server, options=OPTIONS
    )


OPTIONS = {"responses_ttl_s": 0, "responses_max_bytes": 1 << 20, "audit_bodies": False}


def told(asked: Asked) -> tuple[Any, ...]:
    """All that a request came to."""
    refusal = None if asked.refusal is None else str(asked.refusal)
    request = asked.request
    return request.body, request.raw, refusal, asked.dropped, asked.mended, asked.left_out, asked.is_bound


def sealed(purpose: str, text: str) -> str:
    return SEALS.seal({"text": text}, purpose=purpose) or ""


RESULT = st.one_of(
    TEXTS,
    st.lists(
        st.one_of(
            st.builds(lambda text: {"type": "text", "text": text}, TEXTS),
            st.just({"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}),
            st.just({"type": "tool_reference", "tool_name": "Late"}),
        ),
        max_size=2,
    ),
)
BLOCKS = {
    "user": st.one_of(
        st.builds(lambda text: {"type": "text", "text": text}, TEXTS),
        st.builds(lambda call, found: {"type": "tool_result", "tool_use_id": call, "content": found}, IDS, RESULT),
        st.builds(lambda call: {"type": "tool_result", "tool_use_id": call, "content": "x", "is_error": True}, IDS),
        st.just({"type": "image", "source": {"type": "base64", "data": "AAAA"}}),
        st.just({"type": "unheard_of"}),
    ),
    "assistant": st.one_of(
        st.builds(lambda text: {"type": "text", "text": text}, TEXTS),
        st.builds(lambda call, name: {"type": "tool_use", "id": call, "name": name, "input": {"p": call}}, IDS, NAMES),
        st.builds(lambda text: {"type": "thinking", "thinking": text, "signature": "other's"}, TEXTS),
        st.builds(
            lambda text: {"type": "thinking", "thinking": "", "signature": sealed(THINKING, text)}, st.just("thought")
        ),
        st.just({"type": "redacted_thinking", "data": "x"}),
    ),
    "system": st.builds(lambda text: {"type": "text", "text": text}, TEXTS),
}
MESSAGE = st.sampled_from(["user", "assistant", "user", "assistant", "system"]).flatmap(
    lambda role: st.builds(
        lambda content: {"role": role, "content": content}, st.one_of(TEXTS, st.lists(BLOCKS[role], max_size=3))
    )
)
PARTS = st.one_of(TEXTS, st.lists(st.builds(lambda text: {"type": "input_text", "text": text}, TEXTS), max_size=2))
ITEM = st.one_of(
    st.builds(
        lambda role, content: {"type": "message", "role": role, "content": content},
        st.sampled_from(["user", "assistant", "developer"]),
        PARTS,
    ),
    st.builds(
        lambda call, name: {"type": "function_call", "call_id": call, "name": name, "arguments": '{"p":1}'}, IDS, NAMES
    ),
    st.builds(lambda call, text: {"type": "function_call_output", "call_id": call, "output": text}, IDS, TEXTS),
    st.builds(lambda text: {"type": "reasoning", "content": [{"type": "reasoning_text", "text": text}]}, TEXTS),
    st.builds(lambda text: {"type": "reasoning", "encrypted_content": sealed(REASONING, text)}, st.just("thought")),
    st.sampled_from([{"type": "web_search_call"}, {"type": "unheard_of"}]),
)


def marked(messages: list[Any]) -> list[Any]:
    """As clients send them: what ends a message or two at the end is marked for the server's cache."""
    found = copy.deepcopy(messages)
    for message in found[-2:]:
        if isinstance(message["content"], list) and message["content"]:
            message["content"][-1] |= MARK
    return found


@given(st.data(), SERVERS)
def test_a_messages_history_comes_to_the_same_whatever_is_known_of_it(data: st.DataObject, server: Server) -> None:
    messages: list[Any] = [{"role": "user", "content": "The first question, which is rather a long one to begin with."}]
    tools, conversed = TOOLS, []
    forget_conversations()
    earlier: list[tuple[Any, Any]] = []
    for _ in range(4):
        messages += data.draw(st.lists(MESSAGE, min_size=1, max_size=9))
        if data.draw(st.integers(0, 5)) == 0:
            tools = data.draw(st.sampled_from([TOOLS, TOOLS[:1], []]))
        system = data.draw(st.sampled_from(["", "Be terse.", "Be terse. It is noon."]))
        body = {"model": "m", "max_tokens": 9, "system": system, "messages": marked(messages), "tools": tools}
        raw = msgspec.json.encode(body)
        conversed.append(raw)
        asked = MESSAGES.accept(raw, situation(server), {})
        earlier.append((asked, copy.deepcopy(told(asked))))
    for asked, at_once in earlier:
        assert told(asked) == at_once, "a later request changed an earlier one"
    for raw, (_, at_once) in zip(conversed, earlier, strict=True):
        forget_conversations()
        fresh = MESSAGES.accept(raw, situation(server), {})
        assert at_once == told(fresh)
        assert json.loads(fresh.request.raw) == fresh.request.body


@given(st.data(), SERVERS)
def test_a_responses_input_comes_to_the_same_whatever_is_known_of_it(data: st.DataObject, server: Server) -> None:
    items: list[Any] = [{"type": "message", "role": "user", "content": "The first question, which is rather long."}]
    declared = [{"type": "function", "name": tool["name"], "parameters": {"type": "object"}} for tool in TOOLS]
    forget_conversations()
    seen: list[tuple[bytes, Any]] = []
    for _ in range(4):
        items += data.draw(st.lists(ITEM, min_size=1, max_size=12))
        instructions = data.draw(st.sampled_from(["Be terse.", "Be terse. It is noon.", [items[0]]]))
        body = {"model": "m", "instructions": instructions, "input": items, "tools": declared, "store": False}
        raw = msgspec.json.encode(body)
        seen.append((raw, copy.deepcopy(told(RESPONSES.accept(raw, situation(server), {})))))
    for raw, at_once in seen:
        forget_conversations()
        assert at_once == told(RESPONSES.accept(raw, situation(server), {}))


def turns(count: int, first: int = 0) -> list[Any]:
    """A conversation of calls and what came of them."""
    messages: list[Any] = [{"role": "user", "content": "Please do the work."}] if not first else []
    for number in range(first, count):
        call = {"type": "tool_use", "id": f"t{number}", "name": "Read", "input": {"path": f"{number}.py"}}
        said = [{"type": "thinking", "thinking": "I look.", "signature": "x"}, {"type": "text", "text": "Next."}, call]
        found = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"what stands in {number} " * 9}
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": [found]}]
    return messages


def ask(messages: list[Any], secret: bytes = SECRET, server: Server | None = None) -> Asked:
    raw = msgspec.json.encode({"model": "m", "max_tokens": 9, "messages": marked(messages), "tools": TOOLS})
    return MESSAGES.accept(raw, msgspec.structs.replace(situation(server or Server()), secret=secret), {})


def test_what_was_told_before_is_not_told_again() -> None:
    before, after = ask(turns(30)), ask(turns(31))
    assert len(after.request.messages) == 1 + 2 * 31
    for one, two in zip(before.request.messages[:50], after.request.messages[:50], strict=True):
        assert one is two, "it was made again"
    # By another client's key, or for a server that is told otherwise, nothing of it is taken.
    for other in (ask(turns(31), secret=b"another"), ask(turns(31), server=Server(history_reasoning="drop"))):
        assert not any(
            one is two for one, two in zip(after.request.messages[2:], other.request.messages[2:], strict=False)
        )


def test_the_next_turn_of_a_long_conversation_costs_hardly_more_than_of_a_short_one() -> None:
    def cost(count: int) -> int:
        forget_conversations()
        ask(turns(count))
        ask(turns(count + 1))
        messages = turns(count + 2)
        raw = msgspec.json.encode({"model": "m", "max_tokens": 9, "messages": marked(messages), "tools": TOOLS})
        return steps(lambda: MESSAGES.accept(raw, situation(Server()), {}), most=1_000_000)

    short, long = cost(20), cost(520)
    # Some nine for a turn that is only handed on, and checked as a request's messages are; to tell one takes sixty.
    assert (long - short) / 500 <= 12, (short, long)
