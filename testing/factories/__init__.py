"""Factories of users, documents and jobs. Jobs get consistent columns for the ``state`` that is given."""

# factory-boy types what its factories make, and nothing else.
# mypy: disable-error-code="no-untyped-call, attr-defined"

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import factory
from django.conf import settings

from accounts.models import User
from documents.models import Document
from jobs.models import UploadJob


def _soon() -> datetime:
    return datetime.now(UTC) + timedelta(seconds=settings.JOBS_LEASE_SECONDS)


class UserFactory(factory.django.DjangoModelFactory[User]):
    class Meta:
        model = User

    username = factory.Sequence("user{}".format)
    email = factory.LazyAttribute(lambda user: f"{user.username}@example.test")


class DocumentFactory(factory.django.DjangoModelFactory[Document]):
    """A declared document whose bytes have not come. Its owner is ``user_id``, anybody's unless given."""

    class Meta:
        model = Document

    document_id = factory.LazyFunction(uuid.uuid4)
    user_id = factory.LazyFunction(uuid.uuid4)
    filename = "plan.pdf"
    mime = "application/pdf"
    bytes_len = 1000
    file_sha256 = factory.LazyAttribute(lambda document: document.document_id.hex * 2)
    raw_path = factory.LazyAttribute(lambda document: f"storage://raw/{document.user_id}/{document.document_id}.pdf")
    upload_expires_at = factory.LazyFunction(_soon)


class JobFactory(factory.django.DjangoModelFactory[UploadJob]):
    """A job of a document of its own, queued unless ``state`` says otherwise."""

    class Meta:
        model = UploadJob
        exclude = ("held", "ended")

    user_id = factory.LazyFunction(uuid.uuid4)
    document = factory.SubFactory(DocumentFactory, user_id=factory.SelfAttribute("..user_id"))
    raw_path = factory.SelfAttribute("document.raw_path")
    pipeline = "noop"
    stage = "embedded"
    state = "queued"
    chunks_version = ""

    campaign_id = None
    low_priority = factory.LazyAttribute(lambda job: job.campaign_id is not None)
    held = factory.LazyAttribute(lambda job: job.state == "working")
    ended = factory.LazyAttribute(lambda job: job.state in ("done", "deadletter"))
    attempts = factory.LazyAttribute(lambda job: int(job.state != "queued"))
    claim_token = factory.LazyAttribute(lambda job: uuid.uuid4() if job.held else None)
    claimed_by = factory.LazyAttribute(lambda job: "nobody:0:0" if job.held else None)
    claimed_at = factory.LazyAttribute(lambda job: datetime.now(UTC) if job.held else None)
    lease_until = factory.LazyAttribute(lambda job: _soon() if job.held else None)
    slot = factory.LazyAttribute(lambda job: 0 if job.held else None)
    run_after = factory.LazyAttribute(lambda job: _soon() if job.state == "retryable" else None)
    finished_at = factory.LazyAttribute(lambda job: datetime.now(UTC) if job.ended else None)

    @classmethod
    def _create(cls, model_class: Any, *args: Any, **kwargs: Any) -> UploadJob:
        """Read the row back: ``status`` and the columns with database defaults are the database's."""
        job: UploadJob = super()._create(model_class, *args, **kwargs)
        return UploadJob.objects.get(pk=job.pk)
