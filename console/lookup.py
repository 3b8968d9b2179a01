"""Search of the console: the page of an e-mail address, a file name, an id or an ``X-Correlation-ID``.

Each look-up reads one index. A member of staff finds what the permissions of the page allow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from uuid import UUID

from django.apps import apps
from django.db.models import QuerySet, Value
from django.db.models.functions import Left, Lower
from django.urls import reverse

from accounts.models import User
from documents.models import Document
from jobs.admin import find_correlated_jobs
from jobs.models import UploadJob

MAX_HITS = 20
FILENAME_CHARS = 200  # of ix_documents_filename

# Models that are found by their id, besides the console's own pages: each with its admin page.
BY_ID = (
    "documents.parserequest", "vendors.purchase", "outbox.message", "outbox.webhookendpoint",
    "integrations.connectedsource", "integrations.ingestionjob", "accounts.apitoken", "reindexing.campaign",
    "embeddings.documentchunk", "audit.auditentry",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hit:
    """A page that a search leads to. ``about`` says what it is, such as "job"."""

    about: str
    name: str
    url: str
    pk: UUID | str


def find(user: User, term: str) -> list[Hit]:
    """Return the pages of a whole e-mail address, file name or id; [] without one that ``user`` may see."""
    term = term.strip().replace("\0", "")
    if not term:
        return []
    try:
        pk = UUID(term)
    except ValueError:
        return _find_emails(user, email=term.lower()) or _find_files(user, term) or _find_statutes(user, term)
    return next((hits for look in (_find_page, _find_correlated, _find_row) if (hits := look(user, pk))), [])


def find_by_prefix(user: User, prefix: str) -> list[Hit]:
    """Return tenants and documents whose address or file name begins with ``prefix``, in any case."""
    prefix = prefix.strip().replace("\0", "").lower()
    return _find_emails(user, email__startswith=prefix) + _find_files(user, prefix, is_prefix=True) if prefix else []


def _find_emails(user: User, **condition: str) -> list[Hit]:
    if not user.has_perm("accounts.view_user"):
        return []
    tenants = sorted(User.objects.filter(**condition).values_list("pk", "email")[:MAX_HITS], key=itemgetter(1))
    return [Hit("tenant", email, reverse("console:tenant", args=[pk]), pk) for pk, email in tenants]


def filename_condition(text: str, *, is_prefix: bool = False) -> QuerySet[Document]:
    """Return the documents with this file name, or one that begins so, as ix_documents_filename reads them."""
    text = text.lower()[:FILENAME_CHARS]
    named = Document.objects.alias(lower_name=Lower(Left("filename", FILENAME_CHARS)))
    return named.filter(lower_name__startswith=text) if is_prefix else named.filter(lower_name=Value(text))


def _find_files(user: User, text: str, *, is_prefix: bool = False) -> list[Hit]:
    if not user.has_perm("documents.view_document"):
        return []
    rows = filename_condition(text, is_prefix=is_prefix).values_list("pk", "filename", "user_id")[:MAX_HITS]
    emails = dict(User.objects.filter(pk__in=[row[2] for row in rows]).values_list("pk", "email"))
    page = "admin:documents_document_change"
    return [Hit(f"file of {emails.get(owner, owner)}", name, reverse(page, args=[pk]), pk) for pk, name, owner in rows]


def _find_statutes(user: User, term: str) -> list[Hit]:
    if not user.has_perm("statutes.view_law") or not apps.get_model("statutes.law").objects.filter(pk=term).exists():
        return []
    return [Hit("statute", term, reverse("admin:statutes_law_change", args=[term]), term)]


def _find_page(user: User, pk: UUID) -> list[Hit]:
    """Return the page of a job, a document or a tenant."""
    pages: Sequence[tuple[str, str, QuerySet[UploadJob] | QuerySet[Document] | QuerySet[User], str]] = (
        ("job", "jobs.view_uploadjob", UploadJob.objects.all(), "console:job"),
        ("document", "documents.view_document", Document.objects.all(), "admin:documents_document_change"),
        ("tenant", "accounts.view_user", User.objects.all(), "console:tenant"),
    )
    return [
        Hit(about, str(pk), reverse(page, args=[pk]), pk)
        for about, permission, rows, page in pages
        if user.has_perm(permission) and rows.filter(pk=pk).exists()
    ]


def _find_correlated(user: User, pk: UUID) -> list[Hit]:
    """Return the jobs of the request with this ``X-Correlation-ID``."""
    job_ids = find_correlated_jobs(pk)[:MAX_HITS] if user.has_perm("jobs.view_uploadjob") else []
    return [Hit("job of the request", str(job), reverse("console:job", args=[job]), job) for job in job_ids]


def _find_row(user: User, pk: UUID) -> list[Hit]:
    for label in BY_ID:
        model = apps.get_model(label)
        options = model._meta
        permission = f"{options.app_label}.view_{options.model_name}"
        if user.has_perm(permission) and model._default_manager.filter(pk=pk).exists():
            page = reverse(f"admin:{options.app_label}_{options.model_name}_change", args=[pk])
            return [Hit(str(options.verbose_name), str(pk), page, pk)]
    return []
