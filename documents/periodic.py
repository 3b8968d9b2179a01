"""Periodic tasks: delete what deleted documents left in the store and at the parsing vendor, and stale uploads."""

import logging
from datetime import timedelta

from django.db.models.functions import Now

from documents import object_deletion, vendor_parses
from documents.models import ObjectDeletion
from documents.storage import buckets, file_cache
from jobs.cluster import maintenance
from jobs.outcomes import StageFailure, Wait
from jobs.safe_errors import safe_error_name

log = logging.getLogger("accessa.documents")

BATCH = 200
# No upload takes so long: its URL has expired, and the incoming file belongs to a process that was killed.
STALE_UPLOAD_SECONDS = 3600.0
VENDOR_RETRY_SECONDS = 300.0  # until a copy that the vendor did not delete, or may have only later, is tried again
THREAD = "forget-at-vendor"


def delete_removed_objects() -> None:
    """Delete objects of deleted documents once no worker can write them again, then drop their rows."""
    due = ObjectDeletion.objects.filter(drop_after__lt=Now(), path__startswith=buckets.URI_PREFIX)
    for document_id in set(due.values_list("document_id", flat=True)[:BATCH]):
        try:
            object_deletion.delete_pending_objects(document_id)
        except OSError as error:  # the store is unavailable: the rows stay due
            log.warning("Files of a deleted document are still in the store: %s", safe_error_name(error))
            continue
        due.filter(document_id=document_id).delete()


def start_vendor_deletions() -> None:
    """Run ``delete_vendor_copies`` in the background if any are due: the maintenance loop must not wait for it."""
    due = ObjectDeletion.objects.filter(path__startswith=vendor_parses.VENDOR_PREFIX, try_after__lt=Now())
    if due.exists():
        maintenance.start_in_background(
            THREAD, delete_vendor_copies, log=log, broke_off="Deleting at the vendor broke off"
        )


def delete_vendor_copies() -> None:
    """Delete the copies at the parsing vendor that are due, one after the other; failures are tried again later."""
    copies = ObjectDeletion.objects.filter(path__startswith=vendor_parses.VENDOR_PREFIX, try_after__lt=Now())
    later = Now() + timedelta(seconds=VENDOR_RETRY_SECONDS)
    for deletion in copies.order_by("try_after")[:BATCH]:
        row = ObjectDeletion.objects.filter(pk=deletion.pk)
        try:
            # A submit that ran during the deletion may make its job late: searched for until no worker can be left.
            is_gone = vendor_parses.delete_vendor_copy(deletion.path) or row.filter(drop_after__lt=Now()).exists()
        except Wait:  # no vendor call is possible now; the next run begins with another copy
            row.update(try_after=later)
            return
        except StageFailure as failure:
            is_gone = False
            log.warning("A deleted document is still at the vendor's: %s", failure.code)
        if is_gone:
            row.delete()
        else:
            row.update(try_after=later)


def delete_stale_uploads() -> None:
    """Delete uploads whose process was killed before they were complete, and expired files of the cache."""
    for name in buckets.BUCKETS:
        for path in buckets.locate(name)[0].stale_incoming(STALE_UPLOAD_SECONDS):
            path.unlink(missing_ok=True)
    file_cache.evict_expired()
