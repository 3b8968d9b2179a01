"""Account page, reset of a password by e-mail, sign-up."""

import re
from typing import Any

import pytest
from django.conf import settings as configured
from django.core import mail
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from accounts import invitations, passwords, rate_limit
from accounts.audit.models import AuditEntry
from accounts.models import Invitation, User, UserSession
from outbox.models import Message
from outbox.tests.test_mails import sent
from portal.tests.conftest import PASSWORD, signed_in, with_password
from testing.concurrency import run_concurrently
from testing.personas import Person

pytestmark = pytest.mark.django_db
NEW = "another long password"
TWICE = {"new_password1": NEW, "new_password2": NEW}


def browser() -> Client:
    return Client(headers={"accept": "text/html,*/*"}, raise_request_exception=False)


def path_in_mail() -> str:
    """Send what is due and return the path of its link."""
    found = re.search(rf"{re.escape(configured.PUBLIC_URL)}(/\S+)", str(sent()[-1].body))
    assert found
    return found[1]


def reset_path(person: Person) -> str:
    browser().post("/reset-password", {"email": person.user.email})
    return path_in_mail()


# The account's page


def test_a_changed_password_signs_out_all_other_browsers(ana: Person) -> None:
    here, elsewhere = signed_in(with_password(ana)), signed_in(ana)

    answer = here.post("/settings/account/password", {"old_password": PASSWORD} | TWICE)

    ana.user.refresh_from_db()
    assert answer["Location"] == "/settings/account"
    assert ana.user.check_password(NEW)
    assert [client.get("/").status_code for client in (here, elsewhere)] == [200, 302]
    assert [letter.subject for letter in sent()] == ["Your password for Accessa was changed"]


@pytest.mark.parametrize(
    "wrong", [{"old_password": "wrong"}, {"new_password2": "other"}, {"new_password1": "a", "new_password2": "a"}]
)
def test_a_wrong_form_changes_no_password(wrong: dict[str, str], ana: Person) -> None:
    client = signed_in(with_password(ana))

    answer = client.post("/settings/account/password", {"old_password": PASSWORD} | TWICE | wrong)

    ana.user.refresh_from_db()
    assert 'class="wrong"' in answer.content.decode()
    assert ana.user.check_password(PASSWORD)


@pytest.mark.parametrize(("chosen", "status"), [({}, 200), ({"revoke_tokens": "on"}, 401)])
def test_tokens_end_with_the_password_if_that_is_chosen(chosen: dict[str, str], status: int, ana: Person) -> None:
    signed_in(with_password(ana)).post("/settings/account/password", {"old_password": PASSWORD} | TWICE | chosen)

    assert ana.get("/jobs").status_code == status


def test_the_old_password_cannot_be_guessed_without_end(ana: Person) -> None:
    client = signed_in(with_password(ana))
    for _ in range(rate_limit.PASSWORD_CHECKS.uses):  # type: ignore[arg-type]
        client.post("/settings/account/password", {"old_password": "wrong"} | TWICE)

    answer = client.post("/settings/account/password", {"old_password": PASSWORD} | TWICE)

    assert "too many attempts" in answer.content.decode()
    ana.user.refresh_from_db()
    assert ana.user.check_password(PASSWORD)


def test_the_page_lists_browsers_and_signs_out_the_others(ana: Person) -> None:
    with_password(ana)
    clients = [browser(), browser()]
    for client, agent in zip(clients, ("Firefox/1 Linux", "Chrome/1 Android"), strict=True):
        form = {"username": ana.user.email, "password": PASSWORD}
        client.post("/sign-in", form, headers={"user-agent": agent})

    page = clients[0].get("/settings/account").content.decode()
    clients[0].post("/settings/account/sign-out-others")

    assert "Firefox on Linux (this one)" in page
    assert "Chrome on Android</h3>" in page
    assert all(key not in page for key in UserSession.objects.values_list("session_key", flat=True))
    assert [client.get("/").status_code for client in clients] == [200, 302]


def test_notifications_are_chosen(ana: Person) -> None:
    client = signed_in(ana)

    client.post("/settings/account/notify", {"notify": "daily"})
    refused = client.post("/settings/account/notify", {"notify": "hourly"})

    ana.user.refresh_from_db()
    assert ana.user.notify == "daily"
    assert 'class="wrong"' in refused.content.decode()


@pytest.mark.parametrize("path", ["password", "sign-out-others", "notify"])
def test_sign_in_and_a_csrf_token_are_needed(path: str, ana: Person) -> None:
    strict = Client(enforce_csrf_checks=True, headers={"accept": "text/html"})
    strict.force_login(ana.user)

    assert strict.post(f"/settings/account/{path}").status_code == 403
    assert browser().post(f"/settings/account/{path}").status_code == 302


# Reset by e-mail


def test_a_password_is_reset_by_a_link_once(ana: Person) -> None:
    elsewhere = signed_in(with_password(ana))
    path = reset_path(ana)

    assert browser().get(path).status_code == 200
    assert browser().post(path, TWICE | {"revoke_tokens": "on"})["Location"] == "/sign-in"

    ana.user.refresh_from_db()
    assert ana.user.check_password(NEW)
    assert ana.get("/jobs").status_code == 401
    assert elsewhere.get("/").status_code == 302
    assert browser().post(path, {"new_password1": PASSWORD, "new_password2": PASSWORD}).status_code == 410
    assert str(Message.objects.order_by("created_at").values_list("payload", flat=True)[0]) == (
        "{'type': 'account.password_reset', 'language': 'en'}"
    )


