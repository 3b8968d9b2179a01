"""Withdrawal of a law: rows, passages, vectors, jobs, and our objects in the bucket."""

from concurrent.futures import ThreadPoolExecutor

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from accounts.audit import log as audit_log
from accounts.common_error_codes import not_found, unavailable
from accounts.errors import ApiError
from accounts.models import User
from accounts.system_tenant import SYSTEM_TENANT_ID
from documents import services
from documents.locks import lock_document
from documents.models import Document
from jobs.advisory_locks import session_lock
from statutes import document_ids
from statutes.error_codes import LAW_BUSY
from statutes.intake import WITHDRAWN
from statutes.models import Law, LawVersion
from statutes.s3 import client, keys

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")


def withdraw(law_id: str, *, by: User | None, reason: str) -> None:
    """Withdraw a law with all versions: rows, passages, vectors, jobs, and our objects in the bucket.

    The raw files belong to their uploaders and stay. Safe to repeat after a crash. Raises ``ApiError``: ``NOT_FOUND``,
    ``LAW_BUSY`` (it is being published), ``REASON_REQUIRED``, and ``UNAVAILABLE`` of the bucket: the law is not
    searchable any more then, and repeating removes the rest.
    """
    audit_log.clean_reason(reason)
    # A concurrent publication would upload what is deleted here.
    with session_lock(document_ids.publish_lock_key(law_id)) as is_ours:
        if not is_ours:
            raise ApiError(LAW_BUSY, "This statute is being published; try again in a minute.")
        if not (Law.objects.filter(pk=law_id).exists() or LawVersion.objects.filter(law_id=law_id).exists()):
            raise not_found()
        for document in _erase_documents(law_id, by=by, reason=reason):
            services.delete_objects(document.pk)
        try:
            if settings.STATUTES_BUCKET:  # else its artifacts were read from a folder
                bucket = client.statutes_bucket()
                client.delete_object(bucket, keys.manifest(law_id))  # first: readers trust only what it names
                client.delete_object(bucket, keys.vectors(law_id))
                names = [key for folder in keys.folders(law_id) for key in client.list_keys(bucket, folder)]
                with ThreadPoolExecutor(client.CONCURRENCY, thread_name_prefix="withdraw") as pool:
                    list(pool.map(lambda key: client.delete_object(bucket, key), names))
        except OSError as error:
            raise unavailable("The bucket cannot be reached; withdraw the statute again to remove the rest.") from error
        _delete_rows(law_id)
    log.info("A statute was withdrawn.", law=law_id)


def _erase_documents(law_id: str, *, by: User | None, reason: str) -> list[Document]:
    with transaction.atomic():
        rows = LawVersion.objects.filter(law_id=law_id)
        # Both documents of each version: a job may just be moving from one to the other.
        names = rows.values_list("version", flat=True)
        both = sorted({pk for name in names for pk in document_ids.document_ids(law_id, name)})
        for document_id in both:
            lock_document(document_id)  # before any row, as intake and deletions do
        documents = list(Document.objects.filter(pk__in=both, user_id=SYSTEM_TENANT_ID).order_by("pk"))
        for document in documents:
            services.delete_rows(document)
        count = rows.filter(pk__in=both).update(
            status=Law.Status.FAILED, error_code=WITHDRAWN, job_id=None, canonical=None, updated_at=Now()
        )
        Law.objects.filter(pk=law_id).update(
            document_id=None, status=Law.Status.FAILED, chunk_count=0, updated_at=Now()
        )
        audit_log.record_action(
            by=by, action="laws.withdraw", reason=reason, object_type="law", object_id=law_id,
            tenant_id=SYSTEM_TENANT_ID, versions=count, documents=len(documents),
        )  # fmt: skip
    return documents


def _delete_rows(law_id: str) -> None:
    """Delete the rows of withdrawn versions; a version that a message has brought meanwhile stays."""
    with transaction.atomic():
        withdrawn = LawVersion.objects.filter(law_id=law_id, error_code=WITHDRAWN)
        for document_id in sorted(withdrawn.values_list("pk", flat=True)):
            lock_document(document_id)  # before any row, as intake does, which reads a row that it has just inserted
        withdrawn.delete()
        law = Law.objects.select_for_update().filter(pk=law_id, document_id=None).first()
        # Checked under the law's lock: until then a message may be adding a version.
        if law is not None and not LawVersion.objects.filter(law_id=law_id).exists():
            law.delete()
