"""Errors to Sentry: where they were raised and what they were about, never what they said."""

from __future__ import annotations

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

# Of an event and its parts, all that is sent: what a later SDK adds is left out until somebody has looked at it.
KEPT = ("event_id", "timestamp", "level", "platform", "release", "environment", "server_name", "sdk")
KEPT_OF_A_FRAME = (
    "filename", "abs_path", "function", "module", "lineno", "pre_context", "context_line", "post_context", "in_app",
)  # fmt: skip
FLUSH_SECONDS = 2.0
_lines = LogFormatter("json")


class Sentry:
    def span(self, name: str, attributes: dict[str, str | int | float], parent: str) -> None:
        """Sentry is sent errors; traces go to OpenTelemetry."""

    def report(self, error: BaseException) -> None:
        sentry_sdk.capture_exception(error)


def start(dsn: str) -> Sentry:
    """Start in this process. No integration that looks into requests, calls or variables is let in."""
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
    """Return a new event of what may be sent; None for a line that tells of an error which was sent itself."""
    record = hint.get("log_record")
    line = _line(record)
    if line is not None and is_reported(record):
        return None
    context = line or get_contextvars()
    made: dict[str, Any] = {name: event[name] for name in KEPT if name in event}
    made["tags"] = {name: str(context[name]) for name in sorted(SAFE_FIELDS) if name in context and name != "timestamp"}
    if line is not None:
        made["logger"], made["logentry"] = line["logger"], {"formatted": str(line["event"])}
    if "exception" in event:
        made["exception"] = {"values": _exceptions(event["exception"], hint)}
    crumbs = event.get("breadcrumbs")
    if crumbs:
        made["breadcrumbs"] = {"values": list(crumbs.get("values", crumbs) if isinstance(crumbs, dict) else crumbs)}
    return made


def before_breadcrumb(given: dict[str, Any], hint: Mapping[str, Any]) -> dict[str, Any] | None:
    """Keep the log's lines only, as they are written."""
    line = _line(hint.get("log_record"))
    if line is None:
        return None
    message = " ".join([str(line["event"]), *(f"{name}={line[name]}" for name in ("stage", "outcome") if name in line)])
    kept: dict[str, Any] = {name: given[name] for name in ("level", "timestamp") if name in given}
    return {"type": "default", "category": line["logger"], "message": message, **kept}


def is_reported(record: Any) -> bool:
    told = record.msg if isinstance(record.msg, dict) else vars(record)
    return bool(told.get("reported"))


def _line(record: logging.LogRecord | None) -> dict[str, Any] | None:
    return None if record is None else dict(json.loads(_lines.format(record)))


def _exceptions(given: Mapping[str, Any], hint: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the chain of errors by class and frames; the last, which was raised, as the log would tell it."""
    made = [
        {
            "type": each.get("type"),
            "module": each.get("module"),
            "value": "",
            "stacktrace": {"frames": [_frame(frame) for frame in (each.get("stacktrace") or {}).get("frames", ())]},
        }
        for each in given.get("values", ())
    ]
    error = (hint.get("exc_info") or (None, None))[1]
    if made and error is not None:
        made[-1]["value"] = safe_error_text(error)
    return made


def _frame(frame: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _clean(frame[name]) for name in KEPT_OF_A_FRAME if frame.get(name) is not None}


def _clean(value: Any) -> Any:
    if isinstance(value, list):
        return [_clean(each) for each in value]
    return redact(value) if isinstance(value, str) else value
