"""Recovery: native, and the text is watched for calls that were meant as such."""

from gateway.wire.chat_request import ChatRequest
from strategies.asking.ask_again import asking_again
from strategies.asking.past_calls import mend
from strategies.base import Options, Prepared, Shape
from strategies.reading.factory import reader_factory

__all__ = ["RecoveryStrategy"]


class RecoveryStrategy:
    """Relays the request; where the answer holds no structured call, calls written as text are recovered."""

    name = "recovery"

    def prepare(self, request: ChatRequest, options: Options) -> Prepared:
        """The request as it came, but for a history that is certainly broken.

        Recovered calls wait for the upstream's finish, as native ones may still come.
        """
        if not request.wants_tools:
            return Prepared(strategy=self.name, body=request.raw)
        mode = options.calls_per_message
        mended = mend(request, options)
        make_reader, warnings = None, mended.notes
        if len(request.tools.names) <= options.limits.max_read_tools:
            make_reader = reader_factory(
                tools=request.tools,
                options=options,
                model=request.model,
                restricted=True,
                messages=request.messages,
            )
        else:
            warnings = (*warnings, f"{len(request.tools)} tools are too many to look for calls of them in the text")
        return Prepared(
            strategy=self.name,
            body=mended.body(request) if mended.notes else request.raw,
            make_reader=make_reader,
            reads_reasoning=options.reasoning_calls,
            shape=Shape(
                first_only=mode == "first" or request.parallel is False,
                keep_trailing=options.trailing_text == "keep",
                wait_for_finish=True,
            ),
            ask_again=asking_again(request, messages=mended.messages),
            warnings=warnings,
        )
