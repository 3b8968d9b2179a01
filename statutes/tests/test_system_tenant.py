"""The system tenant of statutes: campaigns, sign-in and integrity checks."""

import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import jwt
import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.test import Client

from accessa.integrity.violations import find_violations
from accounts.errors import ApiError
from accounts.models import User
from accounts.system_tenant import SYSTEM_TENANT_ID
from documents import services
from documents.models import Document
from embeddings import active_model
from embeddings.models import ActiveModel, DocumentChunk
from embeddings.reindexing import periodic
from embeddings.reindexing import services as campaigns
from embeddings.reindexing.admin import StartForm
from embeddings.reindexing.models import CampaignTenant
from embeddings.tests.campaign_helpers import kill_worker_at
from jobs import worker
from statutes import artifact_import, document_ids
from statutes.artifact_import import import_artifacts
from statutes.intake import IntakeStatus, accept_message
from statutes.models import Law, LawVersion
from statutes.s3 import client, keys, manifests
from statutes.tests.sample_laws import (
    BUCKET,
    LOWER,
    RATE,
    TAXED,
    are_searchable,
    deliver,
    law_xml,
    process,
    statute_message,
)
from testing.factories.pending_documents import create_chunked_job, passage_texts
from testing.fakes.s3 import S3Server
from testing.personas import claim_at_stage
from vendors import tenant_argument

pytestmark = pytest.mark.django_db
TARGET: dict[str, Any] = {"kind": "reembed", "model": "instant", "version": "1"}
RECHUNK: dict[str, Any] = {"kind": "rechunk", "chunker": "markdown-simple@2"}
TENANT = UUID(int=7)
SECRET = "a-secret-of-the-project-that-is-long-enough-for-HS256"


# Campaigns


@pytest.fixture
def searchable_law(laws: S3Server, settings: Any) -> None:
    """Create a law and a tenant's document, both embedded with one of two models."""
    process(laws, law_xml(TAXED, RATE))
    create_chunked_job(passage_texts(2), user_id=TENANT)
    worker.drain()
    settings.EMBEDDER = "testing.embedders.InstantEmbedder"


@pytest.mark.parametrize("options", [TARGET, RECHUNK], ids=["reembed", "rechunk"])
def test_a_campaign_over_all_tenants_excludes_statutes(searchable_law: None, options: dict[str, Any]) -> None:
    Document.objects.filter(user_id=TENANT).update(parsed_path="storage://parsed/x.md")

    campaign = campaigns.start(**options, by="sam")

    assert list(campaign.tenants.values_list("user_id", flat=True)) == [TENANT]


def test_a_pinned_system_tenant_is_not_listed_as_skipped(searchable_law: None) -> None:
    ActiveModel.objects.filter(pk=SYSTEM_TENANT_ID).update(pinned=True)

    campaigns.start(**TARGET, by="sam")

    assert not CampaignTenant.objects.filter(user_id=SYSTEM_TENANT_ID).exists()


def test_commands_and_forms_call_the_system_tenant_laws() -> None:
    form = StartForm({"target": "rechunk markdown-simple@2", "tenants": f"laws {TENANT}", "keep_hours": 24})

    assert tenant_argument.parse_tenant("laws") == SYSTEM_TENANT_ID
    assert form.is_valid()
    assert form.target_options["user_ids"] == [SYSTEM_TENANT_ID, TENANT]


def test_statutes_cannot_be_rechunked(searchable_law: None) -> None:
    with pytest.raises(ApiError) as refused:
        campaigns.start(**RECHUNK, user_ids=[TENANT, SYSTEM_TENANT_ID], by="sam")

    assert (refused.value.code, refused.value.field) == ("LAWS_NOT_RECHUNKED", "user_ids")


def test_a_campaign_that_names_statutes_reembeds_them(laws: S3Server, settings: Any) -> None:
    process(laws, law_xml(TAXED, RATE))
    settings.EMBEDDER = "testing.embedders.InstantEmbedder"

    campaigns.start(**TARGET, user_ids=[SYSTEM_TENANT_ID], by="sam")
    for _ in range(3):
        worker.drain()
        periodic.advance_campaigns()

    change("UPDATE upload_jobs SET state = 'deadletter' WHERE campaign_id IS NOT NULL")()
    again = accept_message(statute_message())
    process(laws, law_xml(LOWER), law_id="LISR", raw_key="raw/lisr.xml")

    assert active_model.active_model(SYSTEM_TENANT_ID).model == "instant"
    assert are_searchable(TAXED, RATE, LOWER) == [True, True, True]
    assert again.status == IntakeStatus.DUPLICATE
    assert [violation for violation in find_violations() if violation.kind != "vector"] == []


# Callers


def test_no_token_signs_in_as_the_system_tenant(settings: Any) -> None:
    settings.SUPABASE_JWT_SECRET = SECRET
    claims = {
        "sub": str(SYSTEM_TENANT_ID),
        "aud": "authenticated",
        "exp": int(time.time()) + 3600,
        "role": "authenticated",
    }
    bearer = f"Bearer {jwt.encode(claims, SECRET, algorithm='HS256')}"

    answer = Client().get("/documents", headers={"authorization": bearer})

    assert (answer.status_code, answer.json()["code"]) == (401, "INVALID_TOKEN")


