"""Two-step sign-in: its setup, codes, recovery codes, and what a session without a code may not reach."""

import base64
import re
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP
from django.core.management import call_command
from django.test import Client

from accounts import encryption, rate_limit, totp
from accounts.audit.models import AuditEntry
from accounts.audit.tests.personas import Staff
from accounts.models import User
from outbox.tests.test_mails import sent
from portal.tests.conftest import PASSWORD, signed_in, with_password
from portal.tests.test_account import TWICE, browser, reset_path
from testing.concurrency import run_concurrently
from testing.personas import Person

pytestmark = pytest.mark.django_db
SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"


def code(secret: str = SECRET, *, seconds: int = 0) -> str:
    """Return what an app shows, computed apart from the code that is tested."""
    return TOTP(base64.b32decode(secret), 6, SHA1(), 30).generate(time.time() + seconds).decode()


def with_totp(user: User) -> list[str]:
    """Turn it on and return the recovery codes. The first code is then the next one."""
    codes = totp.turn_on(user, SECRET, code(), browser().session)
    User.objects.filter(pk=user.pk).update(totp_step=None)
    return codes


def after_password(user: User, path: str = "/sign-in") -> Client:
    client = browser()
    client.post(path, {"username": user.email, "password": PASSWORD})
    return client


@pytest.mark.parametrize("path", ["off", "codes"])
def test_a_page_from_before_it_was_turned_off_does_not_say_that_it_is_on(path: str, ana: Person) -> None:
    answer = signed_in(ana).post(f"/settings/two-step/{path}", {"code": "123456"}, follow=True)

    assert answer.redirect_chain == [("/settings/two-step", 302)]
    assert b"It is on" not in answer.content


def test_of_two_sessions_that_turn_it_on_at_once_the_first_counts(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = signed_in(with_password(ana)), signed_in(ana)
    secrets = [re.findall(r"<code>([A-Z2-7]{32})</code>", each.get("/settings/two-step").content.decode())[0]
               for each in (first, second)]  # fmt: skip
    turn_on = totp.turn_on

    def turn_on_after_the_first(*arguments: Any) -> list[str]:
        monkeypatch.setattr(totp, "turn_on", turn_on)
        first.post("/settings/two-step", {"password": PASSWORD, "code": code(secrets[0])})
        return turn_on(*arguments)

    monkeypatch.setattr(totp, "turn_on", turn_on_after_the_first)
    answer = second.post("/settings/two-step", {"password": PASSWORD, "code": code(secrets[1])}, follow=True)

    assert answer.redirect_chain[-1][0].startswith("/sign-in")
    assert first.get("/").status_code == 200
    assert totp.verify(User.objects.get(pk=ana.id), code(secrets[0], seconds=30))
    assert len(sent()) == 1


def test_it_is_turned_on_with_a_code_and_ends_other_sessions(ana: Person) -> None:
    here, elsewhere = signed_in(with_password(ana)), signed_in(ana)
    page = here.get("/settings/two-step").content.decode()
    secret = re.findall(r"<code>([A-Z2-7]{32})</code>", page)[0]
    wrong = [{"password": "wrong", "code": code(secret)}, {"password": PASSWORD, "code": "000000"}]

    refused = [here.post("/settings/two-step", form).content.decode() for form in wrong]
    assert all('class="wrong"' in answer and secret in answer for answer in refused)
    assert not totp.is_on(User.objects.get(pk=ana.id))
    answer = here.post("/settings/two-step", {"password": PASSWORD, "code": code(secret)}).content.decode()

    assert len(re.findall(r"<code>(?:[A-Z2-7]{4}-){3}[A-Z2-7]{4}</code>", answer)) == totp.RECOVERY_CODES
    assert [client.get("/").status_code for client in (here, elsewhere)] == [200, 302]
    assert secret.encode() not in bytes(User.objects.get(pk=ana.id).totp_secret or b"")
    assert [letter.subject for letter in sent()] == ["Two-step sign-in for Accessa is on"]


@pytest.mark.parametrize("path", ["/", "/settings/account", "/settings/two-step", "/find", "/documents", "/usage"])
def test_the_password_alone_opens_nothing(path: str, ana: Person) -> None:
    with_totp(with_password(ana).user)

    client = after_password(ana.user)

    assert client.get(path).status_code in (302, 401)
    assert client.get("/settings/account", follow=True).redirect_chain[-1][0].startswith("/sign-in/code?next=")


def test_a_code_signs_in_and_leads_to_the_page_once(ana: Person) -> None:
    with_totp(with_password(ana).user)
    first, second = after_password(ana.user), after_password(ana.user)
    key = first.session.session_key

    form = {"code": code(), "next": "/settings/tokens"}
    answer, replayed = first.post("/sign-in/code", form), second.post("/sign-in/code", form)

    assert answer["Location"] == "/settings/tokens"
    assert (first.get("/").status_code, second.get("/").status_code) == (200, 302)
    assert "used already" in replayed.content.decode()
    assert first.session.session_key != key


def test_the_code_that_turns_it_on_is_used(ana: Person) -> None:
    early = code(seconds=30)  # of an app whose clock is fast

    totp.turn_on(ana.user, SECRET, early, browser().session)

    assert not totp.verify(ana.user, early)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["code", "recovery code"])
