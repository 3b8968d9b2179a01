"""Sidebar of the admin: each item is shown to users with the permission of its page."""

from typing import Any

from django.http import HttpRequest
from django.urls import reverse_lazy

# title, icon, model whose list is shown; or a page and the permission it needs
SECTIONS: dict[str, tuple[tuple[str, ...], ...]] = {
    "Work": (
        ("Dashboard", "dashboard", "admin:index", ""),
        ("Jobs", "conveyor_belt", "jobs.uploadjob"),
        ("Dead letters", "report", "console:dead-letters", "jobs.view_uploadjob"),
        ("Status", "monitor_heart", "console:status", "vendors.view_breaker"),
        ("Pauses", "pause_circle", "console:pauses", "jobs.view_pause"),
        ("Events", "history", "jobs.event"),
        ("Clusters", "memory", "jobs.cluster"),
        ("Documents", "description", "documents.document"),
        ("Passages", "segment", "embeddings.documentchunk"),
        ("Chunk buffers", "inbox", "embeddings.chunkbuffer"),
        ("Vector buffers", "move_to_inbox", "embeddings.vectorbuffer"),
        ("Parse requests", "document_scanner", "documents.parserequest"),
        ("Received webhooks", "webhook", "webhooks.delivery"),
        ("Webhook endpoints", "send", "outbox.webhookendpoint"),
        ("Outbox messages", "outbox", "outbox.message"),
        ("Object deletions", "auto_delete", "documents.objectdeletion"),
    ),
    "Connectors": (
        ("Sources", "hub", "integrations.connectedsource"),
        ("Syncs", "sync", "integrations.ingestionjob"),
        ("Given-up pages", "archive", "integrations.archivedmessage"),
    ),
    "Statutes": (
        ("Statutes", "gavel", "statutes.law"),
        ("Statute versions", "history_edu", "statutes.lawversion"),
        ("Consumers", "inbox_customize", "statutes.consumer"),
    ),
    "Money": (
        ("Purchases", "receipt_long", "vendors.purchase"),
        ("Budgets", "savings", "vendors.budget"),
        ("Breakers", "electric_bolt", "vendors.breaker"),
        ("Rate limits", "speed", "vendors.ratelimit"),
    ),
    "Models": (
        ("Campaigns", "campaign", "reindexing.campaign"),
        ("Active models", "model_training", "embeddings.activemodel"),
        ("Vector indexes", "account_tree", "embeddings.vectorindex"),
    ),
    "Access": (
        ("Users", "person", "accounts.user"),
        ("Groups", "group", "auth.group"),
        ("API tokens", "key", "accounts.apitoken"),
        ("Deleted accounts", "person_remove", "accounts.accountdeletion"),
        ("Audit log", "policy", "audit.auditentry"),
    ),
}


def _item(title: str, icon: str, page: str, permission: str = "") -> dict[str, Any]:
    app, is_model, name = page.partition(".")
    if is_model:
        page, permission = f"admin:{app}_{name}_changelist", f"{app}.view_{name}"

    def is_shown(request: HttpRequest) -> bool:
        return not permission or request.user.has_perm(permission)

    return {"title": title, "icon": icon, "link": reverse_lazy(page), "permission": is_shown}


SIDEBAR: dict[str, Any] = {
    "show_search": False,
    "show_all_applications": False,
    "navigation": [
        {"title": title, "separator": title != "Work", "items": [_item(*row) for row in rows]}
        for title, rows in SECTIONS.items()
    ],
}
