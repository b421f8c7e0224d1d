"""How long events wait in the gateway: for each, how many later ones were read before it left, without a clock.

Run `python -m tests.bench.lateness [--way NAME] [FILE ...]` for the table: in percent the events that left only after
two or more later ones had been read, and how many later ones the latest of them waited for. Files are answers of your
own; without any, those of the tests are taken.
"""

import argparse
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from attrs import frozen

from gateway.answer.stream import StreamExchange
from gateway.core.limits import Limits
from gateway.wire.chat_request import ChatRequest, parse_request
from strategies.asking.renderers import RENDERERS
from strategies.base import Options, Prepared
from strategies.native import NativeStrategy
from strategies.recovery import RecoveryStrategy
from strategies.xml_prompt import XmlPromptStrategy
from strategies.xml_text import XmlTextStrategy
from tests.support.chat import answer_events, numbered_ids
from tests.support.golden import BARE, LINES, SAMPLES, SHORT
from tests.support.reading import AGENT_TOOLS
from tests.support.tag_clients import CLIENTS, tag_request

_TOKEN = re.compile(
    r"\n+|[ \t]+(?=[ \t])|[ \t]?[A-Za-z]+|[ \t]?[0-9]{1,3}|[ \t]?[^\w\s]|[ \t]|[\u4e00-\u9fff]{1,2}|\w|\s"
)
_BPE = re.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\w]?[^\W\d_]+|\d{1,3}| ?(?:[^\s\w]|_)+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How tokenizers of today cut a text before they look for pairs (https://github.com/openai/tiktoken/blob/main/tiktoken_ext/openai_public.py):
a sign may take the word behind it along, and a run of signs the line break."""
_LONG = 6
LINE = 24
"""No token has as many bytes: white space at the end of what is may leave behind its letters."""
_SAID = re.compile(r"[^\W_]|([`~*=_-])\1\1")
"""Nor is one a whole line with this in it, but for a mark of Markdown."""


def tokens(text: str) -> Iterator[str]:
    """As a tokenizer cuts: words with the blank before them, long ones in two, signs by themselves."""
    return _cut(_TOKEN, text)


def merged_tokens(text: str) -> Iterator[str]:
    """As one cuts that keeps signs together."""
    return _cut(_BPE, text)


def _cut(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    for found in pattern.finditer(text):
        token = found.group()
        if len(token.strip()) > _LONG and token.strip().isalpha():
            half = (len(token) + 1) // 2
            yield token[:half]
            yield token[half:]
        else:
            yield token


def words(text: str) -> Iterator[str]:
    """Words with the white space behind them."""
    yield from re.findall(r"\s+|\S+\s*", text)


def pieces_of_four(text: str) -> Iterator[str]:
    for at in range(0, len(text), 4):
        yield text[at : at + 4]


def lines(text: str) -> Iterator[str]:
    yield from text.splitlines(keepends=True)


def random_pieces(text: str) -> Iterator[str]:
    """Of one to twelve characters; the same text is cut in the same way each time."""
    rng = random.Random(len(text))
    at = 0
    while at < len(text):
        size = rng.randint(1, 12)
        yield text[at : at + size]
        at += size


CUTS: dict[str, Callable[[str], Iterator[str]]] = {
    "tokens": tokens,
    "merged": merged_tokens,
    "words": words,
    "four": pieces_of_four,
    "lines": lines,
    "characters": lambda text: iter(text),
    "random": random_pieces,
}


@frozen
class Bound:
    """What is allowed of one cut."""

    share: float
    """Of the events, late by two or more."""
    most: int
    """Later events that any one may wait for."""


BOUNDS = {
    "tokens": Bound(0.03, 12),
    "merged": Bound(0.03, 12),
    "words": Bound(0.03, 12),
    "four": Bound(0.08, 12),
    "lines": Bound(0.25, 6),
    "characters": Bound(0.25, 40),
    "random": Bound(0.08, 12),
}
SHORT_SHARES = {"code": 0.10, "json": 0.15}
"""In a short answer around a fence of this, cut as tokens or words."""
JSON_MOST = 60
"""Inside a fence of JSON, which may carry a call."""


def waits(how: Prepared, parts: Sequence[str]) -> list[int]:
    """For each event, how many later ones were read before it left; the bytes are checked to be the same.

    The white space at the end of a line may have left with the event behind it.
    """
    exchange = StreamExchange(how, make_id=numbered_ids(), limits=Limits(), asks=1)
    events = answer_events(parts)
    waited: list[int] = []
    sent = b""
    for number, data in enumerate(events):
        out = exchange.feed(data)
        sent += out
        waited += [number - at for at in range(len(waited), len(waited) + out.count(b"\n\n"))]
    sent += exchange.finish()
    if sent != b"".join(events):
        assert_blanks_moved(events, [each + b"\n\n" for each in sent.split(b"\n\n")[:-1]])
    assert len(waited) == len(events)
    assert exchange.facts.late_events == sum(each >= 2 for each in waited)
    return waited


def assert_blanks_moved(events: Sequence[bytes], told: Sequence[bytes]) -> None:
    """The events say the same, one by one, but for white space that some of them, which are lines, left to the one
    behind."""
    assert len(told) == len(events)
    moved, last = "", "\n"
    for one, other in zip(events, told, strict=True):
        if one == other and b'"content": ' not in one:
            continue
        (head, was, tail), (own_head, now, own_tail) = _parts_of(one), _parts_of(other)
        assert (head, tail) == (own_head, own_tail)
        whole = moved + was
        assert whole.startswith(now)
        moved = whole[len(now) :]
        if moved:
            is_line = "\n" in (last, whole[0]) and "\n" in moved and _SAID.search(now)
            assert moved.isspace()
            assert is_line or len(json.dumps(was)) >= LINE, "what is no line goes out as it came"
        last = was[-1:] or last
    assert not moved


def _parts_of(data: bytes) -> tuple[bytes, str, bytes]:
    """An event's bytes before its content, the content, and those behind it."""
    head, key, rest = data.partition(b'"content": ')
    text, size = json.JSONDecoder().raw_decode(rest.decode())
    return head + key, text, rest.decode()[size:].encode()


def share_late(waited: Sequence[int]) -> float:
    """The share of events that left only after two or more later ones had been read."""
    return sum(each >= 2 for each in waited) / len(waited)


def _request(model: str) -> ChatRequest:
    offered = [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
        }
        for tool in AGENT_TOOLS
    ]
    messages = [{"role": "user", "content": "Have a look at the project."}]
    body = {"model": model, "messages": messages, "tools": offered, "stream": True}
    return parse_request(json.dumps(body).encode())


