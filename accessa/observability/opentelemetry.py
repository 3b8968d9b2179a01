"""OpenTelemetry: traces of requests, stages and vendor calls, with ids, codes and numbers as attributes."""

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.util import Finalize

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from accessa.observability.redaction import redact
from jobs.telemetry import SetAttributes

SEND_EVERY_MS = 1_000
SERVER_ERROR = 500
KINDS = {"request": SpanKind.SERVER, "vendor call": SpanKind.CLIENT}
# Semantic conventions of OpenTelemetry; other attributes have our prefix.
NAMES = {"method": "http.request.method", "route": "http.route", "status": "http.response.status_code"}


class OpenTelemetry:
    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("accessa")

    @contextmanager
    def span(self, name: str, attributes: dict[str, str | int | float], parent: str) -> Iterator[SetAttributes]:
        """Open a span. Errors and their messages are not recorded: the outcome's code is an attribute."""
        context = TraceContextTextMapPropagator().extract({"traceparent": parent}) if parent else None
        with self._tracer.start_as_current_span(
            name,
            context=context,
            kind=KINDS.get(name, SpanKind.INTERNAL),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:

            def set_attributes(**attributes: str | int | float) -> None:
                for key, attribute in attributes.items():
                    safe = redact(attribute) if isinstance(attribute, str) else attribute
                    span.set_attribute(NAMES.get(key, f"accessa.{key}"), safe)
                if "route" in attributes:
                    span.update_name(f"request {attributes['route']}")
                if int(attributes.get("status", 0)) >= SERVER_ERROR:
                    span.set_status(Status(StatusCode.ERROR))

            set_attributes(**attributes)
            yield set_attributes

    def report_error(self, error: BaseException) -> None:
        trace.get_current_span().set_status(Status(StatusCode.ERROR))


def start(endpoint: str) -> OpenTelemetry:
    """Start in this process. The exporter reads the endpoint and all its other settings from OTEL_ variables."""
    provider = TracerProvider(resource=Resource.create({"service.name": "accessa"}), shutdown_on_exit=True)
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=SEND_EVERY_MS))
    Finalize(None, provider.shutdown, exitpriority=10)  # django-q2's workers
    return OpenTelemetry(provider)
