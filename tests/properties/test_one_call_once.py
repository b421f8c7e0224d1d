"""A call that one answer brings in several forms (text, `tool_calls`, `function_call`) is given once, in any order."""

import json
import random

import pytest

from tests.support.chat import DONE, HEAD, chunks_of, event, prepared, stream, whole

ORDERS = 600
A, B = ("read", '{"filePath":"/a.py"}'), ("glob", '{"pattern":"*"}')
WRITTEN = {
    A: "<read>\n<filePath>/a.py</filePath>\n</read>",
    B: "<glob>\n<pattern>*</pattern>\n</glob>",
}
SPACED = {A: '{ "filePath": "/a.py" }', B: '{"pattern": "\\u002a"}'}


class Answer:
    """An answer in which calls come in some forms, whole and in events of a random order."""

    def __init__(self, seed: int, *, repeats: bool, behind: str = "") -> None:
        rng = random.Random(seed)
        forms = {form: rng.sample((A, B), rng.randint(0, 2)) for form in ("text", "native")}
        forms["legacy"] = rng.sample((A, B), rng.randint(0, 1))
        if not repeats:
            forms["native"] = [call for call in forms["native"] if call not in forms["text"]]
            forms["legacy"] = [call for call in forms["legacy"] if call not in forms["text"] + forms["native"]]
        words = rng.choice(("", "Let me look.\n", "Well\n\n"))
        self.content = words + "\n".join(WRITTEN[call] for call in forms["text"]) + rng.choice(("", "\n", "\nDone."))
        self.content += behind
        self.native = [_native(at, call, rng) for at, call in enumerate(forms["native"])]
        self.legacy = [
            {"name": name, "arguments": rng.choice((told, SPACED[name, told]))} for name, told in forms["legacy"]
        ]
        lines = [
            [{"content": piece} for piece in _cut(self.content, rng)],
            [{"tool_calls": [delta]} for call in self.native for delta in _deltas(call, rng)],
            [{"function_call": delta} for call in self.legacy for delta in _pieces(call, rng)],
        ]
        self.reason = rng.choice(("stop", "tool_calls", "function_call"))
        self.events = list(_woven(lines, rng))
        last_text = max((at for at, delta in enumerate(self.events) if "content" in delta), default=-1)
        self.finish_at = rng.randint(last_text + 1, len(self.events)) if rng.random() < 0.5 else len(self.events)
        self.said = {call for calls in forms.values() for call in calls}

    @property
    def streamed(self) -> list[bytes]:
        sent = [event(delta) for delta in self.events]
        end = [event({}, self.reason)]
        if self.is_short:
            end = [event(self.events[-1], self.reason)]
            sent.pop()
        return [event({"role": "assistant"}), *sent[: self.finish_at], *end, *sent[self.finish_at :], DONE]

    @property
    def is_short(self) -> bool:
        """The last event brings the finish, too."""
        return bool(self.events) and self.finish_at == len(self.events) and len(self.events) % 3 == 0

    @property
    def body(self) -> bytes:
        message: dict[str, object] = {"role": "assistant", "content": self.content or None}
        if self.native:
            message["tool_calls"] = [
                {key: value for key, value in call.items() if key != "index"} for call in self.native
            ]
        if self.legacy:
            message["function_call"] = self.legacy[0]
        return json.dumps(
            {**HEAD, "choices": [{"index": 0, "message": message, "finish_reason": self.reason}]}
        ).encode()


def _native(at, call, rng):
    arguments = rng.choice((call[1], SPACED[call]))
    return {"index": at, "id": f"n{at}", "type": "function", "function": {"name": call[0], "arguments": arguments}}


def _deltas(call, rng):
    if rng.random() < 0.4:
        return [call]
    arguments = call["function"]["arguments"]
    cut = rng.randint(0, len(arguments))
    first = {**call, "function": {**call["function"], "arguments": arguments[:cut]}}
    return [first, {"index": call["index"], "function": {"arguments": arguments[cut:]}}]


def _pieces(call, rng):
    cut = rng.randint(0, len(call["arguments"]))
    return rng.choice(
        ([call], [{**call, "arguments": call["arguments"][:cut]}, {"arguments": call["arguments"][cut:]}])
    )


