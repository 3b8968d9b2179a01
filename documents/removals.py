"""What deleted documents leave behind, in the store and at the parsing vendor's, until it is surely gone."""

from __future__ import annotations

import logging
from uuid import UUID

from django.db import connection
from django.db.models.functions import Now

from documents import vendor_parse
from documents.models import Removal
from jobs.outcomes import Postponed, StageFailure

log = logging.getLogger("accessa.documents")

AT_ONCE = 50
SCHEDULE = """
    INSERT INTO object_removals (removal_id, document_id, path, drop_after)
    VALUES (gen_random_uuid(), %s, %s, clock_timestamp() + make_interval(secs => %s))
    ON CONFLICT (path) DO UPDATE SET drop_after = excluded.drop_after"""


def schedule(document_id: UUID, path: str, *, seconds: float) -> None:
    """Write down, in the caller's transaction, that ``path`` is to go, and that after ``seconds`` it has gone."""
    with connection.cursor() as cursor:
        cursor.execute(SCHEDULE, [document_id, path, seconds])


def forget_at_vendor() -> None:
    """Delete what the parsing vendor still has of deleted documents; what cannot go now is tried again next time."""
    copies = Removal.objects.filter(path__startswith=vendor_parse.PREFIX)
    for removal in copies.order_by("drop_after")[:AT_ONCE]:
        try:
            is_gone = vendor_parse.forget(removal.path)
        except (Postponed, StageFailure) as error:
            log.warning("A deleted document is still at the vendor's: %s", type(error).__name__)
            return
        # A submit that was under way at the deletion may make its job late: looked for until no worker can be left.
        if is_gone or copies.filter(pk=removal.pk, drop_after__lt=Now()).exists():
            removal.delete()
