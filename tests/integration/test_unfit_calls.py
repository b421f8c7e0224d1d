"""A call that its tool does not take, in special tokens: asked for again, then delivered as the model wrote it."""

import pytest

from tests.integration.test_repairs import CALL, FINISH, ROLE, calls_of, metrics_of
from tests.support.client import TOOLS, ask, chat
from tests.support.faulty_upstream import DONE, answer_json, completion, in_turn, stream, text

UNFIT = "<|tool_call>call:read_file{}<tool_call|>"
OTHER = '<|tool_call>call:read_file{limit:<|"|>all<|"|>}<tool_call|>'
COUNTED = 'toolgate_unfit_calls_total{dialect="gemma4"} 1.0'
HEAD = "I look.\n"


def first(said, *, streamed):
    return stream(ROLE, text(said), FINISH, DONE) if streamed else answer_json(completion(said))


def said_in(got, *, streamed):
    return got.content if streamed else got.json["choices"][0]["message"]["content"]


async def asked(client, running, *, streamed):
    return await ask(client, running.url, chat(model="gemma-4-27b", stream=streamed, tools=TOOLS))


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("second", ["I cannot.", OTHER])
async def test_what_was_asked_for_in_vain_goes_out_as_it_was_written(gateway, upstream, client, streamed, second):
    upstream.script = in_turn(first(HEAD + UNFIT, streamed=streamed), answer_json(completion(second)))
    running = await gateway(upstream.url)
    got = await asked(client, running, streamed=streamed)
    assert calls_of(got) == [("read_file", "{}")]
    assert said_in(got, streamed=streamed) == "I look."
    assert b'"finish_reason":"tool_calls"' in got.body.replace(b" ", b"")
    assert "missing required argument" in upstream.requests[1].json["messages"][-1]["content"]
    assert len(upstream.requests) == 2
    assert COUNTED in await metrics_of(client, running)


async def test_several_of_them_go_out_in_their_order(gateway, upstream, client):
    upstream.script = in_turn(first(HEAD + UNFIT + OTHER, streamed=False), answer_json(completion("I cannot.")))
    got = await asked(client, await gateway(upstream.url), streamed=False)
    assert calls_of(got) == [("read_file", "{}"), ("read_file", '{"limit":"all"}')]


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_right_second_call_is_better(gateway, upstream, client, streamed):
    right = '<|tool_call>call:read_file{path:<|"|>src/a.py<|"|>}<tool_call|>'
    upstream.script = in_turn(first(HEAD + UNFIT, streamed=streamed), answer_json(completion(right)))
    running = await gateway(upstream.url)
    assert calls_of(await asked(client, running, streamed=streamed)) == CALL
    assert COUNTED not in await metrics_of(client, running)


@pytest.mark.parametrize(
    ("said", "settings"),
    [
        (UNFIT, {"UNFIT_CALLS": "text"}),
        (UNFIT, {"REPAIR_ATTEMPTS": "0"}),
        (f"{UNFIT} That is how.", {}),
        (UNFIT.replace("read_file", "readFile"), {}),
        ("<read_file>\n<limit>all</limit>\n</read_file>", {}),
        ("```\n" + UNFIT + "\n```", {}),
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
async def test_everything_else_stays_the_text_it_was(gateway, upstream, client, said, settings, streamed):
    upstream.script = in_turn(first(HEAD + said, streamed=streamed), answer_json(completion("I cannot.")))
    got = await asked(client, await gateway(upstream.url, **settings), streamed=streamed)
    assert b'"tool_calls":' not in got.body
    assert said_in(got, streamed=streamed) == HEAD + said
