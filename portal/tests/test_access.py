"""Sign-in and sign-out: who may, how often, and the redirect afterwards."""

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import pytest
from django.contrib.auth import authenticate
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.db import connection
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext

from accounts import rate_limit
from accounts.audit.models import AuditEntry
from accounts.models import RateWindow, User, UserSession
from accounts.sign_in import client_address, client_network
from portal.tests.conftest import PASSWORD, signed_in, with_password
from testing.personas import Person

NOBODYS = "6c8a1e6e-1f0b-4aa8-9f0a-1a7c2e6f2b42"
PAGES = [
    "/",
    "/list",
    "/find",
    "/statutes/6c8a1e6e-1f0b-4aa8-9f0a-1a7c2e6f2b42",
    "/d/6c8a1e6e-1f0b-4aa8-9f0a-1a7c2e6f2b42",
]


def sign_in(email: str, password: str, client: Client | None = None, **more: Any) -> Any:
    return (client or Client()).post(
        more.pop("path", "/sign-in"), {"username": email, "password": password, **more.pop("data", {})}, **more
    )


def test_sign_in_ignores_the_case_of_the_email(ana: Person) -> None:
    client = Client()
    with_password(ana)

    answer = sign_in(" Ana@Example.org ", PASSWORD, client)

    assert (answer.status_code, answer["Location"]) == (302, "/")
    assert client.get("/").status_code == 200
    assert client.get("/sign-out").status_code == 405
    assert client.post("/sign-out")["Location"] == "/sign-in"
    assert client.get("/").status_code == 302


@pytest.mark.parametrize("path", PAGES)
def test_pages_require_sign_in(path: str, db: None) -> None:
    answer = Client().get(path)

    assert answer.status_code == 302
    assert answer["Location"].startswith("/sign-in?next=/")


def test_a_fragment_redirects_a_signed_out_user(db: None) -> None:
    answer = Client().get("/list", headers={"HX-Request": "true"})

    assert (answer.status_code, answer["HX-Redirect"]) == (200, "/sign-in")


@pytest.mark.parametrize(
    ("method", "path", "headers", "back"),
    [
        ("get", "/find?tag=1", {}, "/find?tag=1"),
        ("post", f"/d/{NOBODYS}/retry", {"referer": "https://testserver/?state=failed#a"}, "/?state=failed"),
        ("post", f"/d/{NOBODYS}/retry", {}, None),
        ("post", "/find", {"hx-request": "true", "hx-current-url": "http://testserver/find?tag=1"}, "/find?tag=1"),
        ("get", "/list", {"hx-request": "true", "hx-current-url": "http://testserver/?view=grid"}, "/?view=grid"),
        ("post", "/find", {"hx-request": "true", "hx-current-url": "http://["}, None),
    ],
)
def test_an_expired_session_leads_back(
    method: str, path: str, headers: dict[str, str], back: str | None, ana: Person
) -> None:
    client = with_password(ana) and signed_in(ana)
    UserSession.objects.all().delete()

    answer = getattr(client, method)(path, headers=headers)
    form = answer.get("HX-Redirect") or answer["Location"]
    page = client.get(form)
    again = client.post("/sign-in", {"username": ana.user.email, "password": PASSWORD, "next": page.context["next"]})

    assert page.content.decode().count("Your session has expired.") == 1
    assert again["Location"] == (back or "/")


def test_another_hosts_address_leads_home(ana: Person) -> None:
    client = with_password(ana) and signed_in(ana)
    UserSession.objects.all().delete()

    form = client.post("/find", headers={"referer": "https://evil.example//evil.example/x"})["Location"]
    page = client.get(form)
    again = client.post("/sign-in", {"username": ana.user.email, "password": PASSWORD, "next": page.context["next"]})

    assert urlsplit(again["Location"]).netloc == ""
    assert not again["Location"].startswith("//")


@pytest.mark.parametrize("path", ["/nowhere", f"/d/{NOBODYS}"])
def test_pages_of_a_members_errors_keep_the_menu_and_name_whom_to_ask(path: str, ana: Person, settings: Any) -> None:
    settings.SUPPORT_EMAIL = "help@example.org"

    page = signed_in(ana).get(path)
    other = Client(headers={"accept": "text/html"}).get("/nowhere")

    assert page.status_code == 404
    assert b'aria-label="Main"' in page.content
    assert b"mailto:help@example.org" in page.content
    assert (other.status_code, b'aria-label="Main"' in other.content) == (404, False)


