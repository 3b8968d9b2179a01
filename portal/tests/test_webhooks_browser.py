"""Pages of webhooks in a browser: create, copy the secret, see a failed delivery, send it again, delete."""

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from outbox.models import Message
from outbox.webhooks import endpoints
from testing.browser import Visit
from testing.personas import Person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
LONG = "https://hooks.example.com/" + "a-very-long-path/" * 12


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_tenant_creates_a_webhook_and_sends_a_failed_delivery_again(
    scheme: Any, ana: Person, visit: Callable[..., Visit]
) -> None:
    seen = visit(color_scheme=scheme)
    seen.is_signed_in(ana.user)
    page = seen.page

    page.goto("/settings/webhooks")
    page.get_by_label("Address").fill(LONG)
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_text("whsec_")).to_be_visible()
    assert seen.accessibility_violations() == []
    seen.screenshot(f"webhooks-{scheme}")
    seen.phone_screenshot(f"webhooks-{scheme}-phone")

    endpoints.publish(user_id=ana.id, type="document.failed", data={})
    entry = {"attempt": 10, "at": "2026-11-23T00:00:00+00:00", "status": 503, "code": "WEBHOOK_STATUS", "ms": 87}
    Message.objects.update(state="failed", last_error="WEBHOOK_STATUS", log=[entry], finished_at=timezone.now())
    page.get_by_role("link", name=LONG).click()
    expect(page.get_by_text("Failed (503).")).to_be_visible()
    page.locator("summary").click()
    assert seen.accessibility_violations() == []
    seen.screenshot(f"webhook-{scheme}")
    seen.phone_screenshot(f"webhook-{scheme}-phone")

    page.get_by_role("button", name="Send again").click()
    expect(page.get_by_text("It is sent again in a moment.")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("The webhook is deleted.")).to_be_visible()
    assert (seen.wrong, seen.foreign) == ([], set())
