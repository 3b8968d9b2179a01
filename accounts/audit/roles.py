"""Staff roles: the permissions of the groups support and operator."""

from django.contrib.auth.models import Group, Permission
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Q

VIEW_PERMISSIONS = (
    "jobs.view_uploadjob", "jobs.view_event", "jobs.view_cluster", "jobs.view_pause",
    "documents.view_document", "documents.view_parserequest", "documents.view_objectdeletion",
    "embeddings.view_chunkbuffer", "embeddings.view_documentchunk", "embeddings.view_vectorbuffer",
    "embeddings.view_activemodel", "embeddings.view_vectorindex",
    "outbox.view_message", "outbox.view_webhookendpoint", "webhooks.view_delivery",
    "reindexing.view_campaign", "accounts.view_user",
    "metrics.view_metricrollup",
    "integrations.view_connectedsource", "integrations.view_ingestionjob", "integrations.view_archivedmessage",
    "statutes.view_law", "statutes.view_lawversion", "statutes.view_consumer",
    "accounts.view_accountdeletion",
    "vendors.view_purchase", "vendors.view_budget", "vendors.view_breaker", "vendors.view_ratelimit",
)  # fmt: skip
SUPPORT_PERMISSIONS = (*VIEW_PERMISSIONS, "jobs.retry_uploadjob", "documents.read_text", "outbox.resend_message")
GROUPS = {
    "support": SUPPORT_PERMISSIONS,
    "operator": (
        *SUPPORT_PERMISSIONS, "jobs.cancel_uploadjob", "jobs.discard_uploadjob", "jobs.change_pause",
        "integrations.replay_archivedmessage",
        "statutes.reprocess_lawversion", "statutes.withdraw_law",
        "reindexing.add_campaign", "reindexing.change_campaign",
        "accounts.view_apitoken", "accounts.add_apitoken", "accounts.revoke_apitoken",
        "audit.view_auditentry", "audit.export_auditentry",
    ),
}  # fmt: skip


def sync_group(name: str) -> Group:
    """Return the group with exactly the permissions of ``GROUPS``. No migration creates it: permissions come later."""
    names = set(GROUPS[name])
    codenames = Q()
    for permission_name in names:
        app, _, codename = permission_name.partition(".")
        codenames |= Q(content_type__app_label=app, codename=codename)
    permissions = list(Permission.objects.filter(codenames).select_related("content_type"))
    missing = names - {f"{row.content_type.app_label}.{row.codename}" for row in permissions}
    if missing:
        raise ImproperlyConfigured(f"Run manage.py migrate first: {', '.join(sorted(missing))} does not exist yet.")
    group, _ = Group.objects.get_or_create(name=name)
    group.permissions.set(permissions)
    return group
