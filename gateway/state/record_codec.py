"""Records as JSON and back, in a way that outlives the version that wrote them.

Fields that this version does not know are ignored, missing ones take their defaults, and what cannot be read at all
is left out: while a new version replaces an old one, both read what the other wrote.
"""

import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec
from attrs import evolve
from msgspec import Struct

from gateway.core.ports import BadRecord
from gateway.core.records import RECORDS, DecisionRecord, Record, RequestRecord

__all__ = ["KINDS", "Packed", "kind_of", "pack", "unpack", "view_of"]

R = TypeVar("R", bound=Record)
V = TypeVar("V")

KINDS = tuple(RECORDS)
_NAMES: dict[type[Any], str] = {kind: name for name, kind in RECORDS.items()}
_DECODERS: dict[type[Any], msgspec.json.Decoder[Any]] = {kind: msgspec.json.Decoder(kind) for kind in _NAMES}
_VIEWS: dict[type[Any], msgspec.json.Decoder[Any]] = {}
_ENCODER = msgspec.json.Encoder()
_MAX_DEPTH = 16


class Packed(Struct, frozen=True, kw_only=True):
    """One record as it is stored, and what it is found by."""

    kind: str
    at: float
    completion_id: str | None
    body: bytes
    record: Record


def kind_of(kind: type[Any]) -> str:
    """The name that records of this class are kept under."""
    return _NAMES[kind]


def pack(records: Iterable[Record]) -> Sequence[Packed]:
    """The records as they are stored; `BadRecord` if one of them cannot be."""
    return [_packed(record) for record in records]


def unpack(kind: type[R], body: bytes | str) -> R | None:
    """The record, or nothing if this version cannot read it."""
    try:
        record: R = _DECODERS[kind].decode(body)
    except (ValueError, RecursionError):  # msgspec's own errors are ValueErrors
        return None
    return record


def view_of(view: type[V], body: bytes | str) -> V | None:
    """Some fields of a record, or nothing if this version cannot read them."""
    decoder = _DECODERS.get(view) or _VIEWS.setdefault(view, msgspec.json.Decoder(view))
    try:
        found: V = decoder.decode(body)
    except (ValueError, RecursionError):
        return None
    return found


def _packed(record: Record) -> Packed:
    if type(record) not in _NAMES or not math.isfinite(record.at):
        raise BadRecord("no record, or one without a time")
    if isinstance(record, DecisionRecord):
        record = evolve(record, numbers=_finite(record.numbers.items()))
    try:
        return _encoded(record)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadRecord("a record cannot be encoded") from error


def _encoded(record: Record) -> Packed:
    try:
        body = _ENCODER.encode(record)
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON text of a model may hold
        record = msgspec.convert(_sayable(msgspec.to_builtins(record)), type(record))
        body = _ENCODER.encode(record)
    completion_id = record.completion_id if isinstance(record, RequestRecord) else None
    return Packed(kind=_NAMES[type(record)], at=record.at, completion_id=completion_id, body=body, record=record)


def _finite(numbers: Iterable[tuple[str, float]]) -> dict[str, float]:
    """JSON knows no infinity: the largest number stands for it."""
    largest = sys.float_info.max
    return {name: max(-largest, min(largest, value)) for name, value in numbers if not math.isnan(value)}


def _sayable(value: Any, depth: int = 0) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if depth >= _MAX_DEPTH:
        return value
    if isinstance(value, dict):
        return {_sayable(key, depth + 1): _sayable(one, depth + 1) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_sayable(one, depth + 1) for one in value]
    return value
