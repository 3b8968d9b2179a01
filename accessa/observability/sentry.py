"""Sentry: errors by class, frames and log context, without messages and values."""

import json
import logging
from collections.abc import Mapping
from multiprocessing.util import Finalize
from typing import Any

import sentry_sdk
from sentry_sdk.integrations.atexit import AtexitIntegration
from sentry_sdk.integrations.dedupe import DedupeIntegration
from sentry_sdk.integrations.logging import LoggingIntegration
from structlog.contextvars import get_contextvars

from accessa.observability.logs import SAFE_FIELDS, LogFormatter
from accessa.observability.redaction import redact, safe_error_text

# The fields of an event that are sent: an allow-list, so that a later SDK adds none unseen.
EVENT_FIELDS = ("event_id", "timestamp", "level", "platform", "release", "environment", "server_name", "sdk")
FRAME_FIELDS = (
    "filename", "abs_path", "function", "module", "lineno", "pre_context", "context_line", "post_context", "in_app",
)  # fmt: skip
FLUSH_SECONDS = 2.0
_formatter = LogFormatter("json")


class Sentry:
    def span(self, name: str, attributes: dict[str, str | int | float], parent: str) -> None:
        """Do nothing: traces go to OpenTelemetry."""

    def report_error(self, error: BaseException) -> None:
        sentry_sdk.capture_exception(error)


def start(dsn: str) -> Sentry:
    """Start in this process, without integrations that read requests, calls or variables."""
    sentry_sdk.init(
        dsn=dsn,
        default_integrations=False,
        integrations=[
            LoggingIntegration(level=logging.INFO, event_level=logging.ERROR),
            DedupeIntegration(),
            AtexitIntegration(callback=lambda pending, timeout: None),
        ],
        send_default_pii=False,
        max_request_body_size="never",
        include_local_variables=False,
        auto_session_tracking=False,
        send_client_reports=False,
        before_send=before_send,  # type: ignore[arg-type]  # its types are dicts of its own
        before_breadcrumb=before_breadcrumb,
    )
    Finalize(None, sentry_sdk.flush, kwargs={"timeout": FLUSH_SECONDS}, exitpriority=10)  # django-q2's workers
    return Sentry()


def before_send(event: dict[str, Any], hint: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a new event with the allowed fields; None for a log line of an error that was itself reported."""
    record = hint.get("log_record")
    line = _format_line(record)
    if record is not None and (record.msg if isinstance(record.msg, dict) else vars(record)).get("reported"):
        return None
    context = line or get_contextvars()
    safe: dict[str, Any] = {name: event[name] for name in EVENT_FIELDS if name in event}
    safe["tags"] = {name: str(context[name]) for name in sorted(SAFE_FIELDS) if name in context and name != "timestamp"}
    if line is not None:
        safe["logger"], safe["logentry"] = line["logger"], {"formatted": str(line["event"])}
    if "exception" in event:
        safe["exception"] = {"values": _safe_exceptions(event["exception"], hint)}
    if breadcrumbs := event.get("breadcrumbs"):
        rows = breadcrumbs.get("values", breadcrumbs) if isinstance(breadcrumbs, dict) else breadcrumbs
        safe["breadcrumbs"] = {"values": list(rows)}
    return safe


def before_breadcrumb(breadcrumb: dict[str, Any], hint: Mapping[str, Any]) -> dict[str, Any] | None:
    line = _format_line(hint.get("log_record"))
    if line is None:
        return None
    message = " ".join([str(line["event"]), *(f"{name}={line[name]}" for name in ("stage", "outcome") if name in line)])
    safe: dict[str, Any] = {name: breadcrumb[name] for name in ("level", "timestamp") if name in breadcrumb}
    return {"type": "default", "category": line["logger"], "message": message, **safe}


def _format_line(record: logging.LogRecord | None) -> dict[str, Any] | None:
    return None if record is None else dict(json.loads(_formatter.format(record)))


def _safe_exceptions(chain: Mapping[str, Any], hint: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = [
        {
            "type": each.get("type"),
            "module": each.get("module"),
            "value": "",
            "stacktrace": {
                "frames": [
                    {name: _redact(frame[name]) for name in FRAME_FIELDS if frame.get(name) is not None}
                    for frame in (each.get("stacktrace") or {}).get("frames", ())
                ]
            },
        }
        for each in chain.get("values", ())
    ]
    error = (hint.get("exc_info") or (None, None))[1]
    if rows and error is not None:
        rows[-1]["value"] = safe_error_text(error)
    return rows


def _redact(field: Any) -> Any:
    if isinstance(field, list):
        return [_redact(each) for each in field]
    return redact(field) if isinstance(field, str) else field