def test_every_failed_sign_in_has_the_same_message(ana: Person, ben: Person) -> None:
    with_password(ana)
    with_password(ben)
    User.objects.filter(pk=ben.id).update(is_active=False)
    tries = [("ana@example.org", "wrong"), ("ben@example.org", PASSWORD), ("nobody@example.org", PASSWORD)]

    pages = [sign_in(email, password) for email, password in tries]

    assert {page.status_code for page in pages} == {200}
    assert len({str(page.context["form"].non_field_errors()) for page in pages}) == 1
    assert b"do not belong together" in pages[0].content


def test_unknown_accounts_cost_as_much_hashing_as_known_ones(ana: Person, settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher"]
    with mock.patch.object(PBKDF2PasswordHasher, "encode", return_value="no$hash") as hashing:
        sign_in("nobody@example.org", "x")
        sign_in("ana@example.org", "x")  # has no usable password

    assert hashing.call_count == 2


def test_too_many_attempts_lock_out_the_right_password(ana: Person, ben: Person) -> None:
    with_password(ana)
    with_password(ben)
    for _ in range(int(rate_limit.SIGN_INS.uses)):
        sign_in("ana@example.org", "wrong")

    late = sign_in("ana@example.org", PASSWORD)

    assert late.status_code == 200
    assert b"too many attempts" in late.content
    assert sign_in("ben@example.org", PASSWORD).status_code == 302  # an account of the same office
    assert sign_in("ana@example.org", PASSWORD, REMOTE_ADDR="192.0.2.7").status_code == 302  # nobody is locked out


def test_staff_sign_ins_are_in_the_audit_log(sam: Person, ana: Person) -> None:
    for person in (sam, ana):
        with_password(person)
    console = partial(sign_in, path="/admin/login/")
    for page in (sign_in, console):
        page("sam@example.org", "wrong")
        page("ana@example.org", "wrong")
        page("nobody@example.org", "wrong")
        page("sam@example.org", PASSWORD, REMOTE_ADDR="2001:db8:1:2::7")
        page("ana@example.org", PASSWORD)

    failed, signed_in_as = ("users.sign_in_failed", "unknown"), ("users.sign_in", "sam@example.org")
    assert [(e.action, e.actor, e.reason, e.details["client"]) for e in AuditEntry.objects.order_by("at")] == [
        (*failed, "sign-in at /sign-in", "127.0.0.1"),
        (*signed_in_as, "sign-in at /sign-in", "2001:db8:1:2::/64"),
        (*failed, "sign-in at /admin/login/", "127.0.0.1"),
        (*signed_in_as, "sign-in at /admin/login/", "2001:db8:1:2::/64"),
    ]
    assert {entry.object_id for entry in AuditEntry.objects.all()} == {str(sam.id)}


def test_failed_sign_ins_do_not_fill_the_audit_log(sam: Person) -> None:
    with_password(sam)
    for address in ("192.0.2.1", "192.0.2.2", "192.0.2.3"):
        for _ in range(int(rate_limit.SIGN_INS.uses) + 2):
            sign_in("sam@example.org", "wrong", REMOTE_ADDR=address)

    actions = Counter(AuditEntry.objects.values_list("action", flat=True))
    assert actions == {"users.sign_in_failed": 10, "users.sign_in_locked": 1}


def test_a_refused_sign_in_costs_as_many_commits_for_staff_as_for_others(sam: Person) -> None:
    statements = []
    for email in ("sam@example.org", "nobody@example.org"):
        with CaptureQueriesContext(connection) as queries:
            sign_in(email, "wrong")
        statements.append([q["sql"] for q in queries if "audit_entries" not in q["sql"]])

    assert len(statements[0]) == len(statements[1])


def test_one_address_may_not_try_account_after_account(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit, "SIGN_IN_FAILURES", replace(rate_limit.SIGN_IN_FAILURES, uses=5))
    with_password(ana)
    for number in range(5):
        sign_in(f"{number}@example.org", "wrong")

    assert sign_in("ana@example.org", PASSWORD).status_code == 200


def test_whom_an_address_lets_in_does_not_count_against_it(
    ana: Person, ben: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limit, "SIGN_IN_FAILURES", replace(rate_limit.SIGN_IN_FAILURES, uses=3))
    for person in (ana, ben):
        with_password(person)
    sign_in("nobody@example.org", "wrong")

    answers = [sign_in(person.user.email, PASSWORD).status_code for person in (ana, ben) for _ in range(3)]
    for _ in range(2):
        sign_in("nobody@example.org", "wrong")

    assert answers == [302] * 6
    assert sign_in("ana@example.org", PASSWORD).status_code == 200  # those that failed do


def test_an_ipv6_client_has_one_count_for_its_whole_64(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit, "SIGN_IN_FAILURES", replace(rate_limit.SIGN_IN_FAILURES, uses=5))
    with_password(ana)
    for number in range(5):
        sign_in(f"{number}@example.org", "wrong", REMOTE_ADDR=f"2001:db8:1:2:{number + 1}::7")

    assert sign_in("ana@example.org", PASSWORD, REMOTE_ADDR="2001:db8:1:2:ffff::1").status_code == 200
    assert sign_in("ana@example.org", PASSWORD, REMOTE_ADDR="2001:db8:1:3::1").status_code == 302


@pytest.mark.parametrize(
    ("client", "counted"),
    [
        ("192.0.2.7", "192.0.2.7"), ("::ffff:192.0.2.7", "192.0.2.7"), ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"), ("unknown", "unknown"), ("", ""),
    ],
)  # fmt: skip
def test_addresses_of_one_network_are_one_client(client: str, counted: str) -> None:
    assert client_network(client) == counted


def test_the_admins_own_form_is_limited_alike(sam: Person) -> None:
    with_password(sam)
    for _ in range(int(rate_limit.SIGN_INS.uses)):
        Client().post("/admin/login/", {"username": "sam@example.org", "password": "wrong"})

    assert Client().post("/admin/login/", {"username": "sam@example.org", "password": PASSWORD}).status_code == 200
    assert authenticate(RequestFactory().post("/"), username="sam@example.org", password=PASSWORD) is None


def test_a_typed_email_is_not_stored(db: None) -> None:
    sign_in("my-password-in-the-wrong-field", "x")

    assert RateWindow.objects.exists()
    assert not RateWindow.objects.filter(key__contains="password").exists()


def test_the_client_address_comes_from_trusted_proxies(settings: Any) -> None:
    request = RequestFactory().get("/", REMOTE_ADDR="10.0.0.1", HTTP_X_FORWARDED_FOR="6.6.6.6, 192.0.2.7")
    plain = RequestFactory().get("/", REMOTE_ADDR="10.0.0.1")

    assert client_address(request) == "10.0.0.1"
    settings.TRUSTED_PROXIES = 1
    assert client_address(request) == "192.0.2.7"
    assert client_address(plain) == "10.0.0.1"


@pytest.mark.parametrize(
    ("requested", "leads"),
    [
        ("/find", "/find"), ("//evil.example.org/", "/"), ("https://evil.example.org/", "/"),
        ("javascript:alert(1)", "/"),
        ("/\\evil.example.org", "/"), ("http:///evil.example.org", "/"),
    ],
)  # fmt: skip
def test_sign_in_redirects_to_own_pages_only(requested: str, leads: str, ana: Person) -> None:
    with_password(ana)

    assert sign_in("ana@example.org", PASSWORD, data={"next": requested})["Location"] == leads


def test_a_signed_in_user_is_redirected_from_sign_in(ana: Person) -> None:
    assert signed_in(ana).get("/sign-in")["Location"] == "/"
    assert signed_in(ana).get("/sign-in?next=/find")["Location"] == "/find"


@pytest.mark.parametrize("requested", ["/sign-in", "/sign-in?next=/sign-in", "http://testserver/sign-in", "/sign-in#x"])
def test_sign_in_does_not_redirect_to_itself(requested: str, ana: Person) -> None:
    with_password(ana)

    assert signed_in(ana).get("/sign-in", {"next": requested})["Location"] == "/"
    assert sign_in("ana@example.org", PASSWORD, data={"next": requested})["Location"] == "/"


def test_no_form_is_taken_without_its_secret(ana: Person) -> None:
    client = Client(enforce_csrf_checks=True, headers={"accept": "text/html"})
    client.force_login(ana.user)

    for path in ("/sign-in", "/sign-out", "/find", "/d/6c8a1e6e-1f0b-4aa8-9f0a-1a7c2e6f2b42/delete"):
        refused = client.post(path)
        assert (refused.status_code, b"no longer valid" in refused.content) == (403, True), path
    upload = client.post("/upload", {}, content_type="application/json", headers={"accept": "*/*"})
    assert (upload.status_code, upload.json()["code"]) == (403, "FORBIDDEN")


def test_sessions_expire_and_cookies_are_http_only(ana: Person) -> None:
    client = Client()
    with_password(ana)

    answer = sign_in("ana@example.org", PASSWORD, client)

    for name in ("sessionid", "csrftoken"):
        cookie = answer.cookies[name]
        assert (cookie["httponly"], cookie["samesite"]) == (True, "Lax")
    assert answer.cookies["sessionid"]["max-age"] == ""  # the browser's own end
    assert client.session.get_expiry_age() <= 12 * 3600
