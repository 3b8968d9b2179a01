"""API tokens in a browser: create, copy once, revoke."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from accounts import api_tokens
from testing.browser import Visit
from testing.personas import Person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


def test_a_tenant_creates_a_token_and_revokes_it(ana: Person, visit: Callable[..., Visit]) -> None:
    ana_visits = visit()
    ana_visits.is_signed_in(ana.user)
    page = ana_visits.page

    page.goto("/")
    page.get_by_role("link", name="API tokens").click()
    expect(page.get_by_role("checkbox")).to_have_count(5)
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
