"""What answers come to on the wire, one line a group: to lay the bytes of two versions of the gateway side by side.

Run `python -m tests.bench.wire > before` in one version, the same in the other, and compare the two files: a line
holds the name of a group, how many answers it has and a digest of everything that came out of them, bytes and facts.
With `--each` a line stands for one answer, so that the first one that differs is found. With `--bytes` the bytes alone
count, whichever read brought them: that is for a change which only lets them go earlier. The answers are the golden
cases and others, woven with whatever servers send beside text, cut into events, and these into reads, as chance wants;
chance is the same in every run.
"""

import argparse
import json
import random
from collections.abc import Iterator
from datetime import date
from functools import cache
from hashlib import blake2b
from typing import Any

from msgspec.structs import asdict, replace

from gateway.answer.body import BodyExchange
from gateway.answer.facts import Facts
from gateway.answer.stream import StreamExchange
from gateway.answer.watch import WatchedBody, WatchedStream, WatchTerms
from gateway.core.errors import GatewayError, UpstreamDisconnected
from gateway.core.limits import Limits
from strategies.base import Options, Prepared, Shape
from strategies.dialects.rows import TABLE
from strategies.mapping.answers import mapped
from strategies.native import NativeStrategy
from strategies.recovery import RecoveryStrategy
from strategies.xml_prompt import XmlPromptStrategy
from tests.bench.lateness import CUTS, ways
from tests.support.chat import answer_body, numbered_ids
from tests.support.edit_tools import CLIENTS
from tests.support.golden import SAMPLES, cases

_NOISE = (
    *(
        "<",
        "</",
        "`",
        "``",
        "```\n",
        "```json\n",
        "\n",
        "\n\n",
        " ",
        "   ",
        "a < b",
        "<read>",
        "</read>",
        "<think>",
        "{",
    ),
    *(
        "</think>",
        '{"name": ',
        "Größe",
        "\U0001f600",
        "\u2028",
        "\\",
        '"',
        "\x00",
        "> ",
        "for example:\n",
        "an",
        "other",
    ),
    *(
        "f",
        "ound",
        "functions.",
        "~~~\n",
        "<|im_end|>",
        "[TOOL_CALLS]",
        "\t",
        "\r\n",
        "Thought: ",
        "Action: ",
        "<tool_call>",
    ),
)
_SECONDS = (
    answer_body("<read>\n<filePath>/a.py</filePath>\n</read>"),
    answer_body("Sorry, I cannot."),
    answer_body(
        None,
        "tool_calls",
        tool_calls=[{"id": "n", "type": "function", "function": {"name": "read", "arguments": '{"filePath": "/b"}'}}],
    ),
    b"no answer",
    None,
)


@cache
def _hows() -> tuple[Prepared, ...]:
    made = list(ways().values())
    reading = [each for each in made if each.make_reader is not None]
    shapes = [
        Shape(first_only=first, keep_trailing=keep, wait_for_finish=wait)
        for first in (True, False)
        for keep in (True, False)
        for wait in (True, False)
    ]
    made += [replace(reading[at % len(reading)], shape=shape) for at, shape in enumerate(shapes)]
    for mapping in ("claude_text_editor", "apply_patch"):
        work = CLIENTS["kilo"].mapped(mapping)
        for strategy in (NativeStrategy(), XmlPromptStrategy(), RecoveryStrategy()):
            made.append(mapped(strategy.prepare(work.request, Options()), work, one_at_a_time=False))
    return tuple(made)


def _texts(rng: random.Random) -> Iterator[str]:
    examples = [row.example for row in TABLE if row.example]
    while True:
        yield "".join(rng.choice((*_NOISE, *_NOISE, *examples)) for _ in range(rng.randint(0, 12)))


def _cut(text: str, rng: random.Random) -> list[str]:
    name = rng.choice((*CUTS, "whole", "hostile"))
    if name == "whole":
        return [text] if text else []
    if name != "hostile":
        return list(CUTS[name](text))
    at, parts = 0, []
    while at < len(text):
        size = rng.choice((1, 1, 2, 3, 5, 8, 40, 400))
        parts.append(text[at : at + size])
        at += size
    return parts


def _encoded(chunk: dict[str, Any], rng: random.Random, style: int | None = None) -> bytes:
    """As servers in several languages write it."""
    match rng.randrange(8) if style is None else style:
        case 0:
            data = json.dumps(chunk)
        case 1:
            data = json.dumps(chunk, ensure_ascii=False, separators=(",", ":"))
        case 2:
            data = json.dumps(chunk).replace("<", "\\u003c").replace(">", "\\u003E")
        case _:
            data = json.dumps(chunk, ensure_ascii=False)
    return data.encode("utf-8", "surrogatepass")


