"""Error framework: ErrorCode with HTTP status, sentences, remedy and retryability, its registry, and ApiError."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeAlias

from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise

    Text: TypeAlias = str | _StrPromise


class Context(StrEnum):
    """Where a code is read. The same code may have another message and another remedy in another context."""

    REQUEST = "request"  # an API response, a message on a page, an error of a command
    WAIT = "wait"  # a job's wait_reason
    FAILURE = "failure"  # a job's last_error
    STATUTE_WAIT = "statute_wait"
    STATUTE_FAILURE = "statute_failure"
    CONSUMER_WAIT = "consumer_wait"  # manage.py consume_sqs
    SQS_MESSAGE = "sqs_message"
    MANIFEST = "manifest"  # manage.py ingest_vectors
    SYNC_FAILURE = "sync_failure"
    PAGE_WAIT = "page_wait"  # a page of a sync
    RECORD_FAILURE = "record_failure"
    OUTBOX_FAILURE = "outbox_failure"  # an attempt of a message of the outbox
    LOG = "log"  # a log line, an event, a row in the admin
    CALLBACK = "callback"  # a parse vendor's webhook


_registry: dict[Context, dict[str, ErrorCode]] = {context: {} for context in Context}


@dataclass(frozen=True, eq=False, repr=False)
class ErrorCode(str):
    """A stable code: a string that is stored, logged and answered as it is.

    ``tenant_message`` is shown to tenants, ``staff_message`` and ``remedy`` in the console and in
    docs/operations/incidents.md. ``retryable`` tells whether the same file, request or sync may succeed when it is
    tried again without a change.
    """

    code: str
    tenant_message: Text = ""
    staff_message: Text = ""
    remedy: Text = ""
    retryable: bool = True
    status: int = HTTPStatus.BAD_REQUEST
    detail: Text = ""  # of an error that is raised without one; else the message for tenants or for staff
    context: Context = Context.REQUEST

    def __new__(cls, code: str, *args: object, **kwargs: object) -> ErrorCode:
        return super().__new__(cls, code)

    def __post_init__(self) -> None:
        if _registry[self.context].setdefault(self.code, self) is not self:
            raise ImproperlyConfigured(f"The error code {self.code} is declared twice for {self.context}.")

    def explain(self, context: Context, *, staff_message: Text = "", remedy: Text = "", **changes: Any) -> ErrorCode:
        """Declare what this code means in another context."""
        return replace(self, context=context, staff_message=staff_message, remedy=remedy, **changes)

    @property
    def meaning(self) -> Text:
        """The sentence for staff; the tenants' sentence if it says all."""
        return self.staff_message or self.tenant_message

    @property
    def sentence(self) -> str:
        return str(self.detail or self.tenant_message or self.staff_message)


# Codes that a job waits for, and codes that it fails with.
wait_reason = partial(ErrorCode, context=Context.WAIT)
failure = partial(ErrorCode, context=Context.FAILURE)


def staff_error(code: str, staff_message: Text, remedy: Text, **fields: Any) -> ErrorCode:
    """Declare a code that no tenant reads."""
    return ErrorCode(code, "", staff_message, remedy, **fields)


def error_codes(context: Context) -> dict[str, ErrorCode]:
    return _registry[context]


def find_error_code(code: str | None, *contexts: Context) -> ErrorCode | None:
    """Return a code as declared for the first of ``contexts`` (of all, if none is named) that has it."""
    return next((_registry[c][code] for c in contexts or Context if code and code in _registry[c]), None)


SCHEMA_EXTENSION = "x-error-codes"


def raises(*codes: ErrorCode) -> dict[str, Any]:
    """Declare the codes of a view for its OpenAPI schema: ``@extend_schema(extensions=raises(...))``."""
    return {SCHEMA_EXTENSION: codes}


class ApiError(Exception):
    """A request that cannot be granted. ``detail`` is shown as it is: it names nothing of other tenants."""

    def __init__(
        self, code: ErrorCode, detail: str = "", *, field: str | None = None, retry_after: int | None = None
    ) -> None:
        self.code = code
        self._detail = detail
        super().__init__(f"{code}: {self.detail}")
        self.status = int(code.status)
        self.field = field
        self.retry_after = retry_after

    @property
    def detail(self) -> str:
        """The given detail, or else the code's sentence in the language in which it is read."""
        return self._detail or self.code.sentence

    @property
    def body(self) -> dict[str, str]:
        body = {"code": str(self.code), "detail": self.detail}
        return body | {"field": self.field} if self.field else body

    @property
    def headers(self) -> dict[str, str]:
        return {"Retry-After": str(self.retry_after)} if self.retry_after else {}