def test_no_user_is_created_as_the_system_tenant() -> None:
    with pytest.raises(CommandError, match="owns statutes"):
        call_command("create_user", "a@example.com", id=SYSTEM_TENANT_ID)
    with pytest.raises(IntegrityError, match="user_is_not_the_system_tenant"), transaction.atomic():
        User.objects.create(id=SYSTEM_TENANT_ID, email="a@example.com", username="a")
    assert not User.objects.exists()


# The audit


def change(sql: str) -> Callable[[], None]:
    def run() -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql)

    return run


def remove_passage() -> None:
    DocumentChunk.objects.filter(text__contains="enajenación").delete()


BROKEN = {
    "another version": ("law", change("UPDATE laws SET version = '2023-01'")),
    "nobody's document": ("law", change("UPDATE law_versions SET law_id = 'LISR'")),
    "a status": ("law's status", change("UPDATE laws SET status = 'failed'")),
    "a passage lost": ("law's passages", remove_passage),
    "passages said": ("law's passages", change("UPDATE laws SET chunk_count = 9")),
    "no manifest": ("law without artifacts", change("UPDATE law_versions SET manifest_sha256 = NULL")),
    "no job": (
        "version without a job",
        change("UPDATE law_versions SET status = 'processing', job_id = gen_random_uuid()"),
    ),
    "not the law's": (
        "version beside another",
        change("UPDATE laws SET document_id = NULL, status = 'failed'"),
    ),
    "text without a document": (
        "version that stays",
        change("INSERT INTO law_versions (document_id, law_id, version, bucket, raw_key, canonical)"
               " VALUES (gen_random_uuid(), 'A', '1', 'b', 'k', '{}')"),
    ),
    "of no law": ("document of no law", change("DELETE FROM law_versions")),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_the_integrity_check_finds_each_defect_of_a_statute(name: str, laws: S3Server) -> None:
    assert process(laws, law_xml(TAXED, RATE)).state == "done"
    kind, break_it = BROKEN[name]
    assert list(find_violations()) == []

    break_it()

    assert kind in {violation.kind for violation in find_violations()}


def test_statutes_in_progress_and_failed_ones_pass_the_integrity_check(laws: S3Server) -> None:
    process(laws, law_xml(TAXED, RATE))
    deliver(laws, law_xml(TAXED, LOWER), force_reprocess=True)
    claim_at_stage("embedding")
    deliver(laws, b"no law", law_id="LISR", raw_key="raw/lisr.xml")
    worker.drain()

    assert {violation.kind for violation in find_violations()} <= {"vector"}


def wrong_artifacts() -> list[tuple[str, str]]:
    return [
        (violation.subject, violation.reason)
        for violation in find_violations(deep=True)
        if violation.kind == "artifact"
    ]


def artifacts(law_id: str = "LIVA") -> list[str]:
    passage = DocumentChunk.objects.filter(document_id=document_ids.document_id(law_id, "2024-01")).order_by(
        "chunk_ord"
    )[0]
    return [keys.manifest(law_id), keys.law(law_id), keys.vectors(law_id), keys.chunk(law_id, passage.pk)]


@pytest.mark.parametrize("which", range(4), ids=["manifest", "law", "vectors", "passage"])
def test_the_deep_check_finds_changed_and_missing_artifacts(which: int, laws: S3Server) -> None:
    process(laws, law_xml(TAXED, RATE))
    key = artifacts()[which]
    assert wrong_artifacts() == []
    content = client.read_object(BUCKET, key)

    client.put_object(BUCKET, key, content + b" ")
    changed = wrong_artifacts()
    client.delete_object(BUCKET, key)
    gone = wrong_artifacts()

    assert [law_id for law_id, _ in changed + gone] == ["LIVA", "LIVA"]
    assert not any(TAXED[:20] in reason or key in reason for _, reason in changed + gone)


def test_the_deep_check_passes_during_the_upload_of_a_version(laws: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    process(laws, law_xml(TAXED, RATE))
    deliver(laws, law_xml(TAXED, LOWER), "2024-02")

    assert kill_worker_at(monkeypatch, "uploading:vectors")

    assert manifests.parse_manifest(client.read_object(BUCKET, keys.manifest("LIVA"))).version == "2024-01"
    assert wrong_artifacts() == []


def test_an_imported_statute_passes_the_integrity_check(laws: S3Server) -> None:
    process(laws, law_xml(TAXED, RATE))
    services.delete(Document.objects.get())
    Law.objects.all().delete(), LawVersion.objects.all().delete()

    import_artifacts(artifact_import.BucketSource(BUCKET), "LIVA")

    assert are_searchable(TAXED, RATE) == [True, True]
    assert list(find_violations(deep=True)) == []
