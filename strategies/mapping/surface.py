"""What a mapping is made of: the model's tool on one side, the client's tools on the other."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gateway.core.tools import Tool
from strategies.base import Refusal
from strategies.mapping.client_tools import Client
from strategies.mapping.operations import Operation

__all__ = ["Surface"]


class Surface(Protocol):
    """The one tool that a model was trained on, in place of several of the client's."""

    @property
    def name(self) -> str: ...

    @property
    def does(self) -> frozenset[type[Operation]]:
        """What the model's tool can do; the client's tools for it are not shown."""
        ...

    def tool(self, client: Client) -> Tool:
        """The tool as the model is shown it: what this client can do, and nothing else."""
        ...

    def read(self, arguments: Mapping[str, Any]) -> tuple[Operation, ...] | Refusal:
        """What a call of the model does."""
        ...

    def write(self, operations: Sequence[Operation]) -> tuple[Mapping[str, Any], ...] | None:
        """The calls in which the model would have said this; `None` where it could not."""
        ...
