"""Services of webhook endpoints: create, change, rotate the secret, delete, resend, publish an event."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from accounts import encryption
from accounts.common_error_codes import not_found
from accounts.errors import ApiError
from accounts.rls import as_tenant
from jobs import advisory_locks
from jobs.webhook_events import insert_events
from outbox import error_codes
from outbox.models import Message, WebhookEndpoint
from outbox.webhooks.public_addresses import check_url
from outbox.webhooks.signature import generate_secret

MAX_ENDPOINTS = 10
ROTATION = timedelta(hours=24)  # both secrets sign for so long
SECRETS = ("secret", "previous_secret")
PUBLISH = insert_events("%(type)s::text", "%(data)s::jsonb", "(SELECT %(user_id)s::uuid AS user_id) s")


class NewSecret(NamedTuple):
    endpoint: WebhookEndpoint
    secret: str  # in plain text: shown this once


def publish(*, user_id: UUID, type: str, data: Mapping[str, Any]) -> None:
    """Write an event for the tenant's webhooks, in the caller's transaction. ``data`` has ids and codes only."""
    with connection.cursor() as cursor:
        cursor.execute(PUBLISH, {"user_id": user_id, "type": type, "data": json.dumps(data, default=str)})


def tenant_endpoints(user_id: UUID) -> QuerySet[WebhookEndpoint]:
    """Return a tenant's endpoints without their secrets, which its database role may not read."""
    return WebhookEndpoint.objects.filter(user_id=user_id).defer(*SECRETS)


def tenant_deliveries(user_id: UUID, endpoint_id: UUID) -> QuerySet[Message]:
    return Message.objects.filter(user_id=user_id, kind="webhook", target_id=endpoint_id)


def get_endpoint(user_id: UUID, endpoint_id: UUID) -> WebhookEndpoint:
    """Return a tenant's endpoint, or raise ``ApiError("NOT_FOUND")``."""
    with as_tenant(user_id):
        endpoint = tenant_endpoints(user_id).filter(pk=endpoint_id).first()
    if endpoint is None:
        raise not_found()
    return endpoint


def create_endpoint(*, user_id: UUID, url: str, events: Sequence[str]) -> NewSecret:
    """Create an endpoint. Raises ``ApiError``: "WEBHOOK_URL_INVALID", "WEBHOOK_LIMIT_REACHED"."""
    endpoint, secret = WebhookEndpoint(user_id=user_id, url=check_url(url), events=list(events)), generate_secret()
    endpoint.secret = _encrypt(endpoint, secret)
    with transaction.atomic():
        advisory_locks.lock_transaction(f"webhook_endpoints:{user_id}")
        if tenant_endpoints(user_id).count() >= MAX_ENDPOINTS:
            raise ApiError(error_codes.WEBHOOK_LIMIT_REACHED)
        endpoint.save(force_insert=True)
    return NewSecret(get_endpoint(user_id, endpoint.pk), secret)


def update_endpoint(endpoint: WebhookEndpoint, **changes: Any) -> WebhookEndpoint:
    """Change ``url``, ``events`` or ``enabled``. Enabling forgets the failures. Raises "WEBHOOK_URL_INVALID"."""
    if "url" in changes:
        check_url(changes["url"])
    if "enabled" in changes or "url" in changes:
        changes |= {"disabled_code": None, "failures": 0, "failing_since": None, "paused_until": None}
    _update(endpoint, **changes)
    return get_endpoint(endpoint.user_id, endpoint.pk)


def rotate_secret(endpoint: WebhookEndpoint) -> NewSecret:
    """Give an endpoint a new secret; the one before signs too for 24 hours. An older one ends at once."""
    secret = generate_secret()
    with transaction.atomic():
        locked = WebhookEndpoint.objects.select_for_update().filter(pk=endpoint.pk).first()
        if locked is None:
            raise not_found()
        _update(
            endpoint,
            secret=_encrypt(endpoint, secret),
            previous_secret=locked.secret,
            previous_secret_until=Now() + ROTATION,
        )
    return NewSecret(get_endpoint(endpoint.user_id, endpoint.pk), secret)


def delete_endpoint(endpoint: WebhookEndpoint) -> None:
    """Delete an endpoint with its deliveries. One that is being sent at this moment is sent."""
    with transaction.atomic():
        WebhookEndpoint.objects.filter(pk=endpoint.pk).delete()
        tenant_deliveries(endpoint.user_id, endpoint.pk).delete()


def resend(message: Message) -> Message:
    """Send a message again under the same id, at once and with all its attempts.

    Raises ``ApiError``: "NOT_FOUND", "WEBHOOK_NOT_ENABLED", "MESSAGE_IN_FLIGHT".
    """
    endpoints = WebhookEndpoint.objects.filter(pk=message.target_id, user_id=message.user_id)
    if message.kind == "webhook":
        endpoint = endpoints.first()
        if endpoint is None:
            raise not_found()
        if not endpoint.enabled:
            raise ApiError(error_codes.WEBHOOK_NOT_ENABLED)
    idle = Message.objects.filter(Q(claim_token=None) | Q(due_at__lt=Now()), pk=message.pk)
    fresh = {"state": Message.State.QUEUED, "attempts": 0, "finished_at": None, "last_error": None}
    with transaction.atomic():
        if not idle.update(**fresh, due_at=Now(), claim_token=None):
            raise ApiError(error_codes.MESSAGE_IN_FLIGHT)
        endpoints.update(paused_until=None)
    message.refresh_from_db()
    return message


def signing_secrets(endpoint: WebhookEndpoint) -> list[str]:
    """Return the secrets that sign now, the newest first. Raises ``InvalidToken`` when no key opens one."""
    stored = [endpoint.secret]
    until = endpoint.previous_secret_until
    if endpoint.previous_secret and until and until > timezone.now():
        stored.append(endpoint.previous_secret)
    return [_decrypt(endpoint, bytes(each)) for each in stored]


def _update(endpoint: WebhookEndpoint, **columns: Any) -> None:
    if not WebhookEndpoint.objects.filter(pk=endpoint.pk).update(**columns, updated_at=Now()):
        raise not_found()


def _encrypt(endpoint: WebhookEndpoint, secret: str) -> bytes:
    return encryption.vault().encrypt(json.dumps({"endpoint": str(endpoint.pk), "s": secret}).encode())


def _decrypt(endpoint: WebhookEndpoint, stored: bytes) -> str:
    opened = json.loads(encryption.vault().decrypt(stored))
    if opened["endpoint"] != str(endpoint.pk):
        raise ValueError("A webhook secret is in another endpoint's row.")
    return str(opened["s"])