def test_a_known_and_an_unknown_address_get_the_same_answer_and_statements(ana: Person) -> None:
    with_password(ana)
    answers, statements = [], []
    for email in (ana.user.email, "nobody@example.org"):
        client = browser()
        with CaptureQueriesContext(
            connection,
        ) as queries:
            answers.append(client.post("/reset-password", {"email": email}).content)
        statements.append(len(queries))

    assert answers[0] == answers[1]
    assert statements[0] == statements[1]
    assert Message.objects.count() == 1


@pytest.mark.parametrize("change", [{"is_active": False}, {"password": "!unusable"}])
def test_no_link_is_sent_to_who_may_not_sign_in_by_password(change: dict[str, Any], ana: Person) -> None:
    with_password(ana)
    User.objects.update(**change)

    browser().post("/reset-password", {"email": ana.user.email})

    assert not Message.objects.exists()


def test_an_address_gets_few_mails_and_a_client_makes_few_requests(ana: Person) -> None:
    with_password(ana)

    statuses = [browser().post("/reset-password", {"email": ana.user.email}).status_code for _ in range(21)]

    assert statuses == [200] * 20 + [429]
    assert Message.objects.count() == 3


@pytest.mark.parametrize("email", ["", "no address", "a@example.org\nBcc: b@example.org", "a" * 300 + "@example.org"])
def test_an_address_that_is_none_sends_nothing(email: str) -> None:
    answer = browser().post("/reset-password", {"email": email})

    assert 'class="wrong"' in answer.content.decode() or email == ""
    assert not Message.objects.exists()


def test_a_link_expires(ana: Person, settings: Settings) -> None:
    path = reset_path(with_password(ana))

    settings.PASSWORD_RESET_TIMEOUT = -1

    assert browser().get(path).status_code == 410
    assert browser().post(path, TWICE).status_code == 410


def test_a_link_of_another_user_or_with_another_token_is_refused(ana: Person, ben: Person) -> None:
    path = reset_path(with_password(ana))

    for wrong in (path.replace(str(ana.id), str(ben.id)), path[:-1] + ("a" if path[-1] != "a" else "b")):
        assert browser().post(wrong, TWICE).status_code == 410


def test_a_reset_by_staff_is_in_the_audit_log(sam: Person) -> None:
    browser().post(reset_path(with_password(sam)), TWICE)

    assert AuditEntry.objects.get(action="users.set_password").object_id == str(sam.id)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_link_used_twice_at_once_sets_one_password(ana: Person, rf: Any) -> None:
    path = reset_path(with_password(ana))
    token, request = path.rpartition("/")[2], rf.post(path)

    results = run_concurrently(
        *(lambda: passwords.reset_password(ana.id, token, NEW, request, revoke_tokens=False),) * 2
    )

    assert sorted(user is None for user in results) == [False, True]


# Sign-up


@pytest.mark.parametrize(("mode", "status"), [("closed", 404), ("invitation", 404), ("open", 200)])
def test_sign_up_is_offered_where_it_is_open(mode: str, status: int, settings: Settings) -> None:
    settings.SIGN_UP = mode

    assert browser().get("/sign-up").status_code == status
    assert (b'href="/sign-up"' in browser().get("/sign-in").content) is (status == 200)


def test_a_stranger_signs_up_by_a_link(settings: Settings) -> None:
    settings.SIGN_UP = "open"
    browser().post("/sign-up", {"email": "New@example.org"})
    path = path_in_mail()

    assert browser().post(path, TWICE)["Location"] == "/sign-in"

    user = User.objects.get()
    assert (user.email, user.is_staff, user.check_password(NEW)) == ("new@example.org", False, True)
    assert not Invitation.objects.exists()
    assert browser().get(path).status_code == 410


def test_sign_up_does_not_reveal_an_account(ana: Person, settings: Settings) -> None:
    settings.SIGN_UP = "open"

    known, unknown = (browser().post("/sign-up", {"email": e}) for e in (ana.user.email, "new@example.org"))

    assert known.content == unknown.content
    assert not Invitation.objects.filter(email=ana.user.email).exists()
    with_password(ana)
    browser().post("/sign-up", {"email": ana.user.email})
    assert {letter.subject for letter in sent()} == {"You have an account at Accessa", "Your account at Accessa"}


@pytest.mark.parametrize("end", ["closed", "expired", "forged", "account"])
def test_an_invitation_that_is_no_longer_valid_makes_no_account(end: str, settings: Settings) -> None:
    settings.SIGN_UP = "invitation"
    invitation = invitations.create_invitation("new@example.org")
    path = f"/invitation/{invitations.sign(invitation)}"
    if end == "closed":
        settings.SIGN_UP = "closed"
    if end == "expired":
        Invitation.objects.update(expires_at="2020-01-01T00:00:00Z")
    if end == "forged":
        path += "x"
    if end == "account":
        User.objects.create_user("new@example.org", "new@example.org")

    assert browser().post(path, TWICE).status_code == 410
    assert User.objects.count() == (end == "account")
    assert mail.outbox == []


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_an_invitation_accepted_twice_at_once_makes_one_account() -> None:
    invitation = invitations.create_invitation("new@example.org")

    users = run_concurrently(*(lambda: invitations.accept(invitation, NEW),) * 2)

    assert sorted(user is None for user in users) == [False, True]
    assert User.objects.count() == 1
