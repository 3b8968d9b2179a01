"""API tokens in a browser: create, copy once, revoke."""

import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from playwright.sync_api import expect

from accounts import api_tokens
from accounts.models import ApiToken
from testing.browser import Visit
from testing.personas import Person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


def test_times_are_the_readers_own_with_utc_on_hover(ana: Person, visit: Callable[..., Visit]) -> None:
    moment = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    ApiToken.objects.filter(user=ana.user).update(created_at=moment, last_used_at=moment)
    home = visit(timezone_id="America/New_York")
    home.is_signed_in(ana.user)

    home.page.goto("/settings/tokens")

    times = home.page.locator("time")
    expect(times).to_have_text(["1 Jan 2026", "1 Jan 2026, 22:04"])
    assert times.first.get_attribute("title") == "2 Jan 2026, 03:04 UTC"


def test_a_tenant_creates_a_token_and_revokes_it(ana: Person, visit: Callable[..., Visit]) -> None:
    ana_visits = visit()
    ana_visits.is_signed_in(ana.user)
    page = ana_visits.page

    page.goto("/")
    page.get_by_role("link", name="API tokens").click()
    expect(page.get_by_role("checkbox")).to_have_count(6)
    assert ana_visits.accessibility_violations() == []
    page.get_by_label("Name").fill("Claude on my laptop")
    page.get_by_role("button", name="Create").click()
    shown = page.get_by_text(re.compile(r"^acc_")).inner_text()
    assert ana_visits.accessibility_violations() == []
    ana_visits.screenshot("tokens-1-created")

    token = api_tokens.find_valid_token(shown)
    assert token is not None
    assert token.scopes == ["search"]
    page.goto("/settings/tokens")
    assert "acc_" not in page.content()
    page.emulate_media(color_scheme="dark")
    ana_visits.phone_screenshot("tokens-2-listed-phone")
    assert ana_visits.accessibility_violations() == []
    page.get_by_role("button", name="Revoke Claude on my laptop").click()
    expect(page.locator(".message")).to_contain_text("The token is revoked")

    assert api_tokens.find_valid_token(shown) is None
    assert ana_visits.wrong == []
    assert ana_visits.foreign == set()
