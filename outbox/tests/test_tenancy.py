"""Row-level security of the outbox: tenants read their own rows, and no secret."""

from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.db.utils import ProgrammingError

from accounts.rls import as_tenant
from outbox.models import EVENTS, Message, WebhookEndpoint
from outbox.webhooks import endpoints
from outbox.webhooks.endpoints import tenant_endpoints

pytestmark = pytest.mark.django_db


def test_a_tenant_reads_its_own_rows_only() -> None:
    ana, ben = uuid4(), uuid4()
    for tenant in (ana, ben):
        endpoints.create_endpoint(user_id=tenant, url="https://hooks.example.com/", events=EVENTS)
        endpoints.publish(user_id=tenant, type="sync.failed", data={})

    with as_tenant(ana):
        assert set(Message.objects.values_list("user_id", flat=True)) == {ana}
        assert [endpoint.user_id for endpoint in WebhookEndpoint.objects.defer("secret", "previous_secret")] == [ana]
        assert not tenant_endpoints(ben).exists()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT secret FROM webhook_endpoints",
        "SELECT previous_secret FROM webhook_endpoints",
        "SELECT * FROM webhook_endpoints",
        "UPDATE webhook_endpoints SET url = 'https://example.com/'",
        "DELETE FROM webhook_endpoints",
        "INSERT INTO outbox DEFAULT VALUES",
        "UPDATE outbox SET state = 'queued'",
        "DELETE FROM outbox",
    ],
)
def test_a_tenant_reads_no_secret_and_writes_nothing(sql: str) -> None:
    with (
        pytest.raises(ProgrammingError, match="permission denied"),
        transaction.atomic(),
        as_tenant(uuid4()),
        connection.cursor() as cursor,
    ):
        cursor.execute(sql)
