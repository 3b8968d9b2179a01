"""How the product says no: a stable code, a clear sentence, the field where there is one."""

from __future__ import annotations

from http import HTTPStatus


class ApiError(Exception):
    """A request that cannot be granted. ``detail`` is shown as it is: it names no other tenant's things."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        status: int = HTTPStatus.BAD_REQUEST,
        field: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.status = int(status)
        self.field = field
        self.retry_after = retry_after

    @property
    def body(self) -> dict[str, str]:
        found = {"code": self.code, "detail": self.detail}
        return found | {"field": self.field} if self.field else found


def not_found() -> ApiError:
    """Say the same of what does not exist and of what belongs to somebody else."""
    return ApiError("NOT_FOUND", "There is no such thing here.", status=HTTPStatus.NOT_FOUND)


def unavailable(detail: str) -> ApiError:
    """Say that something of ours is away: the same request may go well in a moment."""
    return ApiError("UNAVAILABLE", detail, status=HTTPStatus.SERVICE_UNAVAILABLE, retry_after=5)
