"""What a model says in one turn, in no wire's words, and whole conversations made of such turns."""

import base64
import json
import random
from collections.abc import Iterator
from typing import Any

from attrs import field, frozen

PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(16)).decode()
READ = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Reads a file.",
        "parameters": {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "range": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
                "mode": {"const": "text"},
            },
            "required": ["path"],
            "additionalProperties": False,
        },
    },
}
RUN = {
    "type": "function",
    "function": {
        "name": "run",
        "parameters": {
            "type": "object",
            "$defs": {"env": {"type": "object", "additionalProperties": {"type": "string"}}},
            "properties": {
                "command": {"type": "string"},
                "env": {"$ref": "#/$defs/env"},
                "timeout": {"type": ["integer", "null"], "exclusiveMinimum": 0},
            },
            "required": ["command", "timeout"],
        },
    },
}
PING = {"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}
TOOLS = [READ, RUN, PING]
WORDS = (
    "read",
    "the",
    "file",
    "naïve",
    "日本語",
    "🙂",
    "a\nb",
    "  indented",
    "<tag>",
    '"quoted"',
    "\\n",
    "\u2028",
    "end.",
)


@frozen
class Call:
    """A call in an answer."""

    id: str
    name: str
    arguments: dict[str, Any]


@frozen(kw_only=True)
class Turn:
    """One answer of a model."""

    text: str = ""
    thought: str = ""
    signature: str = ""
    calls: tuple[Call, ...] = ()
    end: str = "stop"
    """stop, length or content_filter."""
    fresh: int = 7
    """Input tokens that were not in the cache."""
    cached: int = 0
    output: int = 11
    thinking: int = 0
    """How many tokens of the output were thought."""

    @property
    def finish_reason(self) -> str:
        return "tool_calls" if self.calls and self.end == "stop" else self.end

    def message(self) -> dict[str, Any]:
        """The message that an OpenAI client should get, arguments decoded."""
        told: dict[str, Any] = {"role": "assistant", "content": self.text or (None if self.calls else "")}
        if self.thought:
            told["reasoning_content"] = self.thought
        if self.calls:
            told["tool_calls"] = [[call.id, call.name, call.arguments] for call in self.calls]
        return told


@frozen(kw_only=True)
class Exchange:
    """What a client adds to its conversation, and what the model then says."""

    news: tuple[dict[str, Any], ...]
    turn: Turn
    fields: dict[str, Any] = field(factory=dict)
    """More fields of the request."""


def split(text: str, rng: random.Random) -> list[str]:
    """The text in pieces of its own length."""
    pieces = []
    while text:
        size = rng.randint(1, 9)
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def _prose(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(words)) + "."


def _arguments(name: str, rng: random.Random) -> dict[str, Any]:
    if name == "ping":
        return {}
    if name == "read_file":
        return {"path": _prose(rng, 2), **({"range": [1, rng.randint(2, 9)]} if rng.random() < 0.5 else {})}
    return {
        "command": _prose(rng, 4),
        "timeout": rng.randint(1, 90),
        "env": {"A": "ü", "deep": "x" * rng.randint(0, 40)},
    }


def _turn(rng: random.Random, number: str, *, may_call: bool, is_last: bool) -> Turn:
    calls: tuple[Call, ...] = ()
    if may_call and not is_last:
        names = [rng.choice(("read_file", "run", "ping")) for _ in range(rng.choice((1, 1, 2, 3)))]
        calls = tuple(Call(f"toolu_{number}_{i}", name, _arguments(name, rng)) for i, name in enumerate(names))
    thinks = rng.random() < 0.5
    text = "" if calls and rng.random() < 0.4 else _prose(rng, rng.randint(1, 12))
    end = rng.choice(("stop", "stop", "length", "content_filter")) if is_last else "stop"
    return Turn(
        text=text,
        thought=_prose(rng, 5) if thinks else "",
        signature=base64.b64encode(f"signed {number}".encode()).decode() if thinks else "",
        calls=calls,
        end=end,
        fresh=rng.randint(1, 500),
        cached=rng.choice((0, 300)),
        output=rng.randint(20, 90),
        thinking=rng.randint(1, 19) if thinks else 0,
    )


def _question(rng: random.Random) -> dict[str, Any]:
    text = _prose(rng, 6)
    roll = rng.random()
    if roll < 0.6:
        return {"role": "user", "content": text}
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}]
    if roll < 0.8:
        parts.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}})
    else:
        parts.append({"type": "image_url", "image_url": {"url": "https://example.com/picture.png"}})
    return {"role": "user", "content": parts}


def _result(call: Call, rng: random.Random) -> dict[str, Any]:
    roll = rng.random()
    content: Any = _prose(rng, 8)
    if roll < 0.2:
        content = ""
    elif roll < 0.4:
        content = json.dumps({"error": "no such file", "path": "ü"})
    elif roll < 0.5:
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}
        content = [{"type": "text", "text": "seen"}, picture]
    return {"role": "tool", "tool_call_id": call.id, "content": content}


def conversation(seed: int, *, with_calls: bool = True) -> list[Exchange]:
    """A conversation of some turns, the same for the same seed."""
    rng = random.Random(seed)
    turns = rng.randint(1, 4)
    may_call = with_calls and rng.random() < 0.8
    news: list[dict[str, Any]] = []
    if rng.random() < 0.8:
        news.append({"role": rng.choice(("system", "developer")), "content": _prose(rng, 5)})
    news.append(_question(rng))
    fields: dict[str, Any] = {}
    if rng.random() < 0.5:
        fields["reasoning_effort"] = rng.choice(("low", "medium", "high"))
    if may_call:
        fields["tools"] = TOOLS
    fields.update(rng.choice(({}, {"temperature": 1.3}, {"max_tokens": 4000, "stop": ["END"]}, {"top_p": 0.9})))
    exchanges = []
    for number in range(turns):
        turn = _turn(rng, f"{seed}_{number}", may_call=may_call, is_last=number == turns - 1)
        exchanges.append(Exchange(news=tuple(news), turn=turn, fields=fields))
        news = [_result(call, rng) for call in turn.calls]
        rng.shuffle(news)
        if not news or rng.random() < 0.2:
            news.append(_question(rng))
    return exchanges


def conversations(count: int, *, with_calls: bool = True) -> Iterator[list[Exchange]]:
    """Many conversations."""
    return (conversation(seed, with_calls=with_calls) for seed in range(count))
