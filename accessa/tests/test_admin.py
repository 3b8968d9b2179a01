"""The whole admin: every list and page answers, counts no table, and shows no tenant's text."""

import re
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group
from django.db import connection
from django.db.models import Model
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from accessa.admin_menu import SECTIONS
from accounts.admin_base import query_parameters
from accounts.audit import log
from accounts.audit.tests.personas import Staff
from accounts.models import AccountDeletion
from documents.models import Document, ObjectDeletion, ParseRequest
from embeddings.models import ActiveModel, VectorIndex
from embeddings.reindexing.models import Campaign
from integrations.models import ArchivedMessage, ConnectedSource, IngestionJob
from jobs.models import Cluster
from outbox.models import EVENTS
from outbox.webhooks import endpoints
from statutes.models import Consumer, Law, LawVersion
from testing.personas import Person, claim_at_stage, plan_pdf
from vendors.models import Breaker, Budget, Purchase, RateLimit
from webhooks.models import Delivery

pytestmark = pytest.mark.django_db

CANARY, WORD = "canary-7391", "Zymurgy"
admin.autodiscover()
# Every model that staff can look at, but those that Django itself counts and keeps small.
LISTED = sorted((model for model in admin.site._registry), key=lambda model: model._meta.label)
COUNTED = re.compile(r"SELECT COUNT\(\*\)|__c\"", re.IGNORECASE)  # of rows, and for each value of a filter
HIDDEN = ('"document_chunks"."text"', '"document_chunk_buffer"."text"', '"embedding"', '"search"', '"digest"')
ELSEWHERE = {"jobs.Event", "auth.Group"}  # their lists show another id, or a name
# A page and one more, or what a tenant has running: never more than its slots.
BOUNDED = re.compile(r"FROM \(SELECT .* LIMIT 1001\)|\"state\" = 'working' AND", re.DOTALL)


def route(model: type[Model], page: str) -> str:
    return f"{model._meta.app_label}_{model._meta.model_name}_{page}"


@pytest.fixture
def rows(ana: Person) -> Document:
    """At least one row of everything; the text and the storage paths are canaries."""
    uploaded = ana.upload(plan_pdf(WORD))
    claim = claim_at_stage("embeddings_buffered")
    assert claim.job.pk == uploaded.job_id
    document = Document.objects.get(pk=uploaded.document_id)
    now, of = timezone.now(), {"user_id": ana.id, "embed_model": "m", "embed_version": "1"}
    ParseRequest.objects.create(
        parse_id=uuid4(), document=document, user_id=ana.id, job_id=uploaded.job_id, parser_name="llamaparse",
        parser_version="1", vendor_job_id="pjb-1",
    )  # fmt: skip
    AccountDeletion.objects.create(user_id=uuid4(), email=f"{CANARY}@example.org")
    ObjectDeletion.objects.create(
        user_id=document.user_id, document_id=document.pk, path=f"raw/{CANARY}.pdf", drop_after=now
    )
    Delivery.objects.create(key="k" * 64, body_sha256="b" * 64, code="JOB_WOKEN", expires_at=now)
    Purchase.objects.create(
        user_id=ana.id, stage="chunked", vendor="openai", model="m", unit="tokens", quantity=7, cents=1
    )
    Budget.objects.create(user_id=ana.id, cents_per_day=5)
    Breaker.objects.create(key="openai:1")
    RateLimit.objects.create(key="openai:1")
    Cluster.objects.create(name="host:1", workers=2)
    ActiveModel.objects.get_or_create(user_id=ana.id, defaults={"embed_model": "m", "embed_version": "1"})
    VectorIndex.objects.create(name="hnsw_1", table_name="document_chunks", since=now - timedelta(1), upto=now, **of)
    Campaign.objects.create(
        kind="reembed", embed_model="m", embed_version="1", created_by="x", canaries=[{"query": f"{WORD} {CANARY}"}]
    )
    source = ConnectedSource.objects.create(user_id=ana.id, provider="hubspot", account=CANARY)
    IngestionJob.objects.create(user_id=ana.id, source=source, kind="full_sync", cursor={"contacts": CANARY})
    ArchivedMessage.objects.create(
        msg_id=7, read_ct=5, enqueued_at=now, archived_at=now, vt=now, message={"kind": "x", "page_token": CANARY}
    )  # fmt: skip
    # The title of a law is nobody's secret.
    law = Law.objects.create(law_id="LIVA", version="1", status="embedded", title="A law", uploader_id=CANARY)
    LawVersion.objects.create(
        document_id=uuid4(), law_id=law.pk, version="1", bucket="laws", raw_key="raw/1.xml",
        canonical={"title": CANARY, "children": [WORD]},
    )  # fmt: skip
    Consumer.objects.create(name="host:2", state="idle")
    Group.objects.create(name="support")
    endpoints.create_endpoint(user_id=ana.id, url=f"https://hooks.example.com/{CANARY}", events=EVENTS)
    endpoints.publish(user_id=ana.id, type="sync.failed", data={})
    log.record_action(by=None, action="jobs.retry", reason="x", object_type="upload_job", object_id=uploaded.job_id)
    return document


