"""Content security policy and caching of each page."""

from typing import Any

import pytest
from django.test import Client, RequestFactory

from accessa import error_responses, middleware
from documents.tests.s3_settings import use_s3_storage
from portal.tests.conftest import signed_in
from testing.personas import Person


def directives(answer: Any) -> dict[str, str]:
    parts = (part.strip().partition(" ") for part in answer["Content-Security-Policy"].split(";"))
    return {name: sources for name, _, sources in parts}


@pytest.mark.parametrize("path", ["/", "/find", "/sign-in", "/no-such-page"])
def test_tenants_pages_run_and_load_nothing_but_our_own(path: str, ana: Person) -> None:
    client = Client() if path == "/sign-in" else signed_in(ana)
    answer = client.get(path)

    policy = directives(answer)
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "img-src", "connect-src", "form-action")} == {"'self'"}
    assert (policy["frame-ancestors"], policy["base-uri"]) == ("'none'", "'none'")
    assert "no-store" in answer["Cache-Control"]
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["X-Frame-Options"] == "DENY"
    assert answer["Referrer-Policy"] == "same-origin"
    assert "camera=()" in answer["Permissions-Policy"]


def test_staff_pages_load_nothing_of_other_origins(db: None) -> None:
    policy = directives(Client().get("/admin/login/"))

    sources = {source for name in policy for source in policy[name].split()}
    assert sources <= {"'self'", "'none'", "'unsafe-inline'", "'unsafe-eval'", "data:"}
    assert "'unsafe-inline'" not in policy["script-src"]
    assert policy["frame-ancestors"] == "'none'"


def test_only_the_admin_may_evaluate() -> None:
    assert "'unsafe-eval'" in middleware.page_policy("/admin/login/")["script-src"]
    for path in ("/", "/docs", "/administrator", "/find"):
        assert "'unsafe-eval'" not in middleware.page_policy(path)["script-src"]


def test_files_go_straight_to_an_s3_and_nowhere_else(settings: Any) -> None:
    class Server:
        url, access_key, secret_key = "https://objects.example.org:9000", "test", "test"

    elsewhere: Any = Server()

    use_s3_storage(settings, elsewhere)
    assert middleware.page_policy("/")["connect-src"] == ["'self'", "https://objects.example.org:9000"]
    assert middleware.page_policy("/find")["connect-src"] == ["'self'"]

    use_s3_storage(settings, elsewhere, S3_PRESIGN=False)
    assert middleware.page_policy("/")["connect-src"] == ["'self'"]

    use_s3_storage(settings, elsewhere, S3_ENDPOINT_URL=None, S3_ADDRESSING_STYLE="virtual", S3_REGION="eu-central-1")
    assert middleware.page_policy("/")["connect-src"] == ["'self'", "https://raw.s3.eu-central-1.amazonaws.com"]


def test_errors_are_pages_for_browsers_and_json_for_programs(ana: Person) -> None:
    page, answer = Client(headers={"accept": "text/html"}).get("/nowhere"), Client().get("/nowhere")

    assert (page.status_code, page["Content-Type"]) == (404, "text/html; charset=utf-8")
    assert b"There is no such page" in page.content
    assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
    assert (
        b"Out of order"
        in error_responses.database_unavailable(RequestFactory().get("/", headers={"accept": "text/html"})).content
    )
    assert error_responses.database_unavailable(RequestFactory().get("/"))["Retry-After"] == "5"
    assert (
        b"Something went wrong"
        in error_responses.server_error_page(RequestFactory().get("/", headers={"accept": "text/html"})).content
    )
    assert signed_in(ana).get("/documents/6c8a1e6e-1f0b-4aa8-9f0a-1a7c2e6f2b42").json()["code"] == "NOT_FOUND"
