"""Mails through the outbox: written when they are sent, and the outcomes of SMTP."""

import smtplib
import time
from typing import Any
from uuid import uuid4

import pytest
from django.core import mail
from django.core.mail import EmailMessage
from django.core.management import CommandError, call_command
from pytest_django import Settings

from accounts.audit.models import AuditEntry
from accounts.models import Invitation, User
from outbox import queue
from outbox.mails import account_mails, delivery
from outbox.mails.templates import Mail, render
from outbox.models import Message
from outbox.webhooks import endpoints
from testing.personas import Person

pytestmark = pytest.mark.django_db
LETTER = Mail("ana@example.org", "Subject", "Body")


def sent() -> list[EmailMessage]:
    """Send what is due, without threads, and return all mails so far: a worker that ran jobs has sent some, too."""
    while messages := queue.claim_due():
        for message in messages:
            queue.settle(message, delivery.prepare(message)(), 1)
    return list(mail.outbox)


def test_a_mail_is_plain_text_with_an_id_that_repeats(ana: Person, settings: Settings) -> None:
    settings.PUBLIC_URL = "https://accessa.example.org"
    account_mails.enqueue_mail(ana.id, account_mails.CHANGED)

    (letter,) = sent()

    message = Message.objects.get()
    assert (message.state, message.payload) == ("delivered", {"type": "account.password_changed"})
    assert letter.to == [ana.user.email]
    assert letter.message().get_content_type() == "text/plain"
    assert letter.message()["Message-ID"] == f"<{message.pk}@accessa.example.org>"
    assert "https://accessa.example.org/reset-password" in letter.body


def test_a_mail_for_a_deleted_account_is_not_sent() -> None:
    account_mails.enqueue_mail(uuid4(), account_mails.CHANGED)

    assert sent() == []
    assert Message.objects.get().last_error == "MAIL_OBSOLETE"


@pytest.mark.parametrize(
    ("error", "code", "is_final"),
    [
        (smtplib.SMTPRecipientsRefused({"a": (550, b"no")}), "MAIL_REFUSED", True),
        (smtplib.SMTPRecipientsRefused({"a": (450, b"later")}), "MAIL_REFUSED", False),
        (smtplib.SMTPDataError(554, b"spam"), "MAIL_REFUSED", True),
        (smtplib.SMTPAuthenticationError(535, b"who"), "MAIL_UNREACHABLE", False),
        (smtplib.SMTPSenderRefused(550, b"you", "us"), "MAIL_UNREACHABLE", False),
        (smtplib.SMTPServerDisconnected("gone"), "MAIL_UNREACHABLE", False),
        (TimeoutError(), "MAIL_UNREACHABLE", False),
    ],
)
def test_a_failed_attempt_is_final_only_if_the_receiver_said_so(
    error: Exception, code: str, is_final: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise error

    monkeypatch.setattr(EmailMessage, "send", fail)

    attempt = delivery.send("id", LETTER)

    assert (attempt.code, attempt.is_final) == (code, is_final)


@pytest.mark.parametrize("letter", [LETTER._replace(to="a@example.org\nBcc: b@example.org"),
                                    LETTER._replace(subject="a\r\nBcc: b@example.org")])  # fmt: skip
def test_no_header_is_injected(letter: Mail) -> None:
    attempt = delivery.send("id", letter)

    assert (attempt.code, attempt.is_final, mail.outbox) == ("MAIL_REFUSED", True, [])


def test_a_template_keeps_its_context_out_of_the_subject() -> None:
    letter = render("a@example.org", "document_completed", "", filename="a\r\nBcc: <b>&", url="u", account="a")

    assert letter.subject == "Your document is ready"
    assert "<b>&" in letter.body


def test_staff_may_send_a_mail_again(ana: Person) -> None:
    account_mails.enqueue_mail(ana.id, account_mails.CHANGED)
    assert len(sent()) == 1

    endpoints.resend(Message.objects.get())

    assert len(sent()) == 2


def test_an_invitation_is_sent_by_command(settings: Settings) -> None:
    settings.SIGN_UP = "invitation"

    call_command("invite", "New@Example.org", reason="joins us")

    invitation = Invitation.objects.get()
    assert AuditEntry.objects.get(action="users.invite").object_id == str(invitation.pk)
    assert [letter.to for letter in sent()] == [["new@example.org"]]


@pytest.mark.parametrize(
    ("mode", "email", "sentence"),
    [
        ("closed", "new@example.org", "SIGN_UP is closed"),
        ("open", "new", "not an e-mail address"),
        ("open", "ana@example.org", "has an account already"),
    ],
)
def test_a_wrong_invitation_is_refused(mode: str, email: str, sentence: str, ana: Person, settings: Settings) -> None:
    settings.SIGN_UP = mode

    with pytest.raises(CommandError, match=sentence):
        call_command("invite", email)

    assert not Message.objects.exists()
    assert User.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_worker_sends_mails_beside_webhooks(ana: Person) -> None:
    account_mails.enqueue_mail(ana.id, account_mails.CHANGED)

    assert queue.drain(time.monotonic() + 60) == 1

    assert [letter.to for letter in mail.outbox] == [[ana.user.email]]
    assert Message.objects.get().state == "delivered"
