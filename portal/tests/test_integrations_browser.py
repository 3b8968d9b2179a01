"""Connecting a system in a browser: consent, progress, disconnecting."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from integrations.models import ConnectedSource, IngestionJob
from integrations.tests import grants
from testing.browser import Visit
from testing.fakes.oauth import OAuthServer
from testing.personas import Person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


@pytest.fixture
def oauth(live_server: Any, settings: Any) -> Iterator[OAuthServer]:
    settings.PUBLIC_URL = live_server.url
    with OAuthServer() as server:
        grants.use_fake_oauth(settings, server)
        yield server


def test_a_tenant_consents_watches_reconnects_and_lets_go(
    ana: Person, oauth: OAuthServer, visit: Callable[..., Visit]
) -> None:
    ana_visits = visit()
    ana_visits.is_signed_in(ana.user)
    page = ana_visits.page

    page.goto("/")
    page.get_by_role("link", name="Connections").click()
    assert ana_visits.accessibility_violations() == []
    ana_visits.screenshot("integrations-1-offered")
    page.get_by_role("link", name="Connect HubSpot").click()
    expect(page.locator(".message")).to_contain_text("HubSpot is connected.")
    assert page.url.endswith("/settings/integrations")
    expect(page.locator("#sources")).to_contain_text("It begins in a moment.")

    IngestionJob.objects.update(status="running", items_seen=1240, items_written=20)
    expect(page.locator("#sources")).to_contain_text("1,240 records looked at")  # by itself
    assert ana_visits.accessibility_violations() == []
    ana_visits.screenshot("integrations-2-fetching")
    IngestionJob.objects.update(status="failed", error_message="max_retries_exceeded")
    expect(page.locator("#sources")).to_contain_text("broke off too often")
    expect(page.get_by_role("button", name="Sync now HubSpot")).to_be_visible()

    ConnectedSource.objects.update(status="error", status_message="refresh_token_invalid: invalid_grant")
    page.reload()
    ana_visits.phone_screenshot("integrations-3-broken-phone")
    page.emulate_media(color_scheme="dark")
    assert ana_visits.accessibility_violations() == []
    page.emulate_media(color_scheme="light")
    page.get_by_role("link", name="Reconnect HubSpot").click()
    expect(page.locator(".message")).to_contain_text("HubSpot is connected.")

    page.get_by_role("link", name="Disconnect HubSpot").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Disconnect HubSpot?")
    assert ana_visits.accessibility_violations() == []
    page.get_by_role("button", name="Disconnect").click()
    expect(page.locator("#sources")).to_contain_text("Being removed.")
    ana_visits.screenshot("integrations-4-leaving")
    assert ana_visits.wrong == []
