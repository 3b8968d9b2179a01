"""Sign-in by an OpenID Connect provider: new accounts, connection, and answers that must not sign anybody in."""

import time
from collections.abc import Iterator
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from django.conf import settings as configured
from django.test import Client
from pytest_django import Settings

from accounts import invitations, oidc, sessions
from accounts.models import User, UserIdentity
from outbox.tests.test_mails import sent
from portal.tests.conftest import PASSWORD, signed_in, with_password
from portal.tests.test_account import browser
from portal.tests.test_two_step import after_password, code, with_totp
from testing.fakes.oidc import CLIENT_ID, CLIENT_SECRET, OidcServer
from testing.personas import Person

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def server() -> Iterator[OidcServer]:
    with OidcServer() as server:
        yield server


@pytest.fixture
def provider(server: OidcServer, settings: Settings) -> OidcServer:
    server.claims, server.declines, server.signing_key = {}, False, server.published_key
    settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET = server.url, CLIENT_ID, CLIENT_SECRET
    settings.SIGN_UP = "open"
    return server


def callback_of(client: Client, start: str = "/sign-in/oidc") -> str:
    """Go to the provider and return the path to which it sends the browser back."""
    consent = httpx.get(client.get(start)["Location"])
    return str(consent.headers["Location"]).removeprefix(configured.PUBLIC_URL)


def answer_of(client: Client, start: str = "/sign-in/oidc") -> Any:
    return client.get(callback_of(client, start))


def is_signed_in(client: Client) -> bool:
    return client.get("/settings/account").status_code == 200


def identity(user: User, provider: OidcServer) -> None:
    UserIdentity.objects.create(user=user, issuer=provider.url, subject="1001")


def test_a_stranger_gets_an_account_once_and_is_led_to_the_page(provider: OidcServer) -> None:
    first, second = browser(), browser()

    answer = answer_of(first, "/sign-in/oidc?next=/settings/tokens")
    provider.claims = {"email": "renamed@example.org"}
    again = answer_of(second, "/sign-in/oidc?next=https://evil.example")

    user = User.objects.get()
    assert (user.email, user.has_usable_password(), user.is_staff) == ("new@example.org", False, False)
    assert (answer["Location"], again["Location"]) == ("/settings/tokens", "/")
    assert is_signed_in(first)
    assert is_signed_in(second)
    assert len(sessions.list_sessions(user.pk)) == 2


def test_an_equal_address_takes_no_account_over(provider: OidcServer, ana: Person) -> None:
    provider.claims = {"email": ana.user.email.upper()}
    client = browser()

    answer = answer_of(client)

    assert (answer.status_code, is_signed_in(client)) == (409, False)
    assert "then connect the service" in answer.content.decode()
    assert not UserIdentity.objects.exists()


def test_a_member_connects_signs_in_and_disconnects(provider: OidcServer, ana: Person) -> None:
    member, later = signed_in(with_password(ana)), browser()

    answer_of(member, "/settings/account/oidc")
    answer_of(later)

    assert is_signed_in(later)
    assert later.session["_auth_user_id"] == str(ana.id)
    assert [letter.to for letter in sent()] == [[ana.user.email]]
    member.post("/settings/account/oidc/disconnect")
    assert not UserIdentity.objects.exists()


def test_an_identity_of_another_account_is_not_connected(provider: OidcServer, ana: Person, ben: Person) -> None:
    identity(ben.user, provider)

    answer = answer_of(signed_in(ana), "/settings/account/oidc")

    assert answer.status_code == 409
    assert UserIdentity.objects.get().user_id == ben.id


def test_a_connection_ends_with_the_session_that_began_it(provider: OidcServer, ana: Person, ben: Person) -> None:
    client = signed_in(ana)
    path, pending = callback_of(client, "/settings/account/oidc"), client.session[oidc.PENDING]
    client.force_login(ben.user)
    session = client.session
    session[oidc.PENDING] = pending
    session.save()

    assert client.get(path).status_code == 400
    assert not UserIdentity.objects.exists()


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_cannot_connect_an_identity(site: str, provider: OidcServer, ana: Person) -> None:
    client = signed_in(ana)

    answer = client.get("/settings/account/oidc", headers={"sec-fetch-site": site})

    assert (answer.status_code, oidc.PENDING in client.session) == (403, False)


