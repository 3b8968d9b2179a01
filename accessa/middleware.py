"""What holds for every request."""

from __future__ import annotations

from collections.abc import Callable

from django.db.utils import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse

from accessa.errors import AWAY, AWAY_SECONDS


class DatabaseAway:
    """Answer 503 wherever the database is missing, in middleware and admin too: it is not the request's fault."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if not isinstance(error, (OperationalError, InterfaceError)):
            return None
        return JsonResponse(AWAY, status=503, headers={"Retry-After": str(AWAY_SECONDS)})
