"""Sidebar of the admin: each item is shown to users with the permission of its page."""

from typing import Any

from django.http import HttpRequest
from django.urls import reverse_lazy


def _item(title: str, icon: str, route: str, permission: str) -> dict[str, Any]:
    def is_shown(request: HttpRequest) -> bool:
        return request.user.has_perm(permission)

    return {"title": title, "icon": icon, "link": reverse_lazy(route), "permission": is_shown}


def _rows(title: str, icon: str, model: str) -> dict[str, Any]:
    app, _, name = model.partition(".")
    return _item(title, icon, f"admin:{app}_{name}_changelist", f"{app}.view_{name}")


SIDEBAR: dict[str, Any] = {
    "show_search": False,
    "show_all_applications": False,
    "navigation": [
        {
            "title": "Work",
            "items": [
                {"title": "Dashboard", "icon": "dashboard", "link": reverse_lazy("admin:index")},
                _rows("Jobs", "conveyor_belt", "jobs.uploadjob"),
                _item("Dead letters", "report", "console:dead-letters", "jobs.view_uploadjob"),
                _rows("Events", "history", "jobs.event"),
                _rows("Workers", "memory", "jobs.cluster"),
                _rows("Documents", "description", "documents.document"),
                _rows("Passages", "segment", "embeddings.documentchunk"),
                _rows("Chunk buffer", "inbox", "embeddings.chunkbuffer"),
                _rows("Vector buffer", "move_to_inbox", "embeddings.vectorbuffer"),
                _rows("Parse requests", "document_scanner", "documents.parserequest"),
                _rows("Webhooks received", "webhook", "webhooks.delivery"),
                _rows("Object deletions", "auto_delete", "documents.objectdeletion"),
            ],
        },
        {
            "title": "Connectors",
            "separator": True,
            "items": [
                _rows("Sources", "hub", "integrations.connectedsource"),
                _rows("Syncs", "sync", "integrations.ingestionjob"),
                _rows("Given-up pages", "archive", "integrations.archivedmessage"),
            ],
        },
        {
            "title": "Statutes",
            "separator": True,
            "items": [
                _rows("Laws", "gavel", "statutes.law"),
                _rows("Law versions", "history_edu", "statutes.lawversion"),
                _rows("Consumers", "inbox_customize", "statutes.consumer"),
            ],
        },
        {
            "title": "Money",
            "separator": True,
            "items": [
                _rows("Purchases", "receipt_long", "vendors.purchase"),
                _rows("Budgets", "savings", "vendors.budget"),
                _rows("Breakers", "electric_bolt", "vendors.breaker"),
                _rows("Rate limits", "speed", "vendors.ratelimit"),
            ],
        },
        {
            "title": "Models",
            "separator": True,
            "items": [
                _rows("Campaigns", "campaign", "reindexing.campaign"),
                _rows("Active models", "model_training", "embeddings.activemodel"),
                _rows("Vector indexes", "account_tree", "embeddings.vectorindex"),
            ],
        },
        {
            "title": "Access",
            "separator": True,
            "items": [
                _rows("Users", "person", "accounts.user"),
                _rows("Groups", "group", "auth.group"),
                _rows("API tokens", "key", "accounts.apitoken"),
                _rows("Audit log", "policy", "audit.auditentry"),
            ],
        },
    ],
}
