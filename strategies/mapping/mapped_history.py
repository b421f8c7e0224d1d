"""A client's past as the model would have made it: its calls translated, its results under the right ids.

A call is translated only if what it becomes leads back to the same call; every other stays as it is. Where one call of
the client is several of the model, or the other way round, the ids tell: the parts of `ID` are `ID`, `ID_2of3`,
`ID_3of3`. So nothing but the conversation itself is needed, and the same turn always looks the same. Linear.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from strategies.base import PART_ID, Refusal, part_id
from strategies.mapping.client_tools import Client
from strategies.mapping.operations import Operation
from strategies.mapping.surface import Surface
from strategies.schema.structured import arguments_of
from strategies.text.dumping import dumps

__all__ = ["translated"]

_SHARED = "This edit was made together with the one before it; the result stands there."

Message = dict[str, Any]


def translated(messages: Sequence[Message], surface: Surface, client: Client) -> list[Message]:
    """The same conversation for the model."""
    translation = _Translation(surface, client)
    for message in messages:
        translation.take(message)
    return translation.finish()


@frozen(kw_only=True)
class _Made:
    """What some calls of the client, usually one, become for the model."""

    ids: tuple[object, ...]
    names: tuple[str, ...]
    calls: tuple[Message, ...]


@define
class _Translation:
    surface: Surface
    client: Client
    _messages: list[Message] = field(factory=list, init=False)
    _results: list[Message] = field(factory=list, init=False)
    _made: dict[str, _Made] = field(factory=dict, init=False)
    """By the id of each of the client's calls in the last turn that held any."""

    def take(self, message: Message) -> None:
        if message.get("role") == "tool":
            self._results.append(message)
            return
        self._flush()
        calls = message.get("tool_calls")
        if message.get("role") == "assistant" and isinstance(calls, list) and calls:
            message = self._turn(message, calls)
        self._messages.append(message)

    def finish(self) -> list[Message]:
        self._flush()
        return self._messages

    # --- calls ---

    def _turn(self, message: Message, calls: list[Any]) -> Message:
        self._made = {}
        shown: list[Any] = []
        # Some clients make all ids of a turn the same.
        known = _usable_ids(calls)
        at, changed = 0, False
        while at < len(calls):
            size = _group_size(calls, at, known)
            made = self._together(calls[at : at + size]) if size > 1 else None
            if made is None:
                size = 1
                made = self._alone(calls[at], known)
            shown += [calls[at]] if made is None else made.calls
            if made is not None:
                changed = True
                self._made.update({one: made for one in made.ids if isinstance(one, str) and one in known})
            at += size
        return {**message, "tool_calls": shown} if changed else message

    def _alone(self, call: object, known: frozenset[str]) -> _Made | None:
        """One call of the client, which may be several of the model."""
        did = self._did(call)
        if did is None:
            return None
        written = self._written([did])
        if written is None or not isinstance(call, dict):
            return None
        # Its parts could not be told from those of another call with the same id.
        call_id = call.get("id")
        if len(written) > 1 and call_id not in known:
            return None
        return self._shown(call, (call_id,), (did[0],), written)

    def _together(self, calls: Sequence[Any]) -> _Made | None:
        """Several calls of the client that were one of the model."""
        done = [did for call in calls if (did := self._did(call)) is not None]
        if len(done) < len(calls):
            return None
        written = self._written(done)
        if written is None or len(written) != 1:
            return None
        return self._shown(calls[0], tuple(call["id"] for call in calls), tuple(name for name, _ in done), written)

    def _shown(
        self, call: Message, ids: tuple[object, ...], names: tuple[str, ...], written: Sequence[Mapping[str, Any]]
    ) -> _Made:
        count = len(written)
        function = {**call["function"], "name": self.surface.name}
        return _Made(
            ids=ids,
            names=names,
            calls=tuple(
                {
                    **call,
                    **({"id": part_id(str(call["id"]), number, count)} if count > 1 else {}),
                    "function": {**function, "arguments": dumps(arguments)},
                }
                for number, arguments in enumerate(written, 1)
            ),
        )

    def _did(self, call: Any) -> tuple[str, tuple[Operation, ...]] | None:
        """The tool of a call and what it did."""
        tool = self.client.called(call)
        arguments = arguments_of(call["function"].get("arguments")) if tool is not None else None
        if tool is None or arguments is None:
            return None
        operations = tool.read(arguments)
        return None if operations is None else (tool.tool.name, operations)

    def _written(self, done: Sequence[tuple[str, tuple[Operation, ...]]]) -> tuple[Mapping[str, Any], ...] | None:
        """The model's calls for this, if they lead back to exactly the client's."""
        written = self.surface.write([operation for _, operations in done for operation in operations])
        if written is None:
            return None
        again: list[Operation] = []
        for arguments in written:
            meant = self.surface.read(arguments)
            if isinstance(meant, Refusal):
                return None
            again += meant
        calls = self.client.calls(again)
        if isinstance(calls, Refusal):
            return None
        back = [(call.name, self.client.tools[call.name].read(call.arguments)) for call in calls]
        # What cannot be told both ways to the letter stays the client's own call, which the model can read as well.
        return written if back == list(done) else None

    # --- results ---

    def _flush(self) -> None:
        if not self._results:
            return
        self._messages.extend(self._answers(self._results))
        self._results, self._made = [], {}

    def _answers(self, results: Sequence[Message]) -> Iterator[Message]:
        given: dict[str, list[Message]] = {}
        for result in results:
            call_id = result.get("tool_call_id")
            if isinstance(call_id, str):
                given.setdefault(call_id, []).append(result)
        # A turn may bring several results for one call: they are told together.
        joined: set[str] = set()
        for result in results:
            call_id = result.get("tool_call_id")
            made = self._made.get(call_id) if isinstance(call_id, str) else None
            if made is None:
                yield result
            elif len(made.ids) == 1:
                yield from self._spread(result, made)
            elif made.calls[0]["id"] not in joined:
                joined.add(made.calls[0]["id"])
                yield self._joined(made, given)

    def _spread(self, result: Message, made: _Made) -> Iterator[Message]:
        """The result of one call, under the ids of all that it became."""
        result = self._named(result)
        yield result
        for call in made.calls[1:]:
            yield {**result, "tool_call_id": call["id"], "content": _SHARED}

    def _joined(self, made: _Made, given: Mapping[str, list[Message]]) -> Message:
        """The results of all calls that one became, as one."""
        parts: list[tuple[str, object]] = []
        for number, (call_id, name) in enumerate(zip(made.ids, made.names, strict=True), 1):
            for result in given.get(str(call_id), ()):
                parts.append((f"[{number} of {len(made.ids)}: {name}]", result.get("content")))
        first = next(result for call_id in made.ids for result in given.get(str(call_id), ()))
        return {**self._named(first), "tool_call_id": made.calls[0]["id"], "content": _content(parts)}

    def _named(self, result: Message) -> Message:
        return {**result, "name": self.surface.name} if "name" in result else result


