"""`POST /v1/feedback`: what is taken, counted and written down, and what is refused and why."""

import json

import pytest

from gateway.core.records import FeedbackRecord
from gateway.traffic.recent_answers import MAX_ANSWERS, Answered, RecentAnswers, is_completion_id
from tests.support.client import ask, chat, get
from tests.support.faulty_upstream import DONE, answer_json, completion, event, stream, text

COMMENT = "The second file was never read."


async def rate(session, url, body):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with session.post(f"{url}/v1/feedback", data=data) as response:
        return response.status, await response.json()


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("rating", ["good", "bad"])
async def test_an_answer_can_be_rated(gateway, upstream, client, log, streamed, rating):
    upstream.script = (
        stream(text("hello"), event(finish="stop"), DONE) if streamed else answer_json(completion("hello"))
    )
    running = await gateway(upstream.url)
    await ask(client, running.url, chat(stream=streamed), headers={"X-Request-Id": "mine-1"})
    status, said = await rate(
        client, running.url, {"completion_id": "chatcmpl-1", "rating": rating, "comment": COMMENT}
    )
    assert (status, said) == (200, {"object": "feedback", "completion_id": "chatcmpl-1", "rating": rating})
    assert len(upstream.requests) == 1
    record = await log.record("feedback_given")
    assert (record["rated_request"], record["rating"], record["has_comment"]) == ("mine-1", rating, True)
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert f'toolgate_feedback_total{{rating="{rating}"}} 1.0' in exposition
    assert await running.upkeep.recorder.flush(5)
    [kept] = [each async for each in running.upkeep.store.scan(FeedbackRecord)]
    assert (kept.completion_id, kept.rating, kept.comment) == ("chatcmpl-1", rating, COMMENT)
    assert (kept.request_id, kept.strategy, kept.arm) == ("mine-1", "passthrough", "live")


async def test_an_answer_of_before_a_restart_is_found_in_the_store(gateway, upstream, client, tmp_path):
    upstream.script = answer_json(completion("hello"))
    store = {"STORE_URL": f"sqlite:///{tmp_path}/kept.db"}
    before = await gateway(upstream.url, **store)
    await ask(client, before.url, chat(stream=False))
    await before.close()
    after = await gateway(upstream.url, **store)
    status, _ = await rate(client, after.url, {"completion_id": "chatcmpl-1", "rating": "good"})
    assert status == 200


async def test_an_answer_of_a_server_with_a_key_of_its_own_can_be_rated(gateway, upstream, client, tmp_path):
    """What the client shows is for the default server alone; the one that answered never looked at it."""
    upstream.script = answer_json(completion("hello"))
    routes = tmp_path / "toolgate.toml"
    routes.write_text(
        f'[upstreams.own]\nurl = "{upstream.url}"\napi_key = "k"\n[[models]]\nmatch = "*"\nupstream = "own"\n'
    )
    running = await gateway(upstream.url, GATEWAY_CONFIG=str(routes))
    shown = {"Authorization": "Bearer mine"}
    await ask(client, running.url, chat(stream=False), headers=shown)
    data = json.dumps({"completion_id": "chatcmpl-1", "rating": "good"}).encode()
    async with client.post(f"{running.url}/v1/feedback", data=data, headers=shown) as response:
        assert response.status == 200


async def test_what_a_comment_says_is_for_the_debug_log_alone(gateway, upstream, client, log):
    upstream.script = answer_json(completion("hello"))
    running = await gateway(upstream.url)
    await ask(client, running.url, chat(stream=False))
    await rate(client, running.url, {"completion_id": "chatcmpl-1", "rating": "bad", "comment": COMMENT})
    lines = [json.loads(line) for line in (await log.until("feedback_comment")).splitlines()]
    assert {line["level"] for line in lines if COMMENT in json.dumps(line)} == {"debug"}


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (b"", 400, None),
        (b"{", 400, None),
        (b"[]", 400, None),
        (b"[" * 5000, 400, None),
        ({}, 400, "completion_id"),
        ({"completion_id": 5, "rating": "good"}, 400, "completion_id"),
        ({"completion_id": "", "rating": "good"}, 400, "completion_id"),
        ({"completion_id": "a b", "rating": "good"}, 400, "completion_id"),
        ({"completion_id": "a\nb", "rating": "good"}, 400, "completion_id"),
        ({"completion_id": "x" * 129, "rating": "good"}, 400, "completion_id"),
        ({"completion_id": "chatcmpl-1"}, 400, "rating"),
        ({"completion_id": "chatcmpl-1", "rating": "fine"}, 400, "rating"),
        ({"completion_id": "chatcmpl-1", "rating": ["good"]}, 400, "rating"),
        ({"completion_id": "chatcmpl-1", "rating": "good", "comment": 5}, 400, "comment"),
        ({"completion_id": "chatcmpl-1", "rating": "good", "comment": "x" * 4001}, 400, "comment"),
        ({"completion_id": "chatcmpl-unknown", "rating": "good"}, 404, "completion_id"),
        ({"completion_id": "chatcmpl-1", "rating": "good", "comment": "x" * 70_000}, 413, None),
    ],
)
async def test_what_cannot_be_taken_is_refused_with_its_reason(gateway, upstream, client, body, status, param):
    upstream.script = answer_json(completion("hello"))
    running = await gateway(upstream.url)
    await ask(client, running.url, chat(stream=False))
    got, said = await rate(client, running.url, body)
    assert got == status
    assert said["error"]["param"] == param
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'toolgate_feedback_total{rating="good"} 0.0' in exposition


async def test_it_needs_a_key_like_everything_else(gateway, upstream, client):
    running = await gateway(upstream.url, GATEWAY_API_KEYS="sk-gate")
    assert (await rate(client, running.url, {"completion_id": "chatcmpl-1", "rating": "good"}))[0] == 401


async def test_an_answer_with_an_id_that_is_no_string_is_passed_on(gateway, upstream, client):
    upstream.script = stream(event({"content": "x"}, id=7), event(finish="stop", id=7), DONE)
    running = await gateway(upstream.url)
    assert (await ask(client, running.url)).content == "x"
    assert len(running.shared.answers) == 0


def test_only_so_many_answers_are_remembered() -> None:
    answers = RecentAnswers()
    for number in range(MAX_ANSWERS + 5):
        answers.remember(f"chatcmpl-{number}", request_id="r", strategy=None, arm=None)
    assert len(answers) == MAX_ANSWERS
    assert answers.find("chatcmpl-4") is None
    assert answers.find("chatcmpl-5") == Answered(request_id="r", strategy=None, arm=None)
    answers.remember("no\nid", request_id="r", strategy=None, arm=None)
    assert not is_completion_id("no\nid")
