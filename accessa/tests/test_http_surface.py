"""Schema, docs, health, CORS and a missing database, over HTTP."""

import io
from typing import Any
from uuid import UUID

import pytest
import yaml
from django.core.management import call_command
from django.db import OperationalError, connection
from django.test import Client

from accessa.openapi.views import render_schema
from testing.personas import Person

PATHS = {
    "/upload", "/job/{job_id}", "/jobs", "/jobs/{document_id}", "/jobs/{document_id}/retry",
    "/jobs/{document_id}/advance",
    "/documents", "/documents/{document_id}", "/documents/{document_id}/original", "/documents/{document_id}/parsed",
    "/documents/{document_id}/chunks", "/documents/{document_id}/pages/{page}", "/search",
    "/documents/{document_id}/purchases", "/usage", "/internal/embed",
}  # fmt: skip


@pytest.mark.slow
def test_the_schema_is_valid_and_names_every_address() -> None:
    out = io.StringIO()
    call_command("spectacular", validate=True, fail_on_warn=True, stdout=out)

    assert set(yaml.safe_load(out.getvalue())["paths"]) >= PATHS


def test_schema_and_docs_load_for_anybody_and_from_here() -> None:
    schema, docs = Client().get("/schema"), Client().get("/docs")

    assert schema.status_code == docs.status_code == 200
    assert b"/search" in schema.content
    assert b"//cdn" not in docs.content


def test_the_schema_is_generated_once_whoever_asks_and_whatever_for() -> None:
    """Anybody may ask: it took half a second of CPU each time, and a line break in ``version`` ended it with a 500."""
    render_schema.cache_clear()

    answers = [Client().get(f"/schema?{query}") for query in ("", "version=a%0d%0aX-B: c", "lang=es", "format=json")]

    assert [answer.status_code for answer in answers] == [200] * 4
    assert len({answer.content for answer in answers[:3]}) == 1
    assert render_schema.cache_info().misses == 2, "one for each format"


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_needs_no_authentication(path: str) -> None:
    answer = Client().get(path)

    assert (answer.status_code, answer.json()["status"]) == (200, "ok")


def test_alive_asks_no_database() -> None:
    # pytest-django refuses a connection in a test that has asked for none.
    assert Client().get("/healthz").status_code == 200


@pytest.fixture
def frontend(settings: Any) -> str:
    settings.CORS_ALLOWED_ORIGINS = ["https://app.example.org"]
    return "https://app.example.org"


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/upload"), ("PUT", "/storage/raw/a/b.pdf"), ("DELETE", "/documents/x")]
)
def test_a_configured_frontend_may_call(method: str, path: str, frontend: str) -> None:
    preflight = {
        "origin": frontend,
        "access-control-request-method": method,
        "access-control-request-headers": "authorization, content-type",
    }
    answer = Client().options(path, headers=preflight)

    assert answer["Access-Control-Allow-Origin"] == frontend
    assert method in answer["Access-Control-Allow-Methods"]
    assert {"authorization", "content-type"} <= set(answer["Access-Control-Allow-Headers"].split(", "))


@pytest.mark.django_db
def test_a_frontend_can_read_errors_and_when_to_come_back(frontend: str) -> None:
    answer = Client().get("/documents", headers={"origin": frontend})

    assert answer.status_code == 401
    assert answer["Access-Control-Allow-Origin"] == frontend
    assert "Retry-After" in answer["Access-Control-Expose-Headers"]


@pytest.mark.parametrize(
    "origin", ["https://evil.example.org", "https://app.example.org.evil.org", "null", "http://app.example.org"]
)
def test_another_site_may_not(origin: str, frontend: str) -> None:
    assert "Access-Control-Allow-Origin" not in Client().get("/healthz", headers={"origin": origin})


def test_every_answer_forbids_guessing_its_type() -> None:
    assert Client().get("/healthz")["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    ["/", "/list", "/find", f"/d/{UUID(int=7)}", f"/documents/{UUID(int=7)}/pages/1", "/admin/", "/admin/dead-letters/",
     "/admin/jobs/uploadjob/"],
)  # fmt: skip
def test_a_signed_in_user_gets_503_with_retry_after_without_database(path: str, sam: Person) -> None:
    client = Client(raise_request_exception=False)
    client.force_login(sam.user)

    def away(*_: Any) -> None:
        raise OperationalError("the connection is closed")

    with connection.execute_wrapper(away):
        answer = client.get(path, headers={"accept": "text/html"})

    assert (answer.status_code, answer.get("Retry-After")) == (503, "5")


@pytest.mark.django_db
def test_no_cache_keeps_what_a_tenant_is_answered(ana: Person) -> None:
    answers = [ana.get("/documents"), ana.get("/usage"), ana.post("/search", {"query": ""}), ana.get("/nowhere")]

    assert {answer["Cache-Control"] for answer in answers} == {"no-store"}
