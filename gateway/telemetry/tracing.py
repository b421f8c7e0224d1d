"""OpenTelemetry spans of requests and of what was asked of model servers, where the extra `toolgate[otel]` is there.

Nothing here is imported unless GATEWAY_TRACES says so. Where spans go, how many are kept and what the service is called
say the variables that every SDK of OpenTelemetry reads (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER,
OTEL_SERVICE_NAME ...). They are handed over by a thread with a bounded queue: a collector that is away costs spans,
never a request. Names are those of the conventions for HTTP and for GenAI
(https://github.com/open-telemetry/semantic-conventions-genai); no span has a text of a prompt or of an answer, nor
arguments of a call.
"""

import os
import threading
from collections.abc import Mapping
from typing import Any

import structlog
from attrs import define, field
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.core.ports import Attributes, Happening, RequestSpan
from gateway.core.version import __version__

__all__ = ["OpenTelemetry", "opened"]

log = structlog.get_logger("toolgate")

_W3C = TraceContextTextMapPropagator()
_CLOSE_S = 1.0


def opened() -> "OpenTelemetry":
    """Spans as the environment of OpenTelemetry says."""
    # Here: it imports requests and protobuf, which tests with an exporter of their own do without.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OpenTelemetry.to(OTLPSpanExporter())


@define(eq=False)
class OpenTelemetry:
    """The tracer of this process; `close` hands over what is left."""

    _provider: Any
    _tracer: Any

    @classmethod
    def to(cls, exporter: SpanExporter) -> "OpenTelemetry":
        """Spans that this exporter is handed."""
        own = {"service.version": __version__}
        if not os.environ.get("OTEL_SERVICE_NAME"):
            # What is given to `Resource.create` would win over the variable.
            own["service.name"] = "toolgate"
        # The library's own end at exit would wait for a collector that is away.
        provider = TracerProvider(resource=Resource.create(own), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(exporter))
        return cls(provider, provider.get_tracer("toolgate", __version__))

    def begin(self, headers: Mapping[str, str], name: str, attributes: Attributes) -> RequestSpan | None:
        """The span of a request that has just come, within the trace that its client names.

        None where there is none to be had: a sampler or a propagator that fails costs the span, not the request.
        """
        try:
            parent = _W3C.extract(headers)
            span = self._tracer.start_span(name, context=parent, kind=SpanKind.SERVER, attributes=dict(attributes))
        except Exception as error:  # noqa: BLE001 - whatever the library's parts may raise
            log.warning("span_failed", fault=type(error).__name__)
            return None
        return _Request(self._tracer, span) if span.get_span_context().is_valid else None

    def close(self) -> None:
        """Hand over what is left, as far as a moment allows: a collector that does not answer is not waited for."""
        ending = threading.Thread(target=self._provider.shutdown, name="tracing-end", daemon=True)
        ending.start()
        ending.join(_CLOSE_S)


@define(eq=False)
class _Request:
    """One request, and the one thing at a time that is asked of a model server for it."""

    _tracer: Any
    _span: Any
    _try: Any = field(default=None, init=False)

    @property
    def trace(self) -> str:
        return str(trace.format_trace_id(self._span.get_span_context().trace_id))

    def ask(self, name: str, attributes: Attributes) -> Mapping[str, str]:
        self._end_try()
        headers: dict[str, str] = {}
        try:
            within = trace.set_span_in_context(self._span)
            self._try = self._tracer.start_span(name, context=within, kind=SpanKind.CLIENT, attributes=dict(attributes))
            _W3C.inject(headers, context=trace.set_span_in_context(self._try))
        except Exception as error:  # noqa: BLE001 - the same
            log.warning("span_failed", fault=type(error).__name__)
        return headers

    def answered(self, status: int) -> None:
        if self._try is not None:
            self._try.set_attribute("http.response.status_code", status)

    def failed(self, error: str) -> None:
        if self._try is not None:
            self._try.set_attribute("error.type", error)
            self._try.set_status(StatusCode.ERROR, error)
        self._end_try()

    def end(
        self, attributes: Attributes, asked: Attributes, happenings: tuple[Happening, ...], error: str | None
    ) -> None:
        if self._try is not None:
            self._try.set_attributes(dict(asked))
        self._end_try()
        for name, facts in happenings:
            self._span.add_event(name, dict(facts))
        self._span.set_attributes(dict(attributes))
        if error is not None:
            self._span.set_attribute("error.type", error)
            self._span.set_status(StatusCode.ERROR, error)
        self._span.end()

    def _end_try(self) -> None:
        if self._try is not None:
            self._try.end()
            self._try = None
