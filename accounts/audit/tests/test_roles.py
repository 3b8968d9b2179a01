"""Staff roles, users and groups: permissions, and the audit entries of changes."""

import io
import os
from typing import Any

import pytest
from django.contrib.auth import authenticate
from django.contrib.auth.models import Group
from django.core.management import CommandError, call_command
from django.test import Client

from accounts import api_tokens
from accounts.audit import roles
from accounts.audit.models import AuditEntry
from accounts.audit.tests.personas import Staff, audit_entries
from accounts.models import ApiToken, User
from testing.personas import Person

pytestmark = pytest.mark.django_db

CHANGE, ADD = "accounts_user_change", "accounts_user_add"


def create_staff(email: str, group: str, password: str, monkeypatch: pytest.MonkeyPatch) -> User:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{password}\n"))
    call_command("create_staff", email, "--group", group, "--password-stdin")
    return User.objects.get(email=email.lower())


def test_a_member_of_support_signs_in_and_has_exactly_its_permissions(monkeypatch: pytest.MonkeyPatch) -> None:
    member = create_staff("Sue@example.org", "support", "long enough, surely", monkeypatch)

    assert authenticate(username="sue@example.org", password="long enough, surely") == member
    assert member.is_staff
    assert not member.is_superuser
    assert member.get_all_permissions() == set(roles.SUPPORT_PERMISSIONS)
    assert audit_entries() == [("users.create_staff", "command line", str(member.pk), None)]
    assert "long enough" not in str(AuditEntry.objects.values().get())


def test_a_new_role_replaces_the_old_and_keeps_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    before = create_staff("sue@example.org", "support", "long enough, surely", monkeypatch).get_all_permissions()

    monkeypatch.setattr("sys.stdin", io.StringIO())
    call_command("create_staff", "sue@example.org", "--group", "operator")

    again = User.objects.get()
    assert again.check_password("long enough, surely")
    assert [group.name for group in again.groups.all()] == ["operator"]
    assert again.get_all_permissions() == set(roles.GROUPS["operator"]) > before


def test_a_new_role_revokes_earlier_api_tokens(ana: Person, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("create_staff", ana.user.email, "--group", "support")

    token = ApiToken.objects.get(user=ana.user)
    assert api_tokens.find_valid_token(ana.token) is None
    assert "1 revoked" in capsys.readouterr().out
    assert {(entry[0], entry[2]) for entry in audit_entries()} == {
        ("tokens.revoke", str(token.pk)), ("users.create_staff", str(ana.id)),
    }  # fmt: skip
    assert AuditEntry.objects.get(action="users.create_staff").details["tokens_revoked"] == 1

    as_support = api_tokens.create_token(ana.user, name="support's")
    call_command("create_staff", ana.user.email, "--group", "support")
    assert api_tokens.find_valid_token(as_support) is not None  # nothing was given
    call_command("create_staff", ana.user.email, "--group", "operator")
    assert api_tokens.find_valid_token(as_support) is None


def test_granting_a_role_resets_the_groups_permissions() -> None:
    Staff("one", group="support")
    wider = Group.objects.get(name="support")
    wider.permissions.add(*roles.sync_group("operator").permissions.all())

    member = Staff("two", group="support")

    assert member.user.get_all_permissions() == set(roles.SUPPORT_PERMISSIONS)


@pytest.mark.parametrize(("email", "typed"), [("no address", "x\n"), ("sue@example.org", "\n")])
def test_the_command_rejects_invalid_input(email: str, typed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))

    with pytest.raises(CommandError):
        call_command("create_staff", email, "--group", "support", "--password-stdin")

    assert not User.objects.exists()


@pytest.mark.slow
def test_createsuperuser_needs_an_address_and_a_password_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.input", lambda prompt: " Root@Example.org ")
    monkeypatch.setattr("sys.stdin", io.StringIO("long enough, surely\n"))

    call_command("createsuperuser")

    root = User.objects.get(is_superuser=True)
    assert authenticate(username="root@example.org", password="long enough, surely") == root
    assert audit_entries() == [("users.create_superuser", "command line", str(root.pk), None)]


@pytest.mark.parametrize(
    ("email", "password"), [("root", "long enough, surely"), ("taken@example.org", None), ("root@example.org", "short")]
)
def test_createsuperuser_makes_nobody_of_bad_input(
    monkeypatch: pytest.MonkeyPatch, email: str, password: str | None
) -> None:
    User.objects.create_user("taken@example.org", "taken@example.org")
    if password:
        monkeypatch.setitem(os.environ, "DJANGO_SUPERUSER_PASSWORD", password)

    with pytest.raises(CommandError):
        call_command("createsuperuser", email=email, interactive=False)

    assert not User.objects.filter(is_superuser=True).exists()


