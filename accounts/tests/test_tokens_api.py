"""API of a user's tokens: scopes, limits, both layers of tenancy, and the record of the last use."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import jwt
import pytest
from django.db import DatabaseError, connection
from django.test import Client
from django.utils import timezone

from accounts import api_tokens
from accounts.audit.tests.personas import audit_entries
from accounts.errors import ApiError
from accounts.models import ApiToken
from accounts.rls import as_tenant
from testing.personas import Person

pytestmark = pytest.mark.django_db

WANTED: dict[str, Any] = {"name": "laptop", "scopes": ["read", "search"], "days": 30}


def holder(token: str) -> Client:
    return Client(headers={"authorization": f"Bearer {token}"})


def limited(person: Person, *scopes: str, **fields: Any) -> Client:
    return holder(api_tokens.create_token(person.user, name="limited", scopes=scopes, **fields))


def refusal(answer: Any) -> tuple[int, str, str | None]:
    return answer.status_code, answer.json()["code"], answer.json().get("field")


def create(client: Client, **fields: Any) -> Any:
    return client.post("/tokens", WANTED | fields, content_type="application/json")


def test_a_token_is_created_shown_once_listed_and_revoked_by_its_owner(ana: Person) -> None:
    answer = create(ana.client)

    token = answer.json()
    assert (answer.status_code, answer["Cache-Control"]) == (201, "no-store")
    assert (token["name"], token["scopes"], token["last_used_at"]) == ("laptop", ["read", "search"], None)
    listed = holder(token["token"]).get("/tokens")
    assert [row["name"] for row in listed.json()["results"]] == ["laptop", "test"]
    assert listed.json()["results"][0]["last_used_at"] is not None
    assert token["token"] not in listed.content.decode()
    assert api_tokens.token_digest(token["token"]) not in listed.content.decode()

    assert ana.delete(f"/tokens/{token['token_id']}").status_code == 204

    assert holder(token["token"]).get("/tokens").status_code == 401
    assert ana.delete(f"/tokens/{token['token_id']}").status_code == 404
    assert [row["name"] for row in ana.get("/tokens").json()["results"]] == ["test"]
    expected = ("tokens.revoke", "tenant", token["token_id"], ana.id)
    assert audit_entries()[-1] == expected


OPERATIONS = [("get", "/documents", "read"), ("post", "/search", "search"), ("post", "/answer", "search")]
OPERATIONS += [("get", "/tokens", "read"), ("get", "/usage", "read"), ("post", "/tokens", "tokens")]
OPERATIONS += [("post", "/upload", "write"), ("delete", f"/documents/{uuid4()}", "write")]
OPERATIONS += [("post", f"/jobs/{uuid4()}/retry", "write"), ("delete", f"/tokens/{uuid4()}", "tokens")]
OPERATIONS += [("post", "/export", "export")]


HOOK = f"/webhook-endpoints/{uuid4()}"
OPERATIONS += [("post", "/webhook-endpoints", "webhooks"), ("patch", HOOK, "webhooks"), ("delete", HOOK, "webhooks")]
OPERATIONS += [("post", f"{HOOK}/rotate", "webhooks"), ("post", f"{HOOK}/deliveries/{uuid4()}/resend", "write")]


@pytest.mark.parametrize("scope", ["read", "write", "search", "webhooks", "tokens", "export"])
def test_an_operation_takes_its_scope_and_no_other(scope: str, ana: Person) -> None:
    client = limited(ana, scope)

    for method, path, needed in OPERATIONS:
        answer = getattr(client, method)(
            path, {} if method in ("post", "patch") else None, content_type="application/json"
        )
        code = None if answer.streaming else answer.json().get("code")
        assert (code == "INSUFFICIENT_SCOPE") == (scope != needed), (path, code)
        assert answer.status_code == 403 or scope == needed


def test_a_service_reads_for_a_tenant_within_the_scopes_of_its_token(ana: Person, platform: Person) -> None:
    for_ana = {"x-accessa-user": str(ana.id)}
    ana.upload(b"%PDF-1.7")
    reader = limited(platform, "service", "read")

    assert reader.get("/documents", headers=for_ana).status_code == 200
    answer = reader.post("/search", {"query": "x"}, content_type="application/json", headers=for_ana)
    assert refusal(answer) == (403, "INSUFFICIENT_SCOPE", None)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": ""}, "name"), ({"name": " "}, "name"), ({"name": "x" * 101}, "name"), ({"name": "a\0b"}, "name"),
        ({"name": 7}, "name"), ({"scopes": []}, "scopes"), ({"scopes": ["root"]}, "scopes"),
        ({"scopes": ["service"]}, "scopes"), ({"scopes": "read"}, "scopes"), ({"scopes": [["read"]]}, "scopes"),
        ({"scopes": ["read"] * 21}, "scopes"), ({"days": 0}, "days"), ({"days": 3651}, "days"), ({"days": "7"}, "days"),
        ({"days": True}, "days"), ({"days": 1e9}, "days"),
    ],
)  # fmt: skip
def test_bad_input_makes_no_token(fields: dict[str, Any], field: str, ana: Person) -> None:
    before = ApiToken.objects.count()

    assert refusal(create(ana.client, **fields)) == (400, "INVALID_REQUEST", field)

    assert ApiToken.objects.count() == before


def test_a_token_makes_none_with_more_scopes_or_a_longer_life(ana: Person) -> None:
    end = timezone.now() + timedelta(days=2)
    writer = limited(ana, "write", "tokens", expires_at=end)

    more = create(writer, scopes=["write", "search"])
    same = create(writer, scopes=["write", "write"], days=None)

    assert refusal(more) == (403, "INSUFFICIENT_SCOPE", "scopes")
    made = ApiToken.objects.get(pk=same.json()["token_id"])
    assert (made.scopes, made.expires_at) == (["write"], end)
    assert create(writer, scopes=["write"], days=1).json()["expires_at"] < same.json()["expires_at"]


def test_a_token_is_revoked_with_the_one_that_made_it(ana: Person) -> None:
    maker = create(ana.client, scopes=["read", "tokens"]).json()
    made = create(holder(maker["token"]), scopes=["read", "tokens"]).json()
    last = create(holder(made["token"]), scopes=["read"]).json()
    other = create(ana.client, scopes=["read"]).json()

    assert ana.delete(f"/tokens/{maker['token_id']}").status_code == 204

    statuses = [holder(each["token"]).get("/tokens").status_code for each in (maker, made, last, other)]
    assert statuses == [401, 401, 401, 200]
    with pytest.raises(ApiError, match="INSUFFICIENT_SCOPE"):  # a request that passed authentication before
        api_tokens.issue_own_token(ana.id, name="x", scopes=["read"], made_by=UUID(maker["token_id"]))


def test_a_user_has_a_bounded_number_of_tokens(ana: Person, ben: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_tokens, "MAX_TOKENS", 3)
    made = [create(ana.client) for _ in range(3)]
    assert [answer.status_code for answer in made] == [201, 201, 409]
    ana.delete(f"/tokens/{made[0].json()['token_id']}")

    assert refusal(create(ana.client)) == (409, "TOO_MANY_TOKENS", None)  # a revoked one counts for a day
    ApiToken.objects.filter(name="laptop").update(created_at=timezone.now() - timedelta(days=2))
    assert create(ana.client).status_code == 201
    assert create(ben.client).status_code == 201


def test_a_tenant_without_an_account_here_is_told(settings: Any) -> None:
    settings.SUPABASE_JWT_SECRET = "a-secret-of-the-project-that-is-long-enough-for-HS256"
    claims = {"sub": str(uuid4()), "aud": "authenticated", "exp": timezone.now() + timedelta(hours=1)}
    bearer = holder(jwt.encode(claims, settings.SUPABASE_JWT_SECRET, "HS256"))

    assert refusal(create(bearer)) == (403, "ACCOUNT_REQUIRED", None)
    assert refusal(bearer.post("/export")) == (403, "ACCOUNT_REQUIRED", None)
    assert bearer.get("/tokens").json()["results"] == []


def test_a_session_makes_tokens_of_all_scopes_but_not_of_a_service(sam: Person) -> None:
    browser = Client()
    browser.force_login(sam.user)

    assert create(browser, scopes=["read", "write", "search"]).status_code == 201
    assert refusal(create(browser, scopes=["service"])) == (400, "INVALID_REQUEST", "scopes")


# The last use


def test_the_last_use_is_written_once_an_hour(ana: Person) -> None:
    assert ana.get("/tokens").json()["results"][0]["last_used_at"] is not None
    written = ApiToken.objects.values_list("last_used_at", flat=True)
    first = written.get()
    assert first is not None

    ana.get("/tokens")
    assert written.get() == first
    ApiToken.objects.update(last_used_at=first - timedelta(minutes=61))
    ana.get("/tokens")
    assert written.filter(last_used_at__gte=first).exists()


# Two layers


def test_another_tenants_token_does_not_exist(ana: Person, ben: Person) -> None:
    token = ApiToken.objects.get(user=ana.user)

    assert refusal(ben.delete(f"/tokens/{token.pk}")) == (404, "NOT_FOUND", None)
    assert str(token.pk) not in ben.get("/tokens").content.decode()
    assert ana.get("/tokens").status_code == 200


def test_policies_alone_hide_other_tenants_tokens(ana: Person, ben: Person) -> None:
    with as_tenant(ben.id):
        tokens = list(ApiToken.objects.only(*api_tokens.SHOWN_COLUMNS))

    assert [token.user_id for token in tokens] == [ben.id]


def test_the_queryset_alone_hides_other_tenants_tokens(ana: Person, ben: Person) -> None:
    assert [token.user_id for token in api_tokens.tenant_tokens(ben.id)] == [ben.id]


def test_tenants_cannot_read_the_digest(ana: Person) -> None:
    with pytest.raises(DatabaseError, match="permission denied"), as_tenant(ana.id), connection.cursor() as cursor:
        cursor.execute("SELECT digest FROM api_tokens")