def _calls(rng: random.Random) -> list[dict[str, Any]]:
    """Pieces of structured calls, rightly and wrongly told."""
    deltas: list[dict[str, Any]] = []
    for number in range(rng.choice((0, 0, 0, 0, 1, 1, 2))):
        name, arguments = rng.choice((("read", '{"filePath":"/a.py"}'), ("glob", '{"pattern": "*"}'), ("list", "")))
        first: dict[str, Any] = {
            "index": rng.choice((number, 0)),
            "id": rng.choice((f"n{number}", "", None)),
            "type": "function",
        }
        if rng.random() < 0.2:
            del first["index"]
        if rng.random() < 0.2:
            deltas.append({"function_call": {"name": name, "arguments": arguments}})
            continue
        cut = rng.randint(0, len(arguments))
        again = {"name": name} if rng.random() < 0.3 else {}
        deltas.append({"tool_calls": [{**first, "function": {"name": name, "arguments": arguments[:cut]}}]})
        deltas.append(
            {"tool_calls": [{"index": first.get("index", 0), "function": {**again, "arguments": arguments[cut:]}}]}
        )
    return deltas


def hostile_stream(text: str, rng: random.Random, *, plain: bool, style: int | None = None) -> bytes:
    """A streamed answer as it might come; `plain` without calls, `style` from a server that writes all events alike."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    stamped = rng.random() < 0.15
    lines = [[{"content": part} for part in _cut(text, rng)]]
    if not plain:
        lines.append(_calls(rng))
        if rng.random() < 0.15:
            lines.append([{rng.choice(("reasoning_content", "reasoning")): part} for part in ("let me ", "think")])
    deltas: list[dict[str, Any]] = []
    while any(lines):
        line = rng.choice([line for line in lines if line])
        take = rng.choice((1, len(line)))
        deltas += line[:take]
        del line[:take]
    finish = rng.choice(("stop", "stop", "stop", "stop", "tool_calls", "length", "function_call", None))
    end = b"\n\n" if plain or rng.random() < 0.9 else rng.choice((b"\r\n\r\n", b"\r\r"))
    several = not plain and rng.random() < 0.1
    deltas.insert(0, rng.choice(({"role": "assistant", "content": ""}, {"role": "assistant"}, {})))
    reasons: list[str | None] = [None] * len(deltas)
    if finish is not None:
        if rng.random() < 0.2:
            reasons[-1] = finish
        else:
            deltas.append({})
            reasons.append(finish)
            if not plain and rng.random() < 0.1:
                at = rng.randint(1, len(deltas))
                deltas.insert(at, deltas.pop())
                reasons.insert(at, reasons.pop())
    out = []
    for at, (delta, reason) in enumerate(zip(deltas, reasons, strict=True)):
        chunk: dict[str, Any] = {
            **head,
            "choices": [{"index": rng.choice((0, 1)) if several else 0, "delta": delta, "finish_reason": reason}],
        }
        if stamped:
            chunk["created"] = at
        if not plain and rng.random() < 0.03:
            chunk["choices"].append({"index": 1, "delta": {"content": "other"}, "finish_reason": None})
        if reason and rng.random() < 0.3:
            chunk["usage"] = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
        out.append(b"data: " + _encoded(chunk, rng, style) + end)
        if not plain and rng.random() < 0.02:
            out.append(
                rng.choice(
                    (
                        b": comment\n\n",
                        b"event: ping\n\n",
                        b"data: {}\n\n",
                        b"data: 1\n\n",
                        b'data: {"error": {"message": "no"}}\n\n',
                        b"data: {\n\n",
                        b"\n",
                    )
                )
            )
    if rng.random() < 0.2:
        out.append(
            b"data: "
            + _encoded(
                {**head, "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}}, rng
            )
            + end
        )
    out += [b"data: [DONE]" + end] if rng.random() < 0.9 else []
    return b"".join(out)


def _reads(data: bytes, rng: random.Random) -> Iterator[bytes]:
    sizes = rng.choice(((1, 2, 7, 64, 500, 4000), (200,), (1 << 30,), (30, 3000)))
    while data:
        size = rng.choice(sizes)
        yield data[:size]
        data = data[size:]


def _seconds(exchange: StreamExchange | BodyExchange, rng: random.Random) -> Iterator[bytes]:
    while (wanted := exchange.ask_again) is not None:
        yield wanted.reason.encode() + wanted.body()
        second = rng.choice(_SECONDS)
        yield exchange.no_second_answer() if second is None else exchange.second_answer(second)


def _told(facts: Facts) -> bytes:
    """All facts but what depends on nothing that the client sees."""
    return repr(asdict(facts)).encode("utf-8", "surrogatepass")


def _streamed(how: Prepared, data: bytes, rng: random.Random) -> Iterator[bytes]:
    exchange = StreamExchange(
        how, make_id=numbered_ids(), limits=Limits(), asks=rng.choice((0, 1, 2)), keep_text=rng.random() < 0.5
    )
    error: GatewayError | None = UpstreamDisconnected("gone") if rng.random() < 0.1 else None
    try:
        for read in _reads(data, rng):
            yield exchange.feed(read)
        if error is None:
            yield from _seconds(exchange, rng)
    except GatewayError as fault:
        error = fault
    yield exchange.finish(error)
    yield _told(exchange.facts)


def _whole(how: Prepared, text: str, rng: random.Random) -> Iterator[bytes]:
    calls = [call for delta in _calls(rng) for call in delta.get("tool_calls", ()) if "id" in call]
    more: dict[str, Any] = {"tool_calls": calls} if calls else {}
    if rng.random() < 0.05:
        more["function_call"] = {"name": "read", "arguments": '{"filePath":"/a.py"}'}
    if rng.random() < 0.1:
        more["reasoning_content"] = "so"
    finish = rng.choice(("stop", "stop", "stop", "length", "tool_calls"))
    body = answer_body(text or rng.choice((None, "")), finish, **more)
    exchange = BodyExchange(
        how, make_id=numbered_ids(), limits=Limits(), asks=rng.choice((0, 1, 2)), keep_text=rng.random() < 0.5
    )
    try:
        yield exchange.transform(body)
        yield from _seconds(exchange, rng)
    except GatewayError as fault:
        yield repr(fault).encode()
    yield _told(exchange.facts)


def _watched(how: Prepared, data: bytes, text: str, rng: random.Random) -> Iterator[bytes]:
    terms = WatchTerms(prepared=how, clock=lambda: 0.0, budget_s=1.0, today=date(2026, 1, 1))
    stream = WatchedStream(terms)
    for read in _reads(data, rng):
        yield stream.feed(read)
    yield stream.finish()
    yield repr(stream.verdict).encode() + _told(stream.facts) + repr(stream.noise()).encode()
    body = WatchedBody(terms)
    yield body.transform(answer_body(text))
    yield repr(body.verdict).encode() + _told(body.facts)


def answers(count: int, *, bytes_alone: bool = False) -> Iterator[tuple[str, bytes]]:
    """The name of a group, and what one of its answers came to."""

    def told(pieces: Iterator[bytes]) -> bytes:
        return b"".join([*pieces][:-1]) if bytes_alone else b"\0".join(pieces)

    hows = _hows()
    for number, case in enumerate(cases()):
        for at in range(3):
            rng = random.Random(f"golden {number} {at}")
            how = hows[(number + 7 * at) % len(hows)]
            yield "golden, streamed", told(_streamed(how, hostile_stream(case.text, rng, plain=at < 2), rng))
            yield "golden, whole", told(_whole(how, case.text, rng))
    for number in range(count):
        rng = random.Random(f"scripted {number}")
        text = rng.choice(rng.choice(tuple(SAMPLES.values())))[: rng.choice((300, 2000))] + next(_texts(rng))
        how = rng.choice(hows)
        yield "scripted, streamed", told(_streamed(how, hostile_stream(text, rng, plain=number % 2 == 0), rng))
    for number in range(4 * count):
        rng = random.Random(f"fuzzed {number}")
        text, how = next(_texts(rng)), rng.choice(hows)
        yield "fuzzed, streamed", told(_streamed(how, hostile_stream(text, rng, plain=number % 3 == 0), rng))
        yield "fuzzed, whole", told(_whole(how, text, rng))
        if number % 4 == 0:
            yield "fuzzed, watched", b"\0".join(_watched(how, hostile_stream(text, rng, plain=False), text, rng))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="how many scripted streams; four times as many fuzzed")
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--bytes", action="store_true")
    asked = parser.parse_args()
    digests: dict[str, Any] = {}
    sizes: dict[str, int] = {}
    for group, told in answers(asked.count, bytes_alone=asked.bytes):
        digests.setdefault(group, blake2b(digest_size=16)).update(told)
        sizes[group] = sizes.get(group, 0) + 1
        if asked.each:
            print(f"{group} {sizes[group]} {blake2b(told, digest_size=8).hexdigest()}")
    for group, digest in digests.items():
        print(f"{group:20} {sizes[group]:7} {digest.hexdigest()}")


if __name__ == "__main__":
    main()
