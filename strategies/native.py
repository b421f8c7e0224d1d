"""Native: tools go upstream as they are, calls come back as they are; certain wire faults are mended."""

from gateway.wire.openai_chat import ChatRequest
from strategies.base import Options, Prepared
from strategies.repair import repairs

__all__ = ["NativeStrategy"]


class NativeStrategy:
    """Relays the request and the answer, for models whose servers speak structured tool calls well."""

    name = "native"

    def prepare(self, request: ChatRequest, options: Options) -> Prepared:
        """The request as it came; its answer is not read."""
        del options
        return Prepared(strategy=self.name, body=request.raw, repair=repairs(request) if request.wants_tools else None)