@pytest.fixture
def root(db: None) -> Staff:
    return Staff("root", superuser=True)


@pytest.mark.slow
def test_admin_lists_count_no_table_and_show_no_tenant_text(rows: Document, root: Staff) -> None:
    for model in LISTED:
        first = model._default_manager.first()
        assert first is not None, model

        with CaptureQueriesContext(connection) as seen:
            listed = root.page(route(model, "changelist"), _facets="True")
            answer = root.client.get(reverse(f"admin:{route(model, 'change')}", args=[first.pk]), follow=True)
        statements = [query["sql"] for query in seen]

        assert answer.status_code == 200, model
        assert [sql for sql in statements if COUNTED.search(sql) and not BOUNDED.search(sql)] == [], model
        assert [sql for sql in statements if any(column in sql for column in HIDDEN)] == [], model
        for shown in (listed, answer.content.decode()):
            assert CANARY not in shown, model
            assert WORD.lower() not in shown.lower(), model
        assert model._meta.label in ELSEWHERE or str(first.pk) in listed, model


def test_staff_without_permission_see_nothing() -> None:
    nobody = Staff("nobody")

    answers = {model._meta.label: nobody.get(route(model, "changelist")).status_code for model in LISTED}
    menu = nobody.page("index")

    assert set(answers.values()) == {403}
    assert "/admin/documents/" not in menu
    assert "/admin/audit/" not in menu


def test_users_without_staff_status_are_redirected_to_sign_in(ana: Person) -> None:
    ana.client.force_login(ana.user)

    answer = ana.client.get(reverse("admin:documents_document_changelist"))

    assert answer.status_code == 302
    assert answer.headers["Location"].startswith("/admin/login/")
    assert "The console is for staff." in ana.client.get(answer.headers["Location"]).content.decode()


@pytest.mark.parametrize(
    ("path", "status"), [("/admin/documents/document/", 403), ("/admin/no-such/", 404), ("/admin/dead-letters/", 403)]
)
def test_a_refused_page_stays_in_the_admin(path: str, status: int) -> None:
    answer = Staff("nobody").client.get(path, headers={"accept": "text/html"})

    page = answer.content.decode()
    assert answer.status_code == status
    assert 'id="nav-sidebar"' in page
    assert "console-find" in page


@pytest.mark.slow
@pytest.mark.parametrize("group", ["support", "operator"])
def test_the_menu_shows_only_permitted_pages(group: str) -> None:
    member = Staff(group, group=group)

    links = set(re.findall(r'href="(/admin/[a-z_]+/[a-z]+/|/admin/dead-letters/)"', member.page("index")))
    answers = {link: member.client.get(link).status_code for link in links}

    assert set(answers.values()) == {200}, answers
    assert "/admin/documents/document/" in links
    assert ("/admin/audit/auditentry/" in links) is (group == "operator")


def test_a_list_has_one_name_in_the_menu_and_in_its_heading() -> None:
    listed = {page: title for rows in SECTIONS.values() for title, _, page, *_ in rows if "." in page}

    assert {
        page: title for page, title in listed.items()
        if apps.get_model(page)._meta.verbose_name_plural != title[0].lower() + title[1:] and title != "API tokens"
    } == {"audit.auditentry": "Audit log"}  # fmt: skip


