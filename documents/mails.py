"""Mails about documents that are done or have failed: one for each, or one a day."""

from datetime import timedelta
from typing import Any

from django.db.models import QuerySet
from django.utils.dateparse import parse_datetime

from accounts.errors import Context, find_error_code
from accounts.models import Notify, User
from documents.models import Document
from jobs.choices import State
from jobs.models import UploadJob
from outbox.mails.templates import Mail, link, render
from outbox.models import Message

MOST_LISTED = 50


def completed(message: Message) -> Mail | None:
    return _of_one(message, "document_completed")


def failed(message: Message) -> Mail | None:
    return _of_one(message, "document_failed")


def daily(message: Message) -> Mail | None:
    """List the documents whose last job ended on the day (UTC) of the message's event; those deleted since are not."""
    user, event_at = _receiver(message, Notify.DAILY), parse_datetime(message.payload["timestamp"])
    if user is None or event_at is None:
        return None
    day = event_at.replace(hour=0, minute=0, second=0, microsecond=0)
    jobs = _ended_jobs(message).filter(finished_at__gte=day, finished_at__lt=day + timedelta(days=1))
    names: dict[bool, list[str]] = {True: [], False: []}
    for job in jobs.order_by("finished_at", "job_id")[:MOST_LISTED]:
        names[job.state == State.DONE].append(_one_line(job.document.filename))
    if not any(names.values()):
        return None
    return render(user.email, "documents_daily", user.language, day=day, done=names[True], failed=names[False],
                  more=max(0, jobs.count() - MOST_LISTED), url=link("portal:home"),
                  account=link("portal:account"))  # fmt: skip


def _of_one(message: Message, template: str) -> Mail | None:
    data: dict[str, Any] = message.payload["data"]
    user = _receiver(message, Notify.EACH)
    document = Document.objects.filter(pk=data["document_id"], user_id=message.user_id).first()
    if user is None or document is None:
        return None
    code = find_error_code(data["code"], Context.FAILURE)
    return render(user.email, template, user.language, filename=_one_line(document.filename),
                  reason=code.tenant_message if code else "", url=link("portal:document", document.pk),
                  account=link("portal:account"))  # fmt: skip


def _receiver(message: Message, frequency: Notify) -> User | None:
    """Return the message's user, if they still want such mails."""
    return User.objects.filter(pk=message.user_id, is_active=True, notify=frequency).first()


def _ended_jobs(message: Message) -> QuerySet[UploadJob]:
    ended = UploadJob.objects.filter(user_id=message.user_id, campaign_id=None)
    return ended.filter(state__in=[State.DONE, State.DEADLETTER]).select_related("document")


def _one_line(name: str) -> str:
    return " ".join(name.split())
