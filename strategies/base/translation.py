"""What a call of one tool becomes where the client has others: calls of its own, or a refusal."""

import re

from attrs import frozen

__all__ = ["PART_ID", "CallBack", "Refusal", "base_id", "part_id"]

PART_ID = re.compile(r"(?P<base>.+)_(?P<number>[1-9][0-9]{0,3})of(?P<count>[1-9][0-9]{0,3})", re.DOTALL)


@frozen
class Refusal:
    """Why a call cannot be said exactly with the client's tools, in words its writer can act on."""

    text: str


@frozen(kw_only=True)
class CallBack:
    """One call of a client's tool, of the `count` that a call of the model became."""

    name: str
    arguments: str
    number: int = 1
    count: int = 1

    def id(self, call_id: str) -> str:
        """Its id, from the one that the model's call has or would have had."""
        return part_id(call_id, self.number, self.count)


def part_id(call_id: str, number: int, count: int) -> str:
    """The id of one of `count` calls that are one call elsewhere; the first keeps its id."""
    return call_id if number == 1 else f"{call_id}_{number}of{count}"


def base_id(call_id: str) -> str:
    """The id of the call that this one is a part of; its own, if of none."""
    part = PART_ID.fullmatch(call_id)
    return part["base"] if part is not None else call_id
