"""Logging configuration: structlog's formatter for all loggers, redaction, logging of uncaught errors."""

import logging
import logging.config
import re
import sys
import threading
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from enum import Enum
from http import HTTPStatus
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog
from structlog.processors import JSONRenderer, TimeStamper
from structlog.stdlib import ProcessorFormatter, add_log_level, add_logger_name
from structlog.typing import EventDict

from accessa.observability.redaction import MASK, redact, redact_argument, safe_error_text
from jobs.safe_errors import safe_traceback

log = logging.getLogger("accessa.uncaught")

FIRST_FIELDS = ("timestamp", "level", "logger", "event")
# Ids and names set by this program: not redacted.
SAFE_FIELDS = frozenset(
    {"timestamp", "level", "logger", "correlation", "request", "job", "document", "user", "pipeline", "stage"}
    | {"attempt", "worker", "method", "route", "status", "duration_ms", "source", "ingestion"}
)
CONTROL_CHARACTERS = {number: f"\\x{number:02x}" for number in (*range(32), 127) if number != 10}
WARNING = re.compile(r"(?P<place>[^\n]*?:\d+): (?P<kind>\w+): ")


# One list, also when logging is configured again: loggers keep the list of their first line, and
# structlog.testing.capture_logs() changes the list of the last configuration.
PROCESSORS: list[structlog.typing.Processor] = [
    structlog.stdlib.filter_by_level,
    structlog.stdlib.PositionalArgumentsFormatter(),
    ProcessorFormatter.wrap_for_formatter,
]


def configure_logging(config: dict[str, Any]) -> None:
    """Configure logging (``settings.LOGGING_CONFIG``), and log what would otherwise be printed to stderr."""
    structlog.configure(
        processors=PROCESSORS,
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    logging.config.dictConfig(config)
    logging.captureWarnings(True)
    if not sys.stderr.isatty():  # a person's own terminal is no log
        sys.excepthook = _log_uncaught
        sys.unraisablehook = _log_unraisable
    threading.excepthook = _log_uncaught_in_thread


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    if not isinstance(error, KeyboardInterrupt):
        log.critical("Uncaught.", exc_info=(kind, error, trace))


def _log_uncaught_in_thread(hook: threading.ExceptHookArgs) -> None:
    if hook.exc_value is not None and not isinstance(hook.exc_value, SystemExit):
        name = hook.thread.name if hook.thread else ""
        log.error("Uncaught in thread %s.", name, exc_info=(hook.exc_type, hook.exc_value, hook.exc_traceback))


def _log_unraisable(hook: Any) -> None:
    exc_info = (hook.exc_type, hook.exc_value, hook.exc_traceback)
    log.error("Uncaught where nothing can be raised.", exc_info=exc_info)


class SafeStreamHandler(logging.StreamHandler[Any]):
    """Write to stderr. A message that cannot be formatted is logged by its place, without its arguments."""

    def handleError(self, record: logging.LogRecord) -> None:
        if record.name != log.name:
            log.error("A message cannot be made: %s:%d", record.pathname, record.lineno)


class LogFormatter(ProcessorFormatter):
    """Format records of structlog's loggers and of all others as JSON or text, one line an entry."""

    def __init__(self, form: str) -> None:
        render = JSONRenderer(default=_to_text, ensure_ascii=False) if form == "json" else render_text
        super().__init__(
            processors=[
                structlog.contextvars.merge_contextvars,
                add_log_level,
                add_logger_name,
                TimeStamper(fmt="iso"),
                order_fields,
                redact_event,
                render,
            ]
        )

    def format(self, record: logging.LogRecord) -> str:
        if record.args:
            record = logging.makeLogRecord(record.__dict__)
            named = isinstance(record.args, dict)
            record.args = redact_argument(record.args) if named else tuple(map(redact_argument, record.args))  # type: ignore
        return super().format(record)


_render_console = structlog.dev.ConsoleRenderer(
    colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback, sort_keys=False
)


def render_text(logger: Any, name: str, event: EventDict) -> str:
    flat = {
        key: field.replace("\n", "\\n") if isinstance(field, str) and key != "exception" else field
        for key, field in event.items()
    }
    return _render_console(logger, name, flat)


def _to_text(unserializable: object) -> str:
    """Convert what JSON has no form for; another program's object to the name of its class."""
    if isinstance(unserializable, (UUID, Decimal, date, Path)):
        return str(unserializable)
    return type(unserializable).__name__


def order_fields(_: Any, __: str, event: EventDict) -> EventDict:
    """Put ``FIRST_FIELDS`` first and an error last, by its class and its frames; shorten messages of libraries."""
    record: logging.LogRecord = event.pop("_record")
    event.pop("reported", None)
    failure = event.pop("exc_info", None)
    if not event.pop("_from_structlog"):
        event["event"] = _library_message(record, str(event["event"]))
    ordered: EventDict = {name: event.pop(name, "") for name in FIRST_FIELDS}
    ordered.update(event)
    error = failure[1] if isinstance(failure, tuple) else sys.exc_info()[1] if failure is True else failure
    if isinstance(error, BaseException):
        ordered["error"], ordered["exception"] = safe_error_text(error), safe_traceback(error)
    return ordered


def _library_message(record: logging.LogRecord, text: str) -> str:
    status = getattr(record, "status_code", None)
    if hasattr(record, "request") and isinstance(status, int):  # Django's: path, header or reason in its message
        phrases = {known.value: known.phrase for known in HTTPStatus}
        return f"{status} {phrases.get(status, '')}"
    for name, shorten in REPEATING_LOGGERS.items():
        if record.name == name or record.name.startswith(f"{name}."):
            return shorten(text)
    return text


def _warning_without_message(text: str) -> str:
    match = WARNING.match(text)
    return f"{match['kind']} at {match['place']}" if match else "A warning."


# Loggers that are known to repeat what they were given.
REPEATING_LOGGERS: dict[str, Callable[[str], str]] = {
    "py.warnings": _warning_without_message,
    "gunicorn.error": lambda text: "Invalid request." if text.startswith("Invalid request from") else text,
    "django-q": lambda text: text.partition("\n")[0].partition(" - ")[0],
    "django.security": lambda text: "A suspicious request was refused.",
    "django.server": lambda text: "A request was served.",
    "django.db.backends": lambda text: "A statement was run.",
    "django.template": lambda text: "A template could not find a value.",
}


def redact_event(_: Any, __: str, event: EventDict) -> EventDict:
    return {name: field if name in SAFE_FIELDS else _redact_field(field) for name, field in event.items()}


def _redact_field(field: Any) -> Any:
    match field:
        case str():
            return redact(str(field)).translate(CONTROL_CHARACTERS)
        case None | bool() | int() | float():
            return field
        case BaseException():
            return safe_error_text(field)
        case Enum():
            return _redact_field(field.value)
        case bytes() | bytearray() | memoryview():
            return MASK
        case dict():
            return {str(name): _redact_field(each) for name, each in field.items()}
        case list() | tuple() | set() | frozenset():
            return [_redact_field(each) for each in field]
    return redact(_to_text(field))