def test_a_code_that_is_used_twice_at_once_is_taken_once(kind: str, ana: Person) -> None:
    recovery = with_totp(ana.user)
    used = code() if kind == "code" else recovery[0]

    taken = run_concurrently(*[lambda: totp.verify(ana.user, used)] * 4)

    assert sorted(taken) == [False, False, False, True]


def test_a_code_leads_to_our_own_pages_only(ana: Person) -> None:
    with_totp(with_password(ana).user)

    answer = after_password(ana.user).post("/sign-in/code", {"code": code(), "next": "https://evil.example"})

    assert answer["Location"] == "/"


@pytest.mark.parametrize("wrong", ["", "000000", "12345", "x" * 41, "١٢٣٤٥٦", "AAAA-AAAA-AAAA-AAAA", "old", "early"])
def test_a_wrong_code_is_refused(wrong: str, ana: Person) -> None:
    with_totp(with_password(ana).user)
    client = after_password(ana.user)
    wrong = {"old": code(seconds=-90), "early": code(seconds=90)}.get(wrong, wrong)

    answer = client.post("/sign-in/code", {"code": wrong})

    assert 'class="wrong"' in answer.content.decode()
    assert client.get("/").status_code == 302


def test_codes_cannot_be_guessed_from_many_sessions(ana: Person) -> None:
    with_totp(with_password(ana).user)
    for _ in range(rate_limit.SIGN_IN_CODES.uses):  # type: ignore[arg-type]
        after_password(ana.user).post("/sign-in/code", {"code": "000000"})

    answer = after_password(ana.user).post("/sign-in/code", {"code": code()})

    assert "too many attempts" in answer.content.decode()


def test_a_recovery_code_is_taken_once_and_new_ones_replace_all(ana: Person) -> None:
    codes = with_totp(with_password(ana).user)
    client = after_password(ana.user)

    client.post("/sign-in/code", {"code": codes[0].lower()})
    replaced = client.post("/settings/two-step/codes", {"code": codes[1]}).content.decode()

    assert client.get("/").status_code == 200
    new = re.findall(r"<code>([A-Z2-7-]+)</code>", replaced)
    assert len(new) == totp.RECOVERY_CODES
    assert [totp.verify(ana.user, each) for each in (codes[0], codes[2], new[0], new[0])] == [False, False, True, False]


def test_it_is_turned_off_with_a_code(ana: Person) -> None:
    codes = with_totp(with_password(ana).user)
    client = after_password(ana.user)
    client.post("/sign-in/code", {"code": code()})

    client.post("/settings/two-step/off", {"code": "000000"})
    assert totp.is_on(User.objects.get(pk=ana.id))
    client.post("/settings/two-step/off", {"code": codes[0]})

    assert not totp.is_on(User.objects.get(pk=ana.id))
    assert after_password(ana.user).get("/").status_code == 200


def test_another_users_verified_session_does_not_admit(ana: Person) -> None:
    """A sign-in of somebody else in the same browser starts anew."""
    staff = Staff("sue", group="support").user
    staff.set_password(PASSWORD)
    staff.save()
    with_totp(staff)
    client = signed_in(with_password(ana))

    client.post("/admin/login/", {"username": staff.email, "password": PASSWORD})

    assert client.get("/admin/")["Location"].startswith("/admin/login/")
    assert client.get("/admin/login/?next=/admin/")["Location"] == "/sign-in/code?next=%2Fadmin%2F"
    client.post("/sign-in/code", {"code": "000000"})
    assert AuditEntry.objects.filter(action="users.sign_in_failed", object_id=str(staff.pk)).exists()
    assert client.post("/sign-in/code", {"code": code(), "next": "/admin/"})["Location"] == "/admin/"
    assert client.get("/admin/").status_code == 200


def test_a_new_password_does_not_turn_it_off(ana: Person) -> None:
    with_totp(with_password(ana).user)
    browser().post(reset_path(ana), TWICE)
    client = browser()

    client.post("/sign-in", {"username": ana.user.email, "password": TWICE["new_password1"]})

    assert client.get("/").status_code == 302


def test_the_account_is_deleted_with_a_code(ana: Person) -> None:
    codes = with_totp(with_password(ana).user)
    client = after_password(ana.user)
    client.post("/sign-in/code", {"code": codes[0]})
    form = {"email": ana.user.email, "password": PASSWORD}

    assert client.post("/settings/account/delete", form).status_code == 200
    assert client.post("/settings/account/delete", form | {"code": codes[1], "password": "no"}).status_code == 200
    assert client.post("/settings/account/delete", form | {"code": codes[1]}).status_code == 302


def test_the_command_turns_it_off_with_an_audit_entry(ana: Person) -> None:
    with_totp(ana.user)

    call_command("disable_totp", ana.user.email, "--reason", "INC-9, seen in person")

    assert not totp.is_on(User.objects.get(pk=ana.id))
    assert AuditEntry.objects.get().action == "users.totp_off"


def test_the_vaults_rotation_includes_the_secret(ana: Person, settings: Any) -> None:
    old, new = "an old key of the vault, long enough", "a new key of the vault, long enough"
    settings.INTEGRATIONS_VAULT_KEYS = [old]
    with_totp(ana.user)
    settings.INTEGRATIONS_VAULT_KEYS = [new, old]

    call_command("rotate_vault")

    assert encryption.is_under_newest_key(bytes(User.objects.get(pk=ana.id).totp_secret or b""))
    settings.INTEGRATIONS_VAULT_KEYS = [new]
    assert totp.verify(ana.user, code())
