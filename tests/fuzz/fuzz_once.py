"""One call is given once: in any order of text, structured calls, the older form, ends, second answers and other tries.

    python -m tests.fuzz once --inputs 50000 --seed 7

Every answer is read as a stream and whole, by the strategies that look for calls, with the same second answers; now and
then a try before it broke off, and another server is asked. No call may come twice, and both ways give the same calls.
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence

from gateway.answer.body import BodyExchange
from gateway.answer.stream import StreamExchange
from gateway.core.limits import Limits
from strategies.base import Prepared
from strategies.recovery import RecoveryStrategy
from strategies.xml_prompt import XmlPromptStrategy
from tests.gateway.answer.test_second_answer import prepared
from tests.properties.test_promises import FORMS, A, Answer, B, heard_in, of_message, pieces_of
from tests.support.chat import answer_body, chunks_of, numbered_ids

__all__ = ["check"]

_BROKEN = (
    "\n<read>\n<filePath>/a.py",
    "\n<read>\n<filePath>/a.py</filePath>\n<limit>many</limit>\n</read>",
    "\n<glob>\n</glob>",
    '\n<tool_call>\n{"name": "read", "arguments": {"filePath": }}\n</tool_call>',
)
_KINDS: tuple[Callable[[], Prepared], ...] = (
    lambda: prepared(XmlPromptStrategy()),
    lambda: prepared(XmlPromptStrategy(), parallel_tool_calls=True),
    lambda: prepared(XmlPromptStrategy(), tool_choice="required"),
    lambda: prepared(RecoveryStrategy()),
    lambda: prepared(RecoveryStrategy(), parallel_tool_calls=False),
)


def _second(rng: random.Random) -> bytes | None:
    """What asking again brings: a call in one form or in two, none, or nothing at all."""
    call = rng.choice((A, B))
    native = {"id": f"s{rng.randrange(9)}", "type": "function", "function": {"name": call[0], "arguments": call[1]}}
    text = f"Sorry.\n{FORMS[call]}"
    return rng.choice(
        (
            None,
            answer_body(text),
            answer_body(None, tool_calls=[native]),
            answer_body(text, tool_calls=[native]),
            answer_body(None, function_call=native["function"]),
            answer_body("I cannot."),
            answer_body(f"Sorry.{rng.choice(_BROKEN)}"),
        )
    )


def _streamed(parts: Sequence[bytes], how: Prepared, seconds: Iterator[bytes | None], asks: int) -> bytes:
    exchange = StreamExchange(how, make_id=numbered_ids(), limits=Limits(), asks=asks)
    out = b"".join(exchange.feed(part) for part in parts)
    while exchange.ask_again is not None:
        second = next(seconds, None)
        out += exchange.no_second_answer() if second is None else exchange.second_answer(second)
    return out + exchange.finish()


def _whole(body: bytes, how: Prepared, seconds: Iterator[bytes | None], asks: int) -> bytes:
    exchange = BodyExchange(how, make_id=numbered_ids(), limits=Limits(), asks=asks)
    out = exchange.transform(body)
    while exchange.ask_again is not None:
        second = next(seconds, None)
        out = exchange.no_second_answer() if second is None else exchange.second_answer(second)
    return out


def _other_try(how: Prepared, answer: Answer, rng: random.Random) -> None:
    """A try that broke off before anything could be seen: another server is asked, so nothing may have been given."""
    parts = answer.streamed[: rng.randrange(len(answer.streamed))]
    exchange = StreamExchange(how, make_id=numbered_ids(), limits=Limits(), asks=1)
    out = b"".join(exchange.feed(part) for part in parts)
    if not exchange.has_spoken:
        assert not any(field in out for field in (b'"tool_calls": [', b'"function_call": {')), answer.events


def check(seed: int) -> bool:
    """One order; raises where a call comes twice, or where a stream gives other calls. True if it was asked again."""
    rng = random.Random(f"once {seed}")
    is_broken = rng.random() < 0.5
    answer = Answer(seed, repeats=rng.random() < 0.8, behind=rng.choice(_BROKEN) if is_broken else "")
    how, asks = rng.choice(_KINDS)(), rng.choice((0, 1, 2))
    seconds = [_second(rng) for _ in range(asks)]
    if rng.random() < 0.2:
        _other_try(how, answer, rng)
    left, right = iter(seconds), iter(seconds)
    out = _streamed(list(pieces_of(b"".join(answer.streamed), seed)), how, left, asks)
    streamed = heard_in(out)[0]
    body = _whole(answer.body, how, right, asks)
    whole = of_message(body)[0]
    assert len({tuple(call) for call in streamed}) == len(streamed), ("twice", answer.events, streamed)
    assert len({tuple(call) for call in whole}) == len(whole), ("twice", answer.body, whole)
    said = {(name, json.dumps(json.loads(arguments))) for name, arguments in (A, B)}
    assert {tuple(call) for call in streamed} <= said, streamed
    assert streamed == whole, (answer.events, answer.finish_at, seconds, streamed, whole)
    text = "".join(
        choice["delta"].get("content") or "" for each in chunks_of(out) if each for choice in each["choices"]
    )
    assert text.strip() == (json.loads(body)["choices"][0]["message"]["content"] or "").strip(), (answer.events, text)
    return len(list(left)) < len(seconds)
