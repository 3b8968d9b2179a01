"""What the keeper does for documents from time to time."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db.models.functions import Now

from documents import services, storage
from documents.models import Removal
from documents.parsing import vendor_files
from documents.storage import file_cache
from jobs.cluster import background
from jobs.errors import safe_error_name
from jobs.outcomes import Postponed, StageFailure

log = logging.getLogger("accessa.documents")

AT_ONCE = 200
# No upload lasts so long: its URL has expired, and what is left of it belongs to a process that was killed.
BROKEN_AFTER_SECONDS = 3600.0
AGAIN_SECONDS = 300.0  # what the vendor did not delete, or may have only later, is tried again after so long
FORGETTING = "forget-at-vendor"


def delete_removed_objects() -> None:
    """Remove objects of deleted documents once no worker can write them again, then forget the removal."""
    due = Removal.objects.filter(drop_after__lt=Now(), path__startswith=storage.URI_PREFIX)
    for document_id in set(due.values_list("document_id", flat=True)[:AT_ONCE]):
        try:
            services.delete_pending_objects(document_id)
        except OSError as error:  # the store is away: what is left stays due
            log.warning("Files of a deleted document are still in the store: %s", safe_error_name(error))
            continue
        due.filter(document_id=document_id).delete()


def start_vendor_deletions() -> None:
    """Begin to delete what the parsing vendor still has of deleted documents, if nobody is at it.

    Aside: the keeper must not wait for a vendor.
    """
    due = Removal.objects.filter(path__startswith=vendor_files.VENDOR_PREFIX, try_after__lt=Now())
    if due.exists():
        background.start_in_background(
            FORGETTING, delete_vendor_copies, log=log, broke_off="Deleting at the vendor's broke off"
        )


def delete_vendor_copies() -> None:
    """Delete what is due at the vendor's, one copy after the other; what cannot go now is tried again later."""
    copies = Removal.objects.filter(path__startswith=vendor_files.VENDOR_PREFIX, try_after__lt=Now())
    for removal in copies.order_by("try_after")[:AT_ONCE]:
        is_gone = failed = False
        try:
            is_gone = vendor_files.delete_vendor_copy(removal.path)
        except Postponed:  # not now, for none of them; the next sweep begins with another
            Removal.objects.filter(pk=removal.pk).update(try_after=Now() + timedelta(seconds=AGAIN_SECONDS))
            return
        except StageFailure as failure:
            failed = True
            log.warning("A deleted document is still at the vendor's: %s", failure.code)
        # A submit that was under way at the deletion may make its job late: looked for until no worker can be left.
        if is_gone or (Removal.objects.filter(pk=removal.pk, drop_after__lt=Now()).exists() and not failed):
            removal.delete()
        else:
            Removal.objects.filter(pk=removal.pk).update(try_after=Now() + timedelta(seconds=AGAIN_SECONDS))


def delete_stale_uploads() -> None:
    """Remove what arrived in part and was never placed, because its process was killed."""
    for bucket in storage.buckets():
        for stray in bucket.stale_incoming(BROKEN_AFTER_SECONDS):
            stray.unlink(missing_ok=True)
    file_cache.evict_expired()
