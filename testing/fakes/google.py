"""Google Drive and Gmail over HTTP: pages, exports, changes, history, and Google's own words for every refusal."""

from __future__ import annotations

from typing import Any

from testing.fakes.account_server import AccountServer
from testing.fakes.gmail import Mail
from testing.fakes.google_drive import Drive, Found
from testing.fakes.http_messages import Answer, Refusal, Request, as_json

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

    def account(self, request: Request) -> Answer:
        if request.method != "GET" or not request.path.startswith(f"{self.version}/"):
            raise self.no(404)
        found = self.found(request.path.removeprefix(f"{self.version}/").split("/"), request)
        if found.thing:
            self.ledger.sell([found.thing])
        return found.answer

    def found(self, parts: list[str], request: Request) -> Found:
        raise NotImplementedError

    def no(self, status: int, reason: str = "") -> Refusal:
        return Refusal(self.error(status, reason or None))

    def error(self, status: int, code: str | None = None) -> Answer:
        reason, word = REASONS.get(status, ("backendError", "INTERNAL"))
        reason = code or reason
        said = f"The stand-in answers {status}."
        domain = "usageLimits" if "LimitExceeded" in reason else "global"
        errors = [{"domain": domain, "reason": reason, "message": said}]
        headers = {"WWW-Authenticate": 'Bearer realm="https://accounts.google.com/"'} if status == 401 else {}
        body: dict[str, Any] = {"code": status, "message": said, "errors": errors, "status": word}
        return as_json({"error": body}, status, headers)


class DriveServer(Google):
    """``drive`` is what is in the account."""

    name, version = "google_drive", "/drive/v3"

    def __init__(self, **server: Any) -> None:
        super().__init__(**server)
        self.drive = Drive(self.no)

    def found(self, parts: list[str], request: Request) -> Found:
        return self.drive.answer(parts, request)


class GmailServer(Google):
    """``mail`` is what is in the account: ``threads`` that are made up when asked for, and what tests put to them."""

    name, version = "gmail", "/gmail/v1"

    def __init__(self, *, threads: int = 0, **server: Any) -> None:
        super().__init__(**server)
        self.mail = Mail(self.no, generated=threads)

    def found(self, parts: list[str], request: Request) -> Found:
        return self.mail.answer(parts, request)
