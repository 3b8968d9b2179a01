"""Page of API tokens: create, show once, list, revoke."""

import re

import pytest
from django.test import Client

from accounts import api_tokens
from accounts.models import ApiToken
from portal.tests.conftest import signed_in
from testing.personas import Person

pytestmark = pytest.mark.django_db
PAGE = "/settings/tokens"
WANTED = {"name": "<b>Claude</b>", "scopes": ["read", "search"], "days": "30"}


def test_a_token_is_shown_once_listed_and_revoked(ana: Person) -> None:
    client = signed_in(ana)

    created = client.post(PAGE, WANTED)

    plain = re.findall(r"acc_[\w-]+", created.content.decode())
    token = ApiToken.objects.get(name=WANTED["name"])
    assert created["Cache-Control"] == "no-store"
    assert [api_tokens.token_digest(text) for text in plain] == [token.digest]
    page = client.get(PAGE).content.decode()
    assert "acc_" not in page
    assert "&lt;b&gt;Claude" in page
    assert "<b>Claude" not in page
    assert f"{PAGE}/{token.pk}/revoke" in page
    assert client.post(f"{PAGE}/{token.pk}/revoke")["Location"] == PAGE
    assert f"{PAGE}/{token.pk}/revoke" not in client.get(PAGE).content.decode()
    assert api_tokens.find_valid_token(plain[0]) is None


@pytest.mark.parametrize("wrong", [{"name": ""}, {"scopes": []}, {"scopes": ["service"]}, {"days": "0"}])
def test_a_wrong_form_makes_no_token(wrong: dict[str, object], ana: Person) -> None:
    answer = signed_in(ana).post(PAGE, WANTED | wrong)

    assert answer.status_code == 200
    assert 'class="wrong"' in answer.content.decode()
    assert ApiToken.objects.count() == 1


def test_too_many_tokens_are_refused_with_a_sentence(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_tokens, "MAX_TOKENS", 1)

    assert "You can have 1 tokens" in signed_in(ana).post(PAGE, WANTED).content.decode()


def test_another_users_tokens_are_neither_shown_nor_revoked(ana: Person, ben: Person) -> None:
    token = ApiToken.objects.get(user=ana.user)
    client = signed_in(ben)

    assert str(token.pk) not in client.get(PAGE).content.decode()
    assert client.post(f"{PAGE}/{token.pk}/revoke").status_code == 404
    assert ana.get("/tokens").status_code == 200


def test_sign_in_and_a_csrf_token_are_needed(ana: Person) -> None:
    strict = Client(enforce_csrf_checks=True, headers={"accept": "text/html"})
    assert strict.get(PAGE).status_code == 302
    strict.force_login(ana.user)

    token = ApiToken.objects.get(user=ana.user)
    assert [strict.post(path, WANTED).status_code for path in (PAGE, f"{PAGE}/{token.pk}/revoke")] == [403, 403]
