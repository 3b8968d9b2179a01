"""How long what failed is kept: a version that nobody mends is taken out in the end, and its row stays as history."""

from __future__ import annotations

import logging
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Now

from documents import services
from documents.locks import lock
from documents.models import Document
from jobs.models import UploadJob
from jobs.states import ACTIVE
from statutes.models import LawVersion

log = logging.getLogger("accessa.statutes")

AT_ONCE = 20
_OLD = "v.updated_at < clock_timestamp() - make_interval(days => %(days)s)"
_NOT_FOUND = "NOT EXISTS (SELECT FROM laws w WHERE w.document_id = v.document_id)"
_DUE = f"v.status = 'failed' AND {_OLD} AND {_NOT_FOUND}"
# Asked before any lock is taken, so that what is due and never goes does not stand before the rest.
FAILED = f"""
    SELECT v.document_id FROM law_versions v JOIN documents d USING (document_id)
    WHERE {_DUE} ORDER BY v.updated_at LIMIT %(most)s"""
STILL = f"SELECT EXISTS (SELECT FROM law_versions v WHERE v.document_id = %(document_id)s AND {_DUE})"


def take_out_failed() -> None:
    """Remove files, rows, work and canonical text of versions that failed STATUTES_FAILED_DAYS ago; 0 keeps them.

    What is found of a law is never touched, even where doing it anew has failed. A message brings a version back.
    """
    if not settings.STATUTES_FAILED_DAYS:
        return
    with connection.cursor() as cursor:
        cursor.execute(FAILED, {"days": settings.STATUTES_FAILED_DAYS, "most": AT_ONCE})
        due = [document_id for (document_id,) in cursor.fetchall()]
    for document_id in due:
        if _taken_out(document_id):
            services.delete_objects(document_id)
            log.info("A failed version of a law was taken out: %s.", document_id)


def _taken_out(document_id: UUID) -> bool:
    """Take a version out unless a message has come for it by now, or somebody works on it."""
    with transaction.atomic():
        lock(document_id)  # before any row, as intake and deletions do
        document = Document.objects.filter(pk=document_id).first()
        is_active = UploadJob.objects.filter(document_id=document_id, state__in=ACTIVE).exists()
        if document is None or is_active or not _is_due(document_id):
            return False
        services.delete_rows(document)
        LawVersion.objects.filter(pk=document_id).update(canonical=None, job_id=None, refused=[], updated_at=Now())
    return True


def _is_due(document_id: UUID) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(STILL, {"document_id": document_id, "days": settings.STATUTES_FAILED_DAYS})
        return bool(cursor.fetchone()[0])