@pytest.mark.slow
def test_staff_sign_in_by_e_mail(monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
    create_staff("sue@example.org", "support", "long enough, surely", monkeypatch)

    page = client.get("/admin/login/").content.decode()
    answer = client.post("/admin/login/", {"username": "Sue@Example.org", "password": "long enough, surely"})

    assert "E-mail" in page
    assert answer.status_code == 302
    assert client.get("/admin/documents/document/").status_code == 200


def user_form(user: User, **fields: Any) -> dict[str, Any]:
    return {"username": user.username, "email": user.email, "is_active": "on", "reason": "INC-7", **fields}


def test_a_change_of_a_user_needs_a_reason(ana: Person) -> None:
    root = Staff("root", superuser=True)
    group = roles.sync_group("support")

    unreasoned = root.post(CHANGE, ana.id, **user_form(ana.user, reason=""))
    assert unreasoned.status_code == 200
    assert audit_entries() == []
    root.post(CHANGE, ana.id, **user_form(ana.user, is_staff="on", groups=[group.pk]))

    ana.user.refresh_from_db()
    assert ana.user.is_staff
    entry = AuditEntry.objects.get(action="users.change")
    assert (entry.object_id, entry.reason) == (str(ana.id), "INC-7")
    assert entry.details == {"fields": ["is_staff", "groups"]}
    assert api_tokens.find_valid_token(ana.token) is None  # who holds it was not given these powers
    assert AuditEntry.objects.filter(action="tokens.revoke", tenant_id=ana.id, reason="INC-7").count() == 1


@pytest.mark.slow
def test_a_password_change_is_hashed_and_logged(ana: Person) -> None:
    root = Staff("root", superuser=True)

    passwords = {"password1": "quite another one", "password2": "quite another one"}
    page = root.page("auth_user_password_change", ana.id)
    unreasoned = root.post("auth_user_password_change", ana.id, **passwords, reason=" ")
    ana.user.refresh_from_db()
    assert 'name="reason"' in page
    assert "This field is required" in unreasoned.content.decode()
    assert (ana.user.check_password("quite another one"), audit_entries()) == (False, [])

    root.post("auth_user_password_change", ana.id, **passwords, reason="INC-8")

    ana.user.refresh_from_db()
    assert ana.user.check_password("quite another one")
    assert AuditEntry.objects.get().reason == "INC-8"
    assert ana.user.password.startswith("pbkdf2_")
    assert ana.user.password not in root.page(CHANGE, ana.id)
    assert audit_entries() == [("users.set_password", root.user.email, str(ana.id), None)]


def test_a_new_user_is_logged() -> None:
    root = Staff("root", superuser=True)
    password = {"usable_password": "true", "password1": "quite another one", "password2": "quite another one"}

    root.post(ADD, username="kim", email="Kim@Example.org", reason="new", **password)

    kim = User.objects.get(username="kim")
    assert kim.email == "kim@example.org"
    assert [(entry[0], entry[2]) for entry in audit_entries()] == [("users.add", str(kim.pk))]


def test_staff_who_edit_users_grant_no_privileges(ana: Person, sam: Person) -> None:
    clerk = Staff("clerk", "accounts.view_user", "accounts.change_user", "auth.view_permission")

    clerk.post(CHANGE, ana.id, **user_form(ana.user, is_staff="on", is_superuser="on", username="anna"))
    of_staff = clerk.post(CHANGE, sam.id, **user_form(sam.user, username="mine"))
    password = clerk.post("auth_user_password_change", sam.id, password1="quite another", password2="quite another")

    ana.user.refresh_from_db()
    assert (ana.user.username, ana.user.is_staff, ana.user.is_superuser) == ("anna", False, False)
    assert (of_staff.status_code, password.status_code) == (403, 403)
    assert clerk.get(CHANGE, sam.id).status_code == 200  # may look


def test_users_cannot_be_deleted(ana: Person) -> None:
    root = Staff("root", superuser=True)

    assert root.post("accounts_user_delete", ana.id, post="yes").status_code == 403
    assert User.objects.filter(pk=ana.id).exists()


def test_a_change_of_a_group_is_logged() -> None:
    root, group = Staff("root", superuser=True), roles.sync_group("support")

    root.post("auth_group_change", group.pk, name="support", permissions=[], reason="INC-7")

    assert not group.permissions.exists()
    assert [(entry[0], entry[2]) for entry in audit_entries()] == [("groups.change", str(group.pk))]
