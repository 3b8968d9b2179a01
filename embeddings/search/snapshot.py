"""What a search reads: one snapshot of the database for all its statements, as the tenant, and in time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from uuid import UUID

from django.db import connection, transaction
from django.db.utils import OperationalError

from embeddings.search.probing import timed_out
from tenancy.refusals import Refused
from tenancy.rls import as_tenant

SECONDS = 10  # for each statement
SOON = 5
ONE_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"
LIMIT = "SELECT current_setting('statement_timeout'), set_config('statement_timeout', %s, true)"
UNLIMIT = "SELECT set_config('statement_timeout', %s, true)"


@contextmanager
def reading(user_id: UUID) -> Iterator[None]:
    """Read as ``user_id``, what is found and what is shown from the same snapshot.

    In a caller's transaction, whose isolation is the caller's. Raises ``Refused("SEARCH_UNAVAILABLE")`` when a
    statement takes too long.
    """
    try:
        with _limited(), as_tenant(user_id):
            yield
    except OperationalError as error:
        if not timed_out(error):
            raise
        detail = "The search took too long; try again shortly."
        status = HTTPStatus.SERVICE_UNAVAILABLE
        raise Refused("SEARCH_UNAVAILABLE", detail, status=status, retry_after=SOON) from error


@contextmanager
def _limited() -> Iterator[None]:
    begins = connection.get_autocommit()
    with transaction.atomic(), connection.cursor() as cursor:
        if begins:
            cursor.execute(ONE_SNAPSHOT)
        cursor.execute(LIMIT, [f"{SECONDS}s"])
        (before, _) = cursor.fetchone()
        yield
        # SET LOCAL outlasts a savepoint that is released; one that is rolled back takes it along.
        cursor.execute(UNLIMIT, [before])
