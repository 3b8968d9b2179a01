"""Fake Google Drive and Gmail API: pages, exports, changes, history and Google's error format."""

from typing import Any

from testing.fakes.account_server import AccountServer
from testing.fakes.gmail import Mail
from testing.fakes.google_drive import Drive, Found
from testing.fakes.http_messages import ErrorResponse, Request, Response, json_response

# developers.google.com/workspace/drive/api/guides/handle-errors
REASONS = {
    400: ("invalid", "INVALID_ARGUMENT"),
    401: ("authError", "UNAUTHENTICATED"),
    403: ("insufficientPermissions", "PERMISSION_DENIED"),
    404: ("notFound", "NOT_FOUND"),
    410: ("updatedMinTooLongAgo", "FAILED_PRECONDITION"),
    429: ("rateLimitExceeded", "RESOURCE_EXHAUSTED"),
    503: ("backendError", "UNAVAILABLE"),
}


class Google(AccountServer):
    """One of Google's services; its ledger counts the files and threads that were given out."""

    version = ""

    @property
    def url(self) -> str:
        return f"{super().url}{self.version}"

    def respond_authorized(self, request: Request) -> Response:
        if request.method != "GET" or not request.path.startswith(f"{self.version}/"):
            raise self.google_error(404)
        response = self.respond_account(request.path.removeprefix(f"{self.version}/").split("/"), request)
        if response.thing:
            self.ledger.sell([response.thing])
        return response.answer

    def respond_account(self, parts: list[str], request: Request) -> Found:
        raise NotImplementedError

    def google_error(self, status: int, reason: str = "") -> ErrorResponse:
        return ErrorResponse(self.error_response(status, reason or None))

    def error_response(self, status: int, code: str | None = None) -> Response:
        reason, word = REASONS.get(status, ("backendError", "INTERNAL"))
        reason = code or reason
        message = f"The fake answers {status}."
        domain = "usageLimits" if "LimitExceeded" in reason else "global"
        errors = [{"domain": domain, "reason": reason, "message": message}]
        headers = {"WWW-Authenticate": 'Bearer realm="https://accounts.google.com/"'} if status == 401 else {}
        body: dict[str, Any] = {"code": status, "message": message, "errors": errors, "status": word}
        return json_response({"error": body}, status, headers)


class DriveServer(Google):
    """``drive`` is what is in the account."""

    name, version = "google_drive", "/drive/v3"

    def __init__(self, **server: Any) -> None:
        super().__init__(**server)
        self.drive = Drive(self.google_error)

    def respond_account(self, parts: list[str], request: Request) -> Found:
        return self.drive.answer(parts, request)


class GmailServer(Google):
    """``mail`` is what is in the account: ``threads`` that are made up when asked for, and what tests put to them."""

    name, version = "gmail", "/gmail/v1"

    def __init__(self, *, threads: int = 0, **server: Any) -> None:
        super().__init__(**server)
        self.mail = Mail(self.google_error, generated=threads)

    def respond_account(self, parts: list[str], request: Request) -> Found:
        return self.mail.answer(parts, request)