# What an address might ask to learn, letter by letter, what no list shows: a column's own, and along a filter's.
GUESSES: dict[str, tuple[str, ...]] = {
    "embeddings_documentchunk": (
        "text__startswith",
        "text__icontains",
        "meta__contains",
        "document__filename__startswith",
        "chunk_sha",
        "embedding__isnull",
        "document_id__filename__startswith",
        "document_id__chunks__text__contains",
        "document_id__raw_path__contains",
        "document_id__startswith",
        "document_id_",
        "document_idtext",
    ),
    "embeddings_chunkbuffer": ("text__startswith", "document_id__filename__startswith"),
    "embeddings_vectorbuffer": ("document_id__filename__startswith", "chunk_id__text__startswith"),
    "documents_document": ("filename__startswith", "user_id__startswith", "chunks__text__contains", "created_at__gte"),
    "documents_parserequest": ("document_id__filename__startswith", "document_id__chunks__text__contains"),
    "documents_objectdeletion": ("path__startswith", "drop_after__gte"),
    "accounts_apitoken": ("user_id__password__startswith", "user_id__email__startswith", "digest__startswith"),
    "accounts_user": ("password__startswith", "is_staff__gte", "api_tokens__digest__startswith"),
    "reindexing_campaign": ("canaries__contains", "state__startswith"),
}


def test_no_admin_list_accepts_hidden_lookups(root: Staff) -> None:
    answers = {
        (page, guess): root.get(f"{page}_changelist", **{guess: "a"}).status_code
        for page, guesses in GUESSES.items() for guess in guesses
    }  # fmt: skip
    of_staff = {
        model: root.get(route(model, "changelist"), user_id__password__startswith="a").status_code for model in LISTED
    }

    assert {statements: status for statements, status in answers.items() if status != 400} == {}
    assert set(of_staff.values()) == {400}, of_staff


@pytest.mark.slow
def test_every_filter_takes_its_parameters_for_itself(root: Staff) -> None:
    """What a filter left would be looked up as a column, or be no column at all."""
    filtered = {model: admin.site._registry[model].list_filter for model in LISTED if model is not Group}

    served = 0
    for model, shown in filtered.items():
        for name in (name for each in shown for name in query_parameters(each)):
            root.page(route(model, "changelist"), **{name: "x"})
            served += 1

    assert served > 20


FOUND_BY = (
    ("documents_document", "document_id"), ("documents_document", "user_id"),
    ("embeddings_documentchunk", "document_id"), ("embeddings_documentchunk", "chunk_id"),
    ("documents_parserequest", "vendor_job_id"), ("vendors_purchase", "purchase_id"),
    ("webhooks_delivery", "key"), ("accounts_user", "email"),
)  # fmt: skip


def test_search_finds_a_whole_id_only(rows: Document, root: Staff) -> None:
    models = {route(model, "change"): model for model in LISTED}
    for page, column in FOUND_BY:
        expected = models[f"{page}_change"]._default_manager.order_by().values_list("pk", column).first()
        assert expected is not None
        pk, value = (str(part) for part in expected)

        assert pk in root.page(f"{page}_changelist", q=f" {value} "), (page, column)
        for wrong in (value[:-2], "%", "'"):
            assert pk not in root.page(f"{page}_changelist", q=wrong), (page, column, wrong)


def test_invalid_filters_are_answered(root: Staff) -> None:
    of = Document.objects.create(
        document_id=uuid4(), user_id=uuid4(), filename=CANARY, mime="application/pdf", bytes_len=1, file_sha256="x",
        raw_path=CANARY,
    )  # fmt: skip
    shows = [{"user_id": str(of.user_id)}, {"created_at_from": "2020-01-01T00:00"}, {"p": "0"}, {"p": "-3"}, {"p": "x"}]
    shows += [{"p": "9" * 30}, {"o": "3.-1.x"}, {"all": ""}, {"_facets": "True"}, {"created_at_to": "soon"}]
    hides = [{"user_id": "x"}, {"user_id": "\x00"}, {"created_at_to": "2020-01-01"}, {"user_id": str(UUID(int=7))}]
    for query in shows:
        assert str(of.pk) in root.page("documents_document_changelist", **query), query
    for query in hides:
        assert str(of.pk) not in root.page("documents_document_changelist", **query), query
    for moment in ("9999-12-31T23:59", "99999-01-01", "0001-01-01"):
        root.page("documents_document_changelist", created_at_from=moment)


def test_hostile_names_run_nowhere(ana: Person, root: Staff) -> None:
    hostile = "<script>alert(1)</script>"
    ana.user.first_name = ana.user.username = hostile
    ana.user.save()
    Breaker.objects.create(key=hostile)
    Delivery.objects.create(key=hostile, body_sha256="x", code=hostile, expires_at=timezone.now())
    log.record_action(by=ana.user, action=hostile, reason=hostile, object_type=hostile, object_id=hostile, said=hostile)

    for page in ("vendors_breaker", "webhooks_delivery", "audit_auditentry", "accounts_user"):
        assert hostile not in root.page(f"{page}_changelist")
    assert hostile not in root.page("accounts_user_change", ana.id)
