"""Mails about documents: none, one for each, or one a day."""

import pytest
from django.db.models.functions import Now

from accounts.models import User
from documents import services
from documents.models import Document
from outbox.models import Message
from outbox.tests.test_mails import sent
from outbox.webhooks import endpoints
from testing.personas import Person, plan_pdf

pytestmark = pytest.mark.django_db


def wants(person: Person, notify: str) -> None:
    User.objects.filter(pk=person.id).update(notify=notify)


def test_no_mail_is_sent_unasked(ana: Person) -> None:
    ana.ingest(plan_pdf("hospital care"))

    assert not Message.objects.exists()


def test_each_document_is_a_mail(ana: Person, ben: Person) -> None:
    wants(ana, "each")
    done = ana.ingest(plan_pdf("hospital care"), filename="<Dad's> plan.pdf")
    failed = ana.ingest(b"no pdf at all", filename="letter.pdf")
    ben.ingest(plan_pdf("drugs"))

    letters = {letter.subject: letter for letter in sent()}

    assert set(letters) == {"Your document is ready", "Your document could not be read"}
    ready, unread = letters["Your document is ready"], letters["Your document could not be read"]
    assert ready.to == unread.to == [ana.user.email]
    assert "“<Dad's> plan.pdf”" in ready.body
    assert f"/d/{done.document_id}" in ready.body
    assert f"/d/{failed.document_id}" in unread.body
    assert "plan.pdf" not in str(list(Message.objects.values_list("payload", flat=True)))


def test_a_day_is_one_mail_that_is_due_the_next_morning(ana: Person) -> None:
    wants(ana, "daily")
    for subject in ("hospital care", "drugs"):
        ana.ingest(plan_pdf(subject), filename=f"{subject}.pdf")
    ana.ingest(b"no pdf at all", filename="letter.pdf")

    message = Message.objects.get()
    day_after = (message.due_at - message.created_at).total_seconds() / 3600
    early = sent()
    Message.objects.update(due_at=Now())
    (letter,) = sent()

    assert early == []
    assert (message.due_at.hour, 7 <= day_after <= 31) == (7, True)
    assert "- hospital care.pdf\n- drugs.pdf\n" in letter.body
    assert "Could not be read:\n- letter.pdf\n" in letter.body


@pytest.mark.parametrize("change", ["deleted", "off"])
def test_nothing_is_told_of_what_was_deleted_or_is_not_wanted_any_more(change: str, ana: Person) -> None:
    uploaded = ana.ingest(plan_pdf("hospital care"))
    for notify in ("each", "daily"):
        wants(ana, notify)
        data = {"document_id": str(uploaded.document_id), "code": None}
        endpoints.publish(user_id=ana.id, type="document.completed", data=data)
    if change == "off":
        wants(ana, "off")
    else:
        services.delete(Document.objects.get())
    Message.objects.update(due_at=Now())

    assert sent() == []
    assert list(Message.objects.values_list("last_error", flat=True)) == ["MAIL_OBSOLETE"] * 2
