"""What a search reads: one snapshot of the database for all its statements, as the tenant, and in time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from django.db import connection, transaction
from django.db.utils import OperationalError

from accounts.errors import ApiError
from accounts.rls import SET_TENANT_ROLE, as_tenant, tenant_role_params
from embeddings.error_codes import SEARCH_UNAVAILABLE
from embeddings.search.index_probe import is_statement_timeout

SECONDS = 10  # for each statement
SOON = 5
# Together, since a search is made of statements that take less time than the way to the database and back.
ALONE = f"""
    SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
    SELECT set_config('statement_timeout', %s, true);
    {SET_TENANT_ROLE}"""
LIMIT = "SELECT current_setting('statement_timeout'), set_config('statement_timeout', %s, true)"
UNLIMIT = "SELECT set_config('statement_timeout', %s, true)"


@contextmanager
def search_snapshot(user_id: UUID) -> Iterator[None]:
    """Read as ``user_id``, what is found and what is shown from the same snapshot.

    In a caller's transaction, whose isolation is the caller's. Raises ``Refused("SEARCH_UNAVAILABLE")`` when a
    statement takes too long.
    """
    try:
        with _alone(user_id) if connection.get_autocommit() else _within(user_id):
            yield
    except OperationalError as error:
        if not is_statement_timeout(error):
            raise
        detail = "The search took too long; try again shortly."
        raise ApiError(SEARCH_UNAVAILABLE, detail, retry_after=SOON) from error


@contextmanager
def _alone(user_id: UUID) -> Iterator[None]:
    """In a transaction of its own, whose end takes isolation, limit, role and claims along."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(ALONE, [f"{SECONDS}s", *tenant_role_params(user_id)])
        yield


@contextmanager
def _within(user_id: UUID) -> Iterator[None]:
    with as_tenant(user_id), connection.cursor() as cursor:
        cursor.execute(LIMIT, [f"{SECONDS}s"])
        (before, _) = cursor.fetchone()
        yield
        # SET LOCAL outlasts a savepoint that is released; one that is rolled back takes it along.
        cursor.execute(UNLIMIT, [before])