@cache
def prompted(options: Options) -> Prepared:
    """As it is prepared for a model that only reads text."""
    return XmlPromptStrategy().prepare(_request("qwen3"), options)


def ways() -> dict[str, Prepared]:
    """Every strategy, with every dialect that a model can be asked for, as it prepares a request for its reading."""
    made = {f"native {model}": NativeStrategy().prepare(_request(model), Options()) for model in ("gpt-4o",)}
    for model in ("deepseek-chat", "gpt-oss-20b", "llama-3.3-70b"):
        made[f"recovery {model}"] = RecoveryStrategy().prepare(_request(model), Options())
    for dialect in RENDERERS:
        made[f"xml_prompt {dialect}"] = prompted(Options(dialect=dialect))
    made["xml_prompt incremental"] = prompted(Options(stream_arguments="incremental"))
    shell = Options(recovery_shell=True, min_confidence=80)
    made["recovery shell"] = RecoveryStrategy().prepare(_request("deepseek-chat"), shell)
    for client in CLIENTS:
        made[f"xml_text {client}"] = XmlTextStrategy().prepare(tag_request(client), Options(client=CLIENTS[client]))
    return made


WAYS = ("recovery deepseek-chat", "xml_prompt generic_xml", "xml_prompt incremental", "xml_text roo")


def answers() -> dict[str, tuple[str, ...]]:
    """The answers of the tests, by what they are."""
    return {
        **SAMPLES,
        **LINES,
        **{f"{kind}, bare": texts for kind, texts in BARE.items()},
        **{f"{kind}, short": texts for kind, texts in SHORT.items()},
    }


def table(way: str, texts: Mapping[str, tuple[str, ...]]) -> list[str]:
    """One line for each kind of answer."""
    how = ways()[way]
    lines = [f"{way:24}" + "".join(f"{cut:>14}" for cut in CUTS)]
    for kind, group in texts.items():
        cells = []
        for cut in CUTS.values():
            waited = [each for text in group for each in waits(how, list(cut(text)))]
            cells.append(f"{100 * share_late(waited):8.1f} % {max(waited):3}")
        lines.append(f"{kind:24}" + "".join(f"{cell:>14}" for cell in cells))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--way", choices=sorted(ways()), action="append")
    parser.add_argument("file", nargs="*", type=Path)
    asked = parser.parse_args()
    texts = {path.name: (path.read_text(),) for path in asked.file} or answers()
    for way in asked.way or WAYS:
        print("\n".join(table(way, texts)), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
