"""Answers of others, read by the running gateway: the fixtures of `canitoolcall`, a suite that no engine wrote.

It holds what models of nine families wrote, from their templates, their engines' own tests and reports of faults, with
what a right parser makes of it. Every fixture goes through the gateway whole and in pieces. The calls have to be right
in all of them; where the visible text is another one than the suite's, the fixture is listed with the reason.
"""

import json
import random
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from canitoolcall.checks import compare, expected_as_result
from canitoolcall.fixtures import Fixture, load_fixtures
from canitoolcall.results import ParsedToolCall, ParseResult, Status

from tests.support.client import Answer, ask, chat
from tests.support.faulty_upstream import (
    DONE,
    Connection,
    FaultyUpstream,
    Received,
    answer_json,
    completion,
    event,
    stream,
    text,
)
from tests.support.reading import pieces

LISTED: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "neutral_suite.json").read_bytes())
FIXTURES = load_fixtures()
PARTS = 6
"""In so many parts they are tested."""
SHARE = 0.98
"""Of the fixtures without reasoning, so many have the suite's text."""


def finish_of(fixture: Fixture) -> str:
    return "length" if fixture.truncated else "stop"


async def serve(connection: Connection, received: Received) -> None:
    """The answer of the fixture that the request names, cut where it says."""
    place, *cuts = (int(word) for word in received.json["user"].split())
    fixture = FIXTURES[place]
    if not received.json.get("stream"):
        whole = completion(fixture.raw_output)
        whole["choices"][0]["finish_reason"] = finish_of(fixture)
        await answer_json(whole)(connection, received)
        return
    parts = pieces(fixture.raw_output, range(1, len(fixture.raw_output)) if cuts == [-1] else cuts)
    events = [event({"role": "assistant", "content": ""}), *map(text, parts), event(finish=finish_of(fixture)), DONE]
    await stream(b"".join(events))(connection, received)


def result_of(answer: Answer, *, streamed: bool) -> ParseResult:
    """What an agent sees of an answer."""
    if not streamed:
        message = answer.json["choices"][0]["message"]
        calls = [call["function"] for call in message.get("tool_calls") or []]
        content = message["content"]
    else:
        assert answer.is_done
        made: dict[int, dict[str, str]] = {}
        for chunk in answer.chunks:
            for choice in chunk["choices"]:
                for part in choice["delta"].get("tool_calls") or []:
                    call = made.setdefault(part["index"], {"name": "", "arguments": ""})
                    call["name"] += part["function"].get("name") or ""
                    call["arguments"] += part["function"].get("arguments") or ""
        calls = [made[place] for place in sorted(made)]
        content = answer.content
    return ParseResult(
        content=content or None,
        reasoning_content=None,
        tool_calls=tuple(ParsedToolCall(call["name"], call["arguments"]) for call in calls),
    )


def calls_of(result: ParseResult) -> ParseResult:
    return ParseResult(content=None, reasoning_content=None, tool_calls=result.tool_calls)


def expected_calls(fixture: Fixture) -> ParseResult:
    if fixture.expected is None:
        return ParseResult(content=None, reasoning_content=None, tool_calls=())
    return calls_of(expected_as_result(fixture.expected))


def has_text(fixture: Fixture, found: ParseResult) -> bool:
    """Whether the visible text is the suite's, but for white space at its edges."""
    said = ParseResult(content=found.content, reasoning_content=None, tool_calls=())
    if fixture.expected is None:
        assert fixture.expected_error is not None
        wanted = fixture.raw_output if fixture.expected_error.accept == ("content_passthrough",) else found.content
    else:
        wanted = fixture.expected.content
    return compare(ParseResult(content=wanted, reasoning_content=None, tool_calls=()), said) != Status.FAIL


def is_asserted(fixture: Fixture) -> bool:
    """Whether the suite says what is visible, and no reasoning stands in it."""
    return fixture.expected is None or not fixture.expected.reasoning_content


def cuts_of(fixture: Fixture, *, every: bool) -> Iterator[list[int]]:
    """Per character, and at random; or in two at every place."""
    size = len(fixture.raw_output)
    yield [-1]
    if every:
        yield from ([place] for place in range(1, size))
        return
    rng = random.Random(fixture.id)
    yield sorted(rng.sample(range(size + 1), min(size, rng.randint(1, 8))))


async def read_by(
    session: aiohttp.ClientSession, url: str, place: int, cuts: list[int] | None
) -> tuple[ParseResult, Answer]:
    fixture = FIXTURES[place]
    words = " ".join(map(str, (place, *(cuts or ()))))
    body = chat(model=fixture.reference_model, stream=cuts is not None, tools=list(fixture.tools), user=words)
    answer = await ask(session, url, body)
    assert answer.status == 200, answer.body
    return result_of(answer, streamed=cuts is not None), answer


async def check(session: aiohttp.ClientSession, url: str, place: int, *, every: bool) -> bool:
    """One fixture, whole and in pieces; whether its text is the suite's."""
    fixture = FIXTURES[place]
    whole, _ = await read_by(session, url, place, None)
    assert compare(expected_calls(fixture), calls_of(whole)) is Status.PASS, f"{fixture.id}: {whole}"
    for cuts in cuts_of(fixture, every=every):
        found, _ = await read_by(session, url, place, cuts)
        assert compare(whole, found) is not Status.FAIL, f"{fixture.id} cut at {cuts}: {found}, whole {whole}"
    return has_text(fixture, whole)


async def check_all(session: aiohttp.ClientSession, url: str, places: range, *, every: bool = False) -> None:
    """All of these fixtures; those with another text are listed, and none of them for nothing."""
    others = {
        FIXTURES[place].id
        for place in places
        if not await check(session, url, place, every=every) and is_asserted(FIXTURES[place])
    }
    assert others == LISTED["text"].keys() & {FIXTURES[place].id for place in places}


@pytest.mark.parametrize("part", range(PARTS))
async def test_the_suites_answers_are_read_right(
    gateway: Any, upstream: FaultyUpstream, client: Any, part: int
) -> None:
    upstream.script = serve
    running = await gateway(upstream.url, REPAIR_ATTEMPTS="0", STRATEGY_RULES="*=recovery")
    await check_all(client, running.url, range(part, len(FIXTURES), PARTS))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(24))
async def test_they_are_read_right_in_every_cut(gateway: Any, upstream: FaultyUpstream, client: Any, part: int) -> None:
    upstream.script = serve
    running = await gateway(upstream.url, REPAIR_ATTEMPTS="0", STRATEGY_RULES="*=recovery")
    await check_all(client, running.url, range(part, len(FIXTURES), 24), every=True)


def test_the_list_is_about_this_suite() -> None:
    ids = {fixture.id for fixture in FIXTURES}
    asserted = [fixture for fixture in FIXTURES if is_asserted(fixture)]
    assert LISTED["version"] == version("canitoolcall")
    assert LISTED["fixtures"] == len(FIXTURES)
    assert LISTED["text"].keys() <= ids
    assert all(reason.endswith(".") and len(reason.split()) > 8 for reason in LISTED["text"].values())
    assert 1 - len(LISTED["text"]) / len(asserted) >= SHARE
