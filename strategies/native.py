"""Native: tools go upstream as they are, calls come back as they are; certain wire faults are mended."""

from gateway.wire.chat_request import ChatRequest
from strategies.asking.ask_again import asking_again
from strategies.asking.past_calls import mend
from strategies.base import Options, Prepared

__all__ = ["NativeStrategy"]


class NativeStrategy:
    """Relays the request and the answer, for models whose servers speak structured tool calls well."""

    name = "native"

    def prepare(self, request: ChatRequest, options: Options) -> Prepared:
        """The request as it came, but for a history that is certainly broken; its answer is not read."""
        mended = mend(request, options)
        return Prepared(
            strategy=self.name,
            body=mended.body(request),
            ask_again=asking_again(request, messages=mended.messages) if request.wants_tools else None,
            warnings=mended.notes,
        )
