"""JSON that one parser takes and another does not, to be put anywhere into what is good."""

import json
import random
from collections.abc import Iterator
from typing import Any

__all__ = ["HOSTILE", "drawn", "places", "with_value"]

_MARK = "\ufffchere\ufffc"

HOSTILE = {
    "infinite": b"1e999",
    "infinite_below": b"-1e400",
    "tiny": b"1e-999",
    "long": b"1" * 25,
    "digits": b"9" * 5000,
    "nan": b"NaN",
    "infinity": b"-Infinity",
    "half": b'"a \\ud83d b"',
    "halves": b'"\\ude00\\ud83d"',
    "no_utf8": b'"\xff"',
    "deep": b"[" * 900 + b"]" * 900,
    "deeper": b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
    "doubled": b'{"name":"a","name":"b","index":0,"index":1e999}',
    "beside": b'{"filePath":"/a.py","x":1e999}',
    "nul": b'"\\u0000"',
    "list": b"[1e999,{}]",
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value in it, and to a further key of every object."""
    yield path
    children: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*path, key))
    if isinstance(value, dict):
        yield (*path, "unheard_of")


def with_value(value: Any, path: tuple[Any, ...], hostile: bytes) -> bytes:
    """The JSON with this in the place at the end of the way."""
    return json.dumps(_put(value, path)).encode().replace(json.dumps(_MARK).encode(), hostile)


def _put(value: Any, path: tuple[Any, ...]) -> Any:
    if not path:
        return _MARK
    if isinstance(value, list):
        return [_put(each, path[1:]) if at == path[0] else each for at, each in enumerate(value)]
    return {**value, path[0]: _put(value.get(path[0]), path[1:])}


def drawn(values: list[Any], seed: int) -> Iterator[tuple[int, bytes]]:
    """For ever: the number of one of the values, and it with something hostile in one place of it."""
    rng = random.Random(seed)
    found = [list(places(value))[1:] for value in values]
    while True:
        at = rng.randrange(len(values))
        yield at, with_value(values[at], rng.choice(found[at]), HOSTILE[rng.choice(sorted(HOSTILE))])
