"""Rollback of an import run: what the run made and nobody has touched since is removed."""

from collections import Counter

from django.db import transaction
from django.db.models.functions import Now

from accounts.audit import log
from accounts.models import User
from documents import services
from documents.models import Document
from jobs.models import Event, UploadJob
from legacy.cutover import switch
from legacy.models import ImportRun, LegacyDocument, LegacyTenant

TOUCHED_CODES = ("UPLOAD_DEDUP_HIT", "REQUEUED")


def roll_back(run: ImportRun, *, reason: str) -> Counter[str]:
    """Remove what a run made and nobody has touched since; its tenants use the old system again.

    Counts: deleted, kept (documents), users, tenants (switched). May be repeated after a kill.
    """
    counts: Counter[str] = Counter()
    of_run = run.documents.filter(user_id__isnull=False).values("user_id")
    for tenant in LegacyTenant.objects.filter(pk__in=of_run).exclude(system=LegacyTenant.System.OLD):
        switch(user_id=tenant.pk, system=LegacyTenant.System.OLD, reason=reason)
        counts["tenants"] += 1
    for row in run.documents.order_by("old_id"):
        if row.state != LegacyDocument.State.IMPORTED or delete_untouched(row):
            counts["deleted"] += row.state == LegacyDocument.State.IMPORTED
            row.delete()
        else:
            counts["kept"] += 1
    for tenant in run.tenants.all():
        counts["users"] += _delete_tenant(tenant)
    with transaction.atomic():
        ImportRun.objects.filter(pk=run.pk).update(state=ImportRun.State.ROLLED_BACK, finished_at=Now())
        log.record_action(
            by=None,
            action="legacy.rollback",
            reason=reason,
            object_type="legacy_run",
            object_id=run.pk,
            counts=dict(counts),
        )
    return counts


def delete_untouched(row: LegacyDocument) -> bool:
    """Delete an imported document unless somebody has touched it; return whether it is gone."""
    document = Document.objects.filter(pk__in=[row.document_id]).first()
    return document is None or services.delete(
        document, unless=lambda: _is_touched(row), by=log.COMMAND_LINE_ACTOR, reason="Import rolled back."
    )


def _is_touched(row: LegacyDocument) -> bool:
    document = [row.document_id]
    others = UploadJob.objects.filter(document_id__in=document).exclude(pk__in=[row.job_id])
    events = Event.objects.filter(document_id__in=document, code__in=TOUCHED_CODES)
    merged = LegacyDocument.objects.filter(document_id__in=document).exclude(run=row.run)
    return others.exists() or events.exists() or merged.exists()


def _delete_tenant(tenant: LegacyTenant) -> bool:
    """Delete a tenant's row, and the user that the run made unless they have anything; tell whether they are gone."""
    user_id = tenant.pk
    if LegacyDocument.objects.filter(user_id=user_id).exists():
        return False
    with transaction.atomic():
        tenant.delete()
        users = User.objects.filter(pk=user_id, last_login=None, api_tokens=None)
        if not tenant.created or Document.objects.filter(user_id=user_id).exists():
            return False
        return bool(users.delete()[0])
