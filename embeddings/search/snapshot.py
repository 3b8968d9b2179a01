"""Search snapshot: one repeatable-read transaction as the tenant, with a time limit for each statement."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import psycopg
from django.db import connection, transaction
from django.db.utils import OperationalError

from accounts.error_codes import ApiError
from accounts.rls import SET_TENANT_ROLE, as_tenant, tenant_role_params
from embeddings.error_codes import SEARCH_UNAVAILABLE

SECONDS = 10  # for each statement
RETRY_SECONDS = 5
# In one round trip, since a search's statements take less time than the way to the database and back.
BEGIN = f"""
    SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
    SELECT set_config('statement_timeout', %s, true);
    {SET_TENANT_ROLE}"""
SET_TIMEOUT = "SELECT current_setting('statement_timeout'), set_config('statement_timeout', %s, true)"


@contextmanager
def search_snapshot(user_id: UUID) -> Iterator[None]:
    """Read as ``user_id``, all statements from one snapshot.

    Inside a caller's transaction the isolation is the caller's. Raises ``ApiError("SEARCH_UNAVAILABLE")`` when a
    statement takes too long.
    """
    try:
        if connection.get_autocommit():
            # The transaction's end resets isolation, time limit, role and claims.
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(BEGIN, [f"{SECONDS}s", *tenant_role_params(user_id)])
                yield
        else:
            with as_tenant(user_id), connection.cursor() as cursor:
                cursor.execute(SET_TIMEOUT, [f"{SECONDS}s"])
                (before, _) = cursor.fetchone()
                yield
                # SET LOCAL outlasts a savepoint that is released; one that is rolled back resets it.
                cursor.execute(SET_TIMEOUT, [before])
    except OperationalError as error:
        if not is_statement_timeout(error):
            raise
        detail = "The search took too long; try again shortly."
        raise ApiError(SEARCH_UNAVAILABLE, detail, retry_after=RETRY_SECONDS) from error


def is_statement_timeout(error: OperationalError) -> bool:
    return isinstance(error.__cause__, psycopg.errors.QueryCanceled)