def _cut(text, rng):
    pieces = []
    while text:
        size = rng.choice((3, 9, 30, 200))
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def _woven(lines, rng):
    """One event of one line after the other, each line in its own order; now and then two of them in one event."""
    lines = [line[:] for line in lines if line]
    while lines:
        line = rng.choice(lines)
        delta = dict(line.pop(0))
        other = rng.choice(lines)
        if other is not line and other and rng.random() < 0.2:
            delta.update(other.pop(0))
        lines = [left for left in lines if left]
        yield delta


def _canonical(calls):
    return sorted((name, json.dumps(json.loads(arguments))) for name, arguments in calls)


def heard_in(out):
    """The calls that a client gets, whatever it does with a finish reason, and whether their indexes are in order."""
    calls: list[list[str]] = []
    legacy, finishes = ["", ""], []
    for chunk in chunks_of(out):
        for choice in chunk["choices"] if chunk else ():
            delta = choice["delta"]
            for call in delta.get("tool_calls") or ():
                if call["index"] == len(calls):
                    calls.append([call["function"]["name"], "", call["id"]])
                assert call["index"] < len(calls)
                assert call.get("id", calls[call["index"]][2]) == calls[call["index"]][2]
                calls[call["index"]][1] += call["function"].get("arguments") or ""
            if piece := delta.get("function_call"):
                legacy = [legacy[0] + (piece.get("name") or ""), legacy[1] + (piece.get("arguments") or "")]
            finishes += [choice["finish_reason"]] if choice["finish_reason"] else []
    assert len({call[2] for call in calls}) == len(calls)
    return _canonical([(name, told) for name, told, _ in calls] + ([legacy] if legacy[0] else [])), finishes


def of_message(body):
    choice = json.loads(body)["choices"][0]
    message = choice["message"]
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    functions += [message["function_call"]] if message.get("function_call") else []
    return _canonical((function["name"], function["arguments"]) for function in functions), [choice["finish_reason"]]


def pieces_of(data, seed):
    rng = random.Random(seed)
    while data:
        size = rng.choice((40, 300, 3000))
        yield data[:size]
        data = data[size:]


@pytest.mark.parametrize("wait", [False, True], ids=["xml_prompt", "recovery"])
@pytest.mark.parametrize("arguments", ["buffered", "incremental"])
def test_no_call_is_given_twice_and_streamed_is_whole(wait, arguments):
    how = prepared(wait=wait, stream_arguments=arguments)
    for seed in range(ORDERS):
        answer = Answer(seed, repeats=True)
        out, exchange = stream(pieces_of(b"".join(answer.streamed), seed), how)
        (streamed, finishes), (told, reasons) = heard_in(out), of_message(whole(answer.body, how)[0])
        assert streamed == told, (seed, answer.events)
        assert len({tuple(call) for call in streamed}) == len(streamed), (seed, answer.events)
        assert exchange.facts.failure is None
        if not wait:
            assert set(streamed) == set(_canonical(answer.said)), (seed, answer.events)
        if answer.finish_at == len(answer.events):
            assert finishes == reasons, (seed, answer.events)


@pytest.mark.parametrize("wait", [False, True], ids=["xml_prompt", "recovery"])
def test_calls_that_differ_are_all_given(wait):
    how = prepared(wait=wait)
    for seed in range(ORDERS):
        answer = Answer(seed, repeats=False)
        out, exchange = stream(answer.streamed, how)
        streamed, told = heard_in(out)[0], of_message(whole(answer.body, how)[0])[0]
        assert streamed == told, (seed, answer.events)
        assert "call_repeated" not in exchange.facts.mended
        assert "repeated" not in exchange.facts.dropped


def test_structured_calls_alone_go_through_as_they_came():
    how = prepared(wait=True)
    for seed in range(ORDERS):
        answer = Answer(seed, repeats=False)
        is_plain = "<" not in answer.content and answer.finish_at == len(answer.events)
        if is_plain and answer.reason == ("tool_calls" if answer.native else "function_call"):
            data = b"".join(answer.streamed)
            assert stream([data], how)[0] == data
            assert whole(answer.body, how)[0] == answer.body
