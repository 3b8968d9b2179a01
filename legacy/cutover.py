"""Cut-over of a tenant: the system that its users ask, old, both or new."""

from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from accounts.audit import log
from accounts.common_error_codes import not_found
from accounts.errors import ApiError
from accounts.models import User
from jobs.choices import State as JobState
from jobs.models import UploadJob
from legacy import error_codes
from legacy.models import LegacyDocument, LegacyTenant


def system_of(user_id: UUID) -> str:
    """Return the system that a tenant uses: old, both or new. A tenant that was never imported is new."""
    tenant = LegacyTenant.objects.filter(pk=user_id).first()
    return tenant.system if tenant else LegacyTenant.System.NEW.value


def switch(*, user_id: UUID, system: str, reason: str, by: User | None = None) -> LegacyTenant:
    """Switch a tenant between the systems; the audit log keeps it.

    Raises ``ApiError``: "NOT_FOUND" for a tenant that was not imported, "LEGACY_UNFINISHED" for the new system while
    imported documents are not searchable.
    """
    with transaction.atomic():
        tenant = LegacyTenant.objects.select_for_update().filter(pk=user_id).first()
        if tenant is None:
            raise not_found()
        if system == LegacyTenant.System.NEW and unfinished_documents(user_id):
            raise ApiError(error_codes.LEGACY_UNFINISHED)
        former, tenant.system = tenant.system, system
        LegacyTenant.objects.filter(pk=user_id).update(system=system, changed_at=Now())
        log.record_action(
            by=by, action="legacy.switch", reason=reason, object_type="tenant", object_id=user_id, tenant_id=user_id,
            former=former, system=system,
        )  # fmt: skip
    return tenant


def unfinished_documents(user_id: UUID) -> int:
    """Count the tenant's imported documents whose job has not ended well."""
    jobs = LegacyDocument.objects.filter(user_id=user_id, job_id__isnull=False).values("job_id")
    return UploadJob.objects.filter(pk__in=jobs).exclude(state=JobState.DONE).count()
