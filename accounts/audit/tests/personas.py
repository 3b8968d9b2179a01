"""Staff users for tests of the admin, and the audit entries that they leave."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.contrib.auth.models import Permission
from django.db.models import Q
from django.test import Client
from django.urls import reverse

from accounts.audit import roles
from accounts.audit.models import AuditEntry
from accounts.models import User


class Staff:
    """Somebody who is signed in to the admin with exactly these permissions, or as a group's member."""

    def __init__(self, name: str, *permissions: str, group: str = "", superuser: bool = False) -> None:
        email = f"{name}@example.org"
        self.user = User.objects.create_user(email, email, is_staff=True, is_superuser=superuser)
        codenames = Q(pk=None)
        for each in permissions:
            app, _, codename = each.partition(".")
            codenames |= Q(content_type__app_label=app, codename=codename)
        self.user.user_permissions.set(Permission.objects.filter(codenames))
        if group:
            self.user.groups.add(roles.sync_group(group))
        self.client = Client()
        self.client.force_login(self.user)

    def get(self, route: str, *ids: Any, **query: Any) -> Any:
        return self.client.get(reverse(f"admin:{route}", args=ids), query)

    def post(self, route: str, *ids: Any, **fields: Any) -> Any:
        return self.client.post(reverse(f"admin:{route}", args=ids), fields)

    def page(self, route: str, *ids: Any, **query: Any) -> str:
        """Return a page that must be answered."""
        answer = self.get(route, *ids, **query)
        assert answer.status_code == 200, (route, answer.status_code)
        return str(answer.content.decode())


def audit_entries() -> Sequence[tuple[str, str, str, UUID | None]]:
    """Return the entries of the audit log: action, actor, object, tenant, the newest last."""
    return list(AuditEntry.objects.order_by("at").values_list("action", "actor", "object_id", "tenant_id"))