def _content(parts: Sequence[tuple[str, object]]) -> str | list[Any]:
    if all(isinstance(content, str) for _, content in parts):
        return "\n\n".join(f"{heading}\n{content}" for heading, content in parts)
    pieces: list[Any] = []
    for heading, content in parts:
        pieces.append({"type": "text", "text": heading})
        if isinstance(content, list):
            pieces += content
        elif isinstance(content, str):
            pieces.append({"type": "text", "text": content})
    return pieces


def _usable_ids(calls: Sequence[Any]) -> frozenset[str]:
    """The ids that name exactly one call of the turn."""
    ids = [
        call_id for call in calls if isinstance(call, dict) and isinstance(call_id := call.get("id"), str) and call_id
    ]
    return frozenset(call_id for call_id, times in Counter(ids).items() if times == 1)


def _group_size(calls: Sequence[Any], at: int, known: frozenset[str]) -> int:
    """How many calls from here on were one: as many as the second says, if all are there in order."""
    call_id = _id(calls, at)
    second = PART_ID.fullmatch(_id(calls, at + 1) or "")
    if call_id not in known or second is None or second["base"] != call_id or second["number"] != "2":
        return 1
    count = int(second["count"])
    if count > len(calls) - at:
        return 1
    wanted = [part_id(call_id, number, count) for number in range(1, count + 1)]
    return count if [_id(calls, at + number) for number in range(count)] == wanted and known.issuperset(wanted) else 1


def _id(calls: Sequence[Any], at: int) -> str | None:
    call = calls[at] if at < len(calls) else None
    call_id = call.get("id") if isinstance(call, dict) else None
    return call_id if isinstance(call_id, str) and call_id else None
