"""Staff admin of connectors: ids and codes only, and the replay of archived messages."""

from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.utils import timezone
from django.utils.text import capfirst

from accessa.admin_menu import SIDEBAR
from accounts.audit.tests.personas import Staff, audit_entries
from integrations.models import ArchivedMessage, ConnectedSource, IngestionJob
from integrations.sync import pgmq
from integrations.sync.pgmq import Body
from testing.personas import Person

pytestmark = pytest.mark.django_db

ARCHIVE = "integrations_archivedmessage_changelist"


@pytest.fixture
def given_up(ana: Person) -> ArchivedMessage:
    """Return a page that was tried five times."""
    source = ConnectedSource.objects.create(user_id=ana.id, provider="hubspot", account="ana@corp.example")
    job = IngestionJob.objects.create(
        user_id=ana.id, source=source, kind="full_sync", status="failed", page=3, error_message="max_retries_exceeded",
        error_details=[{"external_id": "contact:7", "code": "RECORD_MALFORMED"}], finished_at=timezone.now(),
    )  # fmt: skip
    body = Body(job.pk, source.pk, ana.id, "full_sync", 1, "a cursor of ana@corp.example", 3)
    with connection.cursor() as cursor:
        cursor.execute("SELECT ingestion_archive('ingestion_queue', %s)", [pgmq.enqueue_page(body)])
    return ArchivedMessage.objects.get()


def replay(member: Staff, *, reason: str | None = None, chosen: Any) -> Any:
    params = {} if reason is None else {"confirmed": "yes", "reason": reason}
    return member.post(ARCHIVE, action="replay", index="0", _selected_action=chosen, **params)


def test_codes_and_ids_are_shown_and_neither_accounts_nor_cursors(given_up: ArchivedMessage) -> None:
    support = Staff("support", group="support")
    job = IngestionJob.objects.get()

    shown = [
        support.page("integrations_connectedsource_changelist"),
        support.page("integrations_connectedsource_change", job.source_id),
        support.page("integrations_ingestionjob_changelist"),
        support.page("integrations_ingestionjob_change", job.pk),
        support.page(ARCHIVE),
        support.page("integrations_archivedmessage_change", given_up.pk),
    ]

    assert [page for page in shown if "corp.example" in page or "vault" in page] == []
    assert "contact:7: RECORD_MALFORMED" in shown[3]
    assert "max_retries_exceeded" in shown[2]
    assert str(job.pk) in shown[4]


def test_an_archived_message_shows_provider_code_and_a_link_to_its_sync(given_up: ArchivedMessage) -> None:
    support, job = Staff("support", group="support"), IngestionJob.objects.get()
    with connection.cursor() as cursor:  # as nobody's page of ours
        cursor.execute("SELECT pgmq.send('ingestion_queue', '{\"job_id\": \"none\"}')")
        cursor.execute("SELECT ingestion_archive('ingestion_queue', %s)", cursor.fetchone())

    for page in (support.page(ARCHIVE), support.page("integrations_archivedmessage_change", given_up.pk)):
        assert f"/integrations/ingestionjob/{job.pk}/change/" in page
        assert "max_retries_exceeded" in page
        assert "hubspot" in page


def test_a_source_page_names_the_missing_capability(given_up: ArchivedMessage) -> None:
    ConnectedSource.objects.update(capabilities={"tools": [], "missing": "search_crm_objects.after"})

    page = Staff("support", group="support").page(
        "integrations_connectedsource_change", ConnectedSource.objects.get().pk
    )

    assert "search_crm_objects.after" in page


def test_list_titles_match_the_menu(given_up: ArchivedMessage) -> None:
    models = (ConnectedSource, IngestionJob, ArchivedMessage)
    (menu,) = [each["items"] for each in SIDEBAR["navigation"] if each["title"] == "Connectors"]

    assert [capfirst(model._meta.verbose_name_plural) for model in models] == [item["title"] for item in menu]


@pytest.mark.parametrize("params", [{"status": "failed"}, {"kind": "full_sync"}, {"source__provider": "hubspot"}])
def test_syncs_are_found_by_their_filters(params: dict[str, str], given_up: ArchivedMessage) -> None:
    operator, job = Staff("operator", group="operator"), IngestionJob.objects.get()
    (name,) = params
    others = {"status": "running", "kind": "delta_sync", "source__provider": "gmail"}

    assert str(job.pk) in operator.page("integrations_ingestionjob_changelist", **params)
    assert str(job.pk) not in operator.page("integrations_ingestionjob_changelist", **{name: others[name]})
    assert str(job.pk) in operator.page("integrations_ingestionjob_changelist", q=str(job.source_id))


def test_a_message_is_replayed_once_its_reason_is_confirmed(given_up: ArchivedMessage) -> None:
    operator = Staff("operator", group="operator")

    response = replay(operator, chosen=given_up.pk)
    assert "Put back" in response.content.decode()
    assert ArchivedMessage.objects.exists()
    assert "This field is required" in replay(operator, reason=" ", chosen=given_up.pk).content.decode()
    replay(operator, reason="HubSpot is well again", chosen=given_up.pk)

    assert not ArchivedMessage.objects.exists()
    assert pgmq.has_messages()
    assert [(action, actor) for action, actor, *_ in audit_entries()] == [("ingestion.replay", "operator@example.org")]


def test_messages_not_replayed_are_counted_by_error_code(given_up: ArchivedMessage) -> None:
    operator = Staff("operator", group="operator")
    IngestionJob.objects.update(status="completed", error_message=None)

    answer = replay(operator, reason="try", chosen=given_up.pk)

    assert "1 not put back: SYNC_WENT_ON." in operator.client.get(answer.url).content.decode()
    assert "No archived" not in replay(operator, reason="try", chosen=given_up.pk).content.decode()


def test_support_staff_can_view_but_not_replay(given_up: ArchivedMessage) -> None:
    support = Staff("support", group="support")

    replay(support, reason="please", chosen=given_up.pk)

    assert ArchivedMessage.objects.exists()
    assert "Put back into the queue" not in support.page(ARCHIVE)
    assert Staff("nobody").get(ARCHIVE).status_code == 403


def test_a_selection_that_is_no_message_id_is_rejected(given_up: ArchivedMessage) -> None:
    operator = Staff("operator", group="operator")

    for chosen in ("x", str(uuid4()), "9" * 30):
        assert replay(operator, reason="try", chosen=chosen).status_code in (200, 302), chosen
    assert ArchivedMessage.objects.exists()