def test_two_step_sign_in_is_asked_here_too(provider: OidcServer, ana: Person) -> None:
    with_totp(ana.user)
    identity(ana.user, provider)
    client = browser()

    answer_of(client)
    before = is_signed_in(client)
    client.post("/sign-in/code", {"code": code()})

    assert (before, is_signed_in(client)) == (False, True)


REFUSED: dict[str, dict[str, Any]] = {
    "another nonce": {"nonce": "another"},
    "no nonce": {"nonce": None},
    "expired": {"exp": 1},
    "no expiry": {"exp": None},
    "issued in the future": {"iat": int(time.time()) + 86_400},
    "another audience": {"aud": "another-client"},
    "another issuer": {"iss": "https://evil.example"},
    "another authorized party": {"azp": "another-client"},
    "no subject": {"sub": None},
    "an unverified address": {"email_verified": False},
    "an address verified in words": {"email_verified": "true"},
    "no address": {"email": None},
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_claims_sign_nobody_in(name: str, provider: OidcServer) -> None:
    provider.claims = REFUSED[name]
    client = browser()

    answer = answer_of(client)

    assert (answer.status_code, is_signed_in(client), User.objects.count()) == (403, False, 0)


def test_a_forged_signature_signs_nobody_in(provider: OidcServer) -> None:
    provider.signing_key = generate_private_key(SECP256R1())

    assert answer_of(browser()).status_code == 403
    with pytest.raises(jwt.PyJWTError):  # and no signature at all
        jwt.decode(jwt.encode({"sub": "1001"}, None, "none"), None, oidc.ALGORITHMS)  # type: ignore[arg-type]


def test_a_callback_is_taken_once_by_the_browser_that_began_it(provider: OidcServer, settings: Settings) -> None:
    client, other = browser(), browser()
    path = callback_of(client)

    assert other.get(path).status_code == 400
    assert client.get(path.replace("state=", "state=x")).status_code == 400
    assert client.get(path).status_code == 400  # the wrong state has used it up
    path = callback_of(client)
    assert [client.get(path).status_code for _ in range(2)] == [302, 400]


def test_a_refusal_a_wrong_code_and_a_slow_person_are_explained(
    provider: OidcServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = browser()
    path = callback_of(client)
    assert client.get(path.replace("code=", "code=x")).status_code == 403
    provider.declines = True
    assert answer_of(client).status_code == 403
    monkeypatch.setattr(oidc, "PENDING_SECONDS", -1)
    provider.declines = False
    assert answer_of(client).status_code == 400
    assert not User.objects.exists()


def test_a_provider_that_cannot_be_reached_is_a_page_to_try_again(settings: Settings, provider: OidcServer) -> None:
    settings.OIDC_ISSUER = "http://127.0.0.1:9"

    assert browser().get("/sign-in/oidc").status_code == 503


@pytest.mark.parametrize(("mode", "is_invited", "status"), [("closed", True, 403), ("invitation", False, 403),
                                                            ("invitation", True, 302)])  # fmt: skip
def test_sign_up_decides_who_gets_an_account(
    mode: str, is_invited: bool, status: int, provider: OidcServer, settings: Settings
) -> None:
    settings.SIGN_UP = mode
    if is_invited:
        invitations.create_invitation("new@example.org")

    assert answer_of(browser()).status_code == status
    assert User.objects.count() == (status == 302)


def test_an_inactive_user_stays_outside(provider: OidcServer, ana: Person) -> None:
    identity(ana.user, provider)
    User.objects.update(is_active=False)

    assert answer_of(browser()).status_code == 403


def test_without_a_provider_there_is_no_such_page(ana: Person) -> None:
    assert browser().get("/sign-in/oidc").status_code == 404
    assert b"/sign-in/oidc" not in browser().get("/sign-in").content
    assert after_password(with_password(ana).user).post("/settings/account/oidc").status_code == 405


def test_a_password_that_revokes_tokens_disconnects(provider: OidcServer, ana: Person) -> None:
    identity(ana.user, provider)
    new = {"new_password1": "another long password", "new_password2": "another long password"}

    signed_in(with_password(ana)).post(
        "/settings/account/password", {"old_password": PASSWORD, "revoke_tokens": "on"} | new
    )

    assert not UserIdentity.objects.exists()
