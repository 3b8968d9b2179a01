"""What the keeper does for documents from time to time."""

from __future__ import annotations

import logging

from django.db.models.functions import Now

from documents import services, storage
from documents.models import Removal
from jobs.faults import named

log = logging.getLogger("accessa.documents")

AT_ONCE = 200
# No upload lasts so long: its URL has expired, and what is left of it belongs to a process that was killed.
BROKEN_AFTER_SECONDS = 3600.0


def remove_objects() -> None:
    """Remove objects of deleted documents once no worker can write them again, then forget the removal."""
    due = Removal.objects.filter(drop_after__lt=Now(), path__startswith=storage.PREFIX)
    for document_id in set(due.values_list("document_id", flat=True)[:AT_ONCE]):
        try:
            services.remove_objects(document_id)
        except OSError as error:  # the store is away: what is left stays due
            log.warning("Files of a deleted document are still in the store: %s", named(error))
            continue
        due.filter(document_id=document_id).delete()


def remove_broken_uploads() -> None:
    """Remove what arrived in part and was never placed, because its process was killed."""
    for bucket in storage.buckets():
        for stray in bucket.strays(BROKEN_AFTER_SECONDS):
            stray.unlink(missing_ok=True)
