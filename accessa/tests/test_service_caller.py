"""A service that names a tenant: it searches, reads and polls as the tenant, changes nothing, and is audited."""

import time
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import jwt
import pytest
from django.test import Client

from accounts.audit import log
from accounts.audit.models import AuditEntry
from accounts.models import User
from accounts.system_tenant import SYSTEM_TENANT_ID
from documents.models import Document
from jobs.models import UploadJob
from testing.factories.searchable_documents import create_searchable_document
from testing.personas import Person, Upload, plan_pdf

SECRET = "a-secret-of-the-project-that-is-long-enough-for-HS256"

pytestmark = pytest.mark.django_db


@pytest.fixture
def uploaded(ana: Person) -> Upload:
    return ana.upload(plan_pdf("hospital care"))


def call(person: Person, tenant: object, path: str, method: str = "get", body: object = None) -> Any:
    headers = {"x-accessa-user": str(tenant)}
    return getattr(person.client, method)(path, body, content_type="application/json", headers=headers)


def entries() -> list[tuple[Any, ...]]:
    return list(
        AuditEntry.objects.filter(action=log.SERVICE_CALL)
        .order_by("at")
        .values_list("actor", "tenant_id", "object_type", "object_id")
    )


def test_the_agent_platform_polls_a_tenants_job(uploaded: Upload, ana: Person, platform: Person) -> None:
    answer = call(platform, ana.id, f"/jobs/{uploaded.document_id}")

    assert (answer.status_code, answer.json()["job_id"]) == (200, str(uploaded.job_id))
    assert answer.content == ana.get(f"/jobs/{uploaded.document_id}").content


def test_without_the_header_a_service_reads_no_tenants_job(uploaded: Upload, platform: Person) -> None:
    assert platform.get(f"/jobs/{uploaded.document_id}").status_code == 404
    assert platform.post(f"/jobs/{uploaded.document_id}/advance").status_code == 409


def test_the_service_role_of_supabase_searches_for_a_tenant(ana: Person, settings: Any) -> None:
    settings.SUPABASE_JWT_SECRET = SECRET
    create_searchable_document(ana.id, ["wig care"])
    bearer = jwt.encode({"role": "service_role", "exp": int(time.time()) + 60}, SECRET, algorithm="HS256")
    headers = {"authorization": f"Bearer {bearer}", "x-accessa-user": str(ana.id)}

    answer = Client().post("/search", {"query": "wig"}, content_type="application/json", headers=headers)

    assert [passage["text"] for passage in answer.json()["passages"]] == ["wig care"]
    assert entries() == [("service role", ana.id, "api_call", "POST /search")]


def test_a_tenant_without_an_account_is_known_by_documents(uploaded: Upload, ana: Person, platform: Person) -> None:
    """As one who signs in at Supabase."""
    tenant = uuid4()
    UploadJob.objects.update(user_id=tenant)
    Document.objects.update(user_id=tenant)

    assert call(platform, tenant, f"/documents/{uploaded.document_id}").status_code == 200


def test_a_header_that_names_no_tenant_is_refused(ana: Person, ben: Person, platform: Person) -> None:
    User.objects.filter(pk=ben.id).update(is_active=False)
    create_searchable_document(SYSTEM_TENANT_ID, ["an article"])
    unknown = [uuid4(), UUID(int=0), "ana", "", f"{{{ana.id}}}", f"{ana.id}, {ana.id}", ana.id.hex, SYSTEM_TENANT_ID]

    for tenant in (*unknown, ben.id):
        answer = call(platform, tenant, "/jobs")
        assert (answer.status_code, answer.json()["code"]) == (403, "UNKNOWN_TENANT"), tenant
        assert answer.json()["field"] == "X-Accessa-User"
    assert entries() == []


def test_a_caller_that_is_no_service_may_not_name_a_tenant(ana: Person, ben: Person, sam: Person) -> None:
    browser = Client(headers={"x-accessa-user": str(ana.id)})
    browser.force_login(sam.user)

    answers = [call(person, tenant, "/jobs") for person in (ben, sam) for tenant in (ana.id, person.id, "x")]
    answers += [browser.get("/jobs"), Client(headers={"x-accessa-user": str(ana.id)}).get("/jobs")]

    assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(403, "FORBIDDEN")}


def test_a_service_changes_nothing_for_a_tenant(uploaded: Upload, ana: Person, platform: Person) -> None:
    before = UploadJob.objects.values().get()
    path = f"/jobs/{uploaded.document_id}"
    writes = [("post", "/upload"), ("post", f"{path}/retry"), ("post", f"{path}/advance")]
    writes += [("delete", f"/documents/{uploaded.document_id}")]

    for method, address in writes:
        answer = call(platform, ana.id, address, method)
        assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN"), address
    assert UploadJob.objects.values().get() == before
    assert entries() == []


def test_the_audit_log_has_one_entry_an_hour_for_each_call(
    uploaded: Upload, ana: Person, ben: Person, platform: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/jobs/{uploaded.document_id}"
    for tenant, address in [(ana.id, path), (ana.id, path), (ana.id, "/jobs"), (ben.id, path), (ana.id, path)]:
        call(platform, tenant, address)
    kept = [(ana.id, "GET /jobs/<uuid:document_id>"), (ana.id, "GET /jobs"), (ben.id, "GET /jobs/<uuid:document_id>")]
    assert entries() == [(platform.user.username, tenant, "api_call", name) for tenant, name in kept]

    monkeypatch.setattr(log, "SERVICE_CALL_INTERVAL", timedelta(0))  # the hour is over
    call(platform, ana.id, path)

    assert len(entries()) == 4


def test_the_rate_limits_are_the_tenants(uploaded: Upload, ana: Person, platform: Person, settings: Any) -> None:
    settings.SEARCHES_PER_MINUTE = settings.POLLS_PER_MINUTE = 1
    body, path = {"query": "wig", "mode": "text"}, f"/jobs/{uploaded.document_id}"

    answers = [call(platform, ana.id, "/search", "post", body), ana.post("/search", body)]
    answers += [ana.get(path), call(platform, ana.id, path)]

    assert [answer.status_code for answer in answers] == [200, 429, 200, 429]
