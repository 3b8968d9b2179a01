"""Advisory locks behind a transaction pooler, which has no sessions."""

from typing import Any

import pytest

from jobs.advisory_locks import holds_session_lock, session_lock


@pytest.mark.django_db
def test_behind_a_transaction_pooler_a_session_lock_is_held_on_a_connection_of_its_own(settings: Any) -> None:
    settings.DATABASE_TRANSACTION_POOLING = True

    with session_lock("key") as first, session_lock("key") as second:
        assert (first, second) == (True, False)
        assert not holds_session_lock("key")

    with session_lock("key") as again:
        assert again
