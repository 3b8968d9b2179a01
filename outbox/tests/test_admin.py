"""Admin of the outbox: ids, codes and hosts only; failed messages are sent again with a reason."""

import pytest
from django.utils import timezone

from accounts.audit.tests.personas import Staff, audit_entries
from outbox.models import Message, WebhookEndpoint
from outbox.webhooks import endpoints
from testing.personas import Person

pytestmark = pytest.mark.django_db
MESSAGES = "outbox_message_changelist"


@pytest.fixture
def failed(ana: Person) -> Message:
    endpoints.create_endpoint(user_id=ana.id, url="https://hooks.example.com/key-of-ana", events=["document.failed"])
    endpoints.publish(user_id=ana.id, type="document.failed", data={"code": "NOT_A_PDF"})
    entry = {"attempt": 10, "at": "2026-11-23T00:00:00+00:00", "status": 503, "code": "WEBHOOK_STATUS", "ms": 87}
    Message.objects.update(
        state="failed", attempts=10, last_error="WEBHOOK_STATUS", log=[entry], finished_at=timezone.now()
    )
    return Message.objects.get()


def test_lists_show_codes_and_hosts_and_no_address(failed: Message) -> None:
    support = Staff("support", group="support")

    shown = [
        support.page(MESSAGES, state="failed"),
        support.page("outbox_message_change", failed.pk),
        support.page("outbox_webhookendpoint_changelist"),
        support.page("outbox_webhookendpoint_change", failed.target_id),
    ]

    assert [page for page in shown if "key-of-ana" in page] == []
    assert "WEBHOOK_STATUS" in shown[0]
    assert "503" in shown[1]
    assert all("hooks.example.com" in page for page in shown[2:])
    assert str(failed.pk) not in support.page(MESSAGES, state="delivered")


def test_support_sends_again_with_a_reason(failed: Message) -> None:
    support = Staff("support", group="support")
    chosen = {"action": "resend", "index": "0", "_selected_action": [failed.pk]}

    support.post(MESSAGES, **chosen)
    assert Message.objects.get().state == "failed"
    support.post(MESSAGES, **chosen, confirmed="yes", reason="ticket 7")

    message = Message.objects.get()
    assert (message.state, message.attempts) == ("queued", 0)
    assert audit_entries() == [("outbox.resend", support.user.username, str(failed.pk), failed.user_id)]


def test_what_cannot_be_sent_again_is_named(failed: Message) -> None:
    WebhookEndpoint.objects.update(enabled=False)
    support = Staff("support", group="support")

    answer = support.post(
        MESSAGES, action="resend", index="0", _selected_action=[failed.pk], confirmed="yes", reason="ticket 7"
    )

    assert answer.status_code == 302
    assert Message.objects.get().state == "failed"
    assert audit_entries() == []
