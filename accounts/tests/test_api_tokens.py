"""API tokens in the admin and on the command line: shown once, stored as a digest, rejected once revoked."""

import re
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from accounts import api_tokens
from accounts.audit.tests.personas import Staff, audit_entries
from accounts.errors import ApiError
from accounts.models import ApiToken, User
from testing.personas import Person

pytestmark = pytest.mark.django_db

ADD, REVOKE = "accounts_apitoken_add", "accounts_apitoken_revoke"
WANTED: dict[str, Any] = {"name": "agent platform", "scopes": ["read", "search"], "days": "30", "reason": "INC-7"}


@pytest.fixture
def otto(db: None) -> Staff:
    return Staff("otto", group="operator")


def issue_token(by: Staff, **fields: Any) -> str:
    answer = by.post(ADD, **{**WANTED, **fields})
    assert "no-store" in answer.headers["Cache-Control"]
    return str(re.findall(r"acc_[\w-]+", answer.content.decode())[0])


def in_days(token: ApiToken) -> int:
    assert token.expires_at is not None
    return round((token.expires_at - token.created_at).total_seconds() / 86_400)


def call_status(plain: str) -> Any:
    return Client(headers={"authorization": f"Bearer {plain}"}).get("/jobs").status_code


def test_a_token_is_shown_once_and_only_its_digest_is_kept(otto: Staff, ana: Person) -> None:
    plain = issue_token(otto, user=ana.user.email)

    token = ApiToken.objects.get(name="agent platform")
    assert call_status(plain) == 200
    assert token.digest == api_tokens.token_digest(plain)
    assert plain not in str(ApiToken.objects.filter(pk=token.pk).values())
    assert (token.user_id, token.scopes, in_days(token)) == (ana.id, ["read", "search"], 30)
    assert audit_entries() == [("tokens.make", otto.user.email, str(token.pk), ana.id)]
    for page in (otto.page("accounts_apitoken_changelist"), otto.page("accounts_apitoken_change", token.pk)):
        assert str(token.pk) in page
        assert plain not in page
        assert token.digest not in page


@pytest.mark.parametrize(
    "wrong",
    [
        {"user": "nobody@example.org"}, {"user": "\x00"}, {"user": str(uuid4())}, {"reason": " "}, {"days": "0"},
        {"days": "99999999"}, {"scopes": ["root"]}, {"scopes": []}, {"name": ""},
    ],
)  # fmt: skip
def test_a_token_needs_a_user_and_a_reason(wrong: dict[str, Any], otto: Staff, ana: Person) -> None:
    before = ApiToken.objects.count()

    answer = otto.post(ADD, **{**WANTED, "user": str(ana.id), **wrong})

    assert answer.status_code == 200
    assert "acc_" not in answer.content.decode()
    assert (ApiToken.objects.count(), audit_entries()) == (before, [])


def test_an_inactive_user_gets_no_token(otto: Staff, ana: Person) -> None:
    ana.user.is_active = False
    ana.user.save()

    assert "not active" in otto.post(ADD, **WANTED, user=str(ana.id)).content.decode()


def test_an_operator_issues_no_token_for_other_staff(otto: Staff) -> None:
    others, root = [Staff("sue", group="support"), Staff("olga", group="operator")], Staff("root", superuser=True)
    User.objects.create_user("boss", "boss@example.org", is_superuser=True)

    answers = [otto.post(ADD, **WANTED, user=email) for email in (*(o.user.email for o in others), root.user.email)]
    answers.append(otto.post(ADD, **WANTED, user="boss@example.org"))
    with pytest.raises(ApiError, match="TOKEN_OF_STAFF") as refused:
        api_tokens.issue_token(others[1].user, name="x", scopes=["read"], by=otto.user, reason="x")

    assert refused.value.status == 403
    assert all("you would act as them" in answer.content.decode() for answer in answers)
    assert (ApiToken.objects.count(), audit_entries()) == (0, [])
    assert call_status(issue_token(otto, user=otto.user.email)) == 200
    assert call_status(issue_token(root, user=others[0].user.email)) == 200
    assert call_status(api_tokens.issue_token(others[1].user, name="x", scopes=["read"], by=None, reason="x")) == 200


def test_a_revoked_token_is_refused_and_the_reason_is_kept(otto: Staff, ana: Person) -> None:
    token = ApiToken.objects.get(user=ana.user)
    form, unreasoned = otto.get(REVOKE, token.pk), otto.post(REVOKE, token.pk, reason="")
    assert (form.status_code, unreasoned.status_code, call_status(ana.token)) == (200, 200, 200)

    for _ in range(2):  # the second finds nothing to do
        assert otto.post(REVOKE, token.pk, reason="leaked").status_code == 302

    assert call_status(ana.token) == 401
    assert audit_entries() == [("tokens.revoke", otto.user.email, str(token.pk), ana.id)]


def test_support_may_not_issue_or_revoke(ana: Person) -> None:
    member, token = Staff("sue", "accounts.view_apitoken", group="support"), ApiToken.objects.get(user=ana.user)

    answers = [
        member.get(ADD), member.post(ADD, **WANTED, user=str(ana.id)), member.get(REVOKE, token.pk),
        member.post(REVOKE, token.pk, reason="x"),
    ]  # fmt: skip

    assert [answer.status_code for answer in answers] == [403] * 4
    assert "/revoke/" not in member.page("accounts_apitoken_change", token.pk)
    assert call_status(ana.token) == 200


def test_the_command_revokes_one_token_or_all_of_a_user(ana: Person, ben: Person, platform: Person) -> None:
    call_command("revoke_token", "--token", str(ApiToken.objects.get(user=ben.user).pk), "--reason", "leaked")
    call_command("revoke_token", "--user", ana.user.email.upper(), "--reason", "left")

    assert [call_status(person.token) for person in (ana, ben, platform)] == [401, 401, 200]
    assert [(entry[0], entry[1], entry[3]) for entry in audit_entries()] == [
        ("tokens.revoke", "command line", ben.id), ("tokens.revoke", "command line", ana.id),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        ["--user", "nobody@example.org", "--reason", "x"], ["--token", str(uuid4()), "--reason", "x"],
        ["--user", "ana@example.org", "--reason", " "], ["--user", "ana@example.org"], ["--reason", "x"],
    ],
)  # fmt: skip
def test_the_command_reports_errors(arguments: list[str], ana: Person) -> None:
    with pytest.raises(CommandError):
        call_command("revoke_token", *arguments)

    assert call_status(ana.token) == 200
