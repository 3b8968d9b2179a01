"""One form for everything that is logged, whoever logs it: a line an entry, with its context, nothing of tenants'."""

from __future__ import annotations

import json
import logging
import logging.config
import re
import sys
import threading
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from http import HTTPStatus
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor

from accessa.observability.redaction import MASK, redact, redact_argument, safe_error_text
from jobs.errors import safe_traceback

log = logging.getLogger("accessa.uncaught")

# What is put there by us, of ids and words of ours: it need not be looked through.
SAFE_FIELDS = frozenset(
    {"timestamp", "level", "logger", "correlation", "request", "job", "document", "user", "pipeline", "stage"}
    | {"attempt", "worker", "method", "route", "status", "duration_ms", "source", "ingestion"}
)
_WARNING = re.compile(r"(?P<place>[^\n]*?:\d+): (?P<kind>\w+): ")
_CONTROL = {number: f"\\x{number:02x}" for number in (*range(32), 127) if number != 10}


def configure_logging(config: dict[str, Any]) -> None:
    """Configure logging (``settings.LOGGING_CONFIG``), and let nothing uncaught be printed past it."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    logging.config.dictConfig(config)
    logging.captureWarnings(True)
    if not sys.stderr.isatty():  # what a person sees on their own terminal is no log
        sys.excepthook = _uncaught
        sys.unraisablehook = _unraisable
    threading.excepthook = _uncaught_in_thread


def _uncaught(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    if isinstance(error, KeyboardInterrupt):
        return
    log.critical("Uncaught.", exc_info=(kind, error, trace))


def _uncaught_in_thread(told: threading.ExceptHookArgs) -> None:
    if told.exc_value is None or isinstance(told.exc_value, SystemExit):
        return
    name = told.thread.name if told.thread else ""
    log.error("Uncaught in thread %s.", name, exc_info=(told.exc_type, told.exc_value, told.exc_traceback))


def _unraisable(told: Any) -> None:
    error = told.exc_value
    log.error("Uncaught where nothing can be raised.", exc_info=(told.exc_type, error, told.exc_traceback))


class SafeStreamHandler(logging.StreamHandler[Any]):
    """Writes to stderr. A call whose message cannot be made is told of by its place: its arguments stay untold."""

    def handleError(self, record: logging.LogRecord) -> None:
        if record.name != log.name:
            log.error("A message cannot be made: %s:%d", record.pathname, record.lineno)


class LogFormatter(ProcessorFormatter):
    """Structlog's, for records of its loggers and of all others."""

    def __init__(self, form: str) -> None:
        merge = structlog.contextvars.merge_contextvars
        super().__init__(processors=[merge, add_base_fields, redact_event, _renderer(form)])

    def format(self, record: logging.LogRecord) -> str:
        if record.args:
            record = logging.makeLogRecord(record.__dict__)
            named = isinstance(record.args, dict)
            record.args = redact_argument(record.args) if named else tuple(map(redact_argument, record.args))  # type: ignore
        return super().format(record)


def _renderer(form: str) -> Processor:
    if form == "json":
        return render_json
    return render_text


def render_json(_: Any, __: str, event: EventDict) -> str:
    return json.dumps(event, default=_spelled, ensure_ascii=False)


_console = structlog.dev.ConsoleRenderer(
    colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback, sort_keys=False
)


def render_text(logger: Any, name: str, event: EventDict) -> str:
    """Write one line, and the frames of an error below it."""
    flat = {key: _flat(value) if key != "exception" else value for key, value in event.items()}
    return _console(logger, name, flat)


def _flat(value: Any) -> Any:
    return value.replace("\n", "\\n") if isinstance(value, str) else value


def _spelled(value: object) -> str:
    """Spell what JSON has no form for; of an object that is not ours to print, its class."""
    if isinstance(value, (UUID, Decimal, date, Path)):
        return str(value)
    return type(value).__name__


def add_base_fields(_: Any, __: str, event: EventDict) -> EventDict:
    """Say when, how loud, by whom and what, in this order and before all else; an error by its class and its frames."""
    record: logging.LogRecord = event.pop("_record")
    is_foreign = not event.pop("_from_structlog")
    event.pop("reported", None)
    told: EventDict = {
        "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
        "level": record.levelname.lower(),
        "logger": record.name,
        "event": event.pop("event", ""),
    }
    if is_foreign:
        told["event"] = _heard(record, str(told["event"]))
    failure = event.pop("exc_info", None)
    told.update(event)
    error = _error(failure)
    if error is not None:
        told["error"], told["exception"] = safe_error_text(error), safe_traceback(error)
    return told


def _error(failure: Any) -> BaseException | None:
    if isinstance(failure, tuple):
        failure = failure[1]
    elif failure is True:
        failure = sys.exc_info()[1]
    return failure if isinstance(failure, BaseException) else None


def _heard(record: logging.LogRecord, text: str) -> str:
    """Return a message of a library's without what is known to repeat requests, values and results."""
    status = getattr(record, "status_code", None)
    if hasattr(record, "request") and isinstance(status, int):  # Django's: path, header or reason in its message
        return f"{status} {_phrase(status)}"
    for name, cut in REPEATING.items():
        if record.name == name or record.name.startswith(f"{name}."):
            return cut(text)
    return text


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _without_message(text: str) -> str:
    found = _WARNING.match(text)
    return f"{found['kind']} at {found['place']}" if found else "A warning."


def _without_request(text: str) -> str:
    return "Invalid request." if text.startswith("Invalid request from") else text


def _without_result(text: str) -> str:
    return text.partition("\n")[0].partition(" - ")[0]


# Loggers that are known to repeat what they were given, and what to do about it.
REPEATING: dict[str, Callable[[str], str]] = {
    "py.warnings": _without_message,
    "gunicorn.error": _without_request,
    "django-q": _without_result,
    "django.security": lambda text: "A suspicious request was refused.",
    "django.server": lambda text: "A request was served.",
    "django.db.backends": lambda text: "A statement was run.",
    "django.template": lambda text: "A template could not find a value.",
}


def redact_event(_: Any, __: str, event: EventDict) -> EventDict:
    """Clean what is about to be written, whatever its key."""
    return {name: value if name in SAFE_FIELDS else _clean(value) for name, value in event.items()}


def _clean(value: Any) -> Any:
    match value:
        case str():
            return redact(str(value)).translate(_CONTROL)
        case None | bool() | int() | float():
            return value
        case BaseException():
            return safe_error_text(value)
        case Enum():
            return _clean(value.value)
        case bytes() | bytearray() | memoryview():
            return MASK
        case dict():
            return {str(name): _clean(each) for name, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_clean(each) for each in value]
    return redact(_spelled(value))
