"""Account in a browser: reset the password by the mail's link, sign in, sign out elsewhere."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from portal.tests.conftest import with_password
from portal.tests.test_account import NEW, path_in_mail
from testing.browser import Visit
from testing.personas import Person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


def test_a_forgotten_password_is_replaced_and_other_browsers_signed_out(
    ana: Person, visit: Callable[..., Visit]
) -> None:
    elsewhere, here = visit(), visit()
    elsewhere.is_signed_in(with_password(ana).user)
    page = here.page

    page.goto("/sign-in")
    page.get_by_role("link", name="Forgot your password?").click()
    page.get_by_label("E-mail address").fill(ana.user.email)
    assert here.accessibility_violations() == []
    page.get_by_role("button", name="Send the link").click()
    expect(page.get_by_role("status").first).to_contain_text("is on its way")
    page.goto(path_in_mail())
    page.get_by_label("New password", exact=False).first.fill(NEW)
    page.get_by_label("New password confirmation").fill(NEW)
    assert here.accessibility_violations() == []
    here.phone_screenshot("account-1-choose-phone")
    page.get_by_role("button", name="Save the password").click()
    expect(page.locator(".message")).to_contain_text("Your password is changed")

    here.sign_in(ana.user.email, NEW)
    page.get_by_role("link", name=f"Account {ana.user.email}").click()
    expect(page.get_by_text("(this one)")).to_have_count(1)
    assert here.accessibility_violations() == []
    here.screenshot("account-2-page")
    page.emulate_media(color_scheme="dark")
    here.phone_screenshot("account-3-page-phone")
    assert here.accessibility_violations() == []
    elsewhere.page.goto("/")
    expect(elsewhere.page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert here.wrong == []
    assert here.foreign == set()
