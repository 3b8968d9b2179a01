"""Admin of documents: file names and e-mail addresses find a document, its text needs a reason."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from accounts.admin_base import ReadOnlyAdmin, choice_filter, column, datetime_range_filter, exact_filter
from accounts.admin_cells import job_cell
from documents.models import Document, ObjectDeletion, ParseRequest
from jobs.models import UploadJob
from jobs.services import newest_job

LINK = '<a class="text-primary-600 dark:text-primary-500" href="{}">{}</a>'
# Other admin lists, each searchable by document id.
RELATED_LISTS = (
    ("jobs", "admin:jobs_uploadjob_changelist"),
    ("events", "admin:jobs_event_changelist"),
    ("passages", "admin:embeddings_documentchunk_changelist"),
    ("parse requests", "admin:documents_parserequest_changelist"),
    ("purchases", "admin:vendors_purchase_changelist"),
    ("audit log", "admin:audit_auditentry_changelist"),
)


@admin.register(Document)
class DocumentAdmin(ReadOnlyAdmin):
    list_display = (
        "document_id", "user_id", "processing_status", "pages", "size", "parser", "created_at",
    )  # fmt: skip
    list_filter = (exact_filter("user_id", "tenant's id"), datetime_range_filter("created_at", "created"))
    id_fields = ("document_id", "user_id")
    ordering = ("-created_at", "document_id")
    fields = (
        ("document_id", "user_id"), ("job", "related_lists"), ("processing_status", "chunks_version"),
        ("mime", "bytes_len", "pages"), ("parser", "parse_fallback", "ocr"), ("failed_pages", "doubtful_pages"),
        ("created_at", "updated_at"), ("upload_expires_at", "stored_at"),
    )  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Document]:
        documents: QuerySet[Document] = super().get_queryset(request)
        return documents.defer("filename", "raw_path", "parsed_path", "page_starts")

    @admin.display(empty_value="-")
    def parser(self, document: Document) -> str | None:
        return f"{document.parser_name}@{document.parser_version}" if document.parser_name else None

    size = column("size", lambda document: filesizeformat(document.bytes_len))

    @admin.display(empty_value="-")
    def job(self, document: Document) -> str | None:
        job = newest_job(UploadJob.objects.filter(document_id=document.pk))
        if job is None:
            return None
        return job_cell(job.pk)

    def related_lists(self, document: Document) -> SafeString:
        links = ((f"{reverse(route)}?q={document.pk}", label) for label, route in RELATED_LISTS)
        return format_html_join(", ", LINK, links)


@admin.register(ParseRequest)
class ParseRequestAdmin(ReadOnlyAdmin):
    list_display = (
        "planned_at", "user_id", "document_id", "state", "round", "parser_name", "vendor_job_id", "called_back_at",
    )  # fmt: skip
    list_filter = (
        choice_filter("state", "state", ParseRequest.State.choices), exact_filter("document_id", "document's id"),
        datetime_range_filter("planned_at", "planned"),
    )  # fmt: skip
    id_fields = ("parse_id", "document_id", "vendor_job_id")
    ordering = ("-planned_at", "parse_id")
    fields = (
        ("parse_id", "user_id"), ("document_id", "job_id"), ("state", "round"), ("parser_name", "parser_version"),
        ("vendor_job_id", "file_id"), "purchase_id", ("planned_at", "submitted_at"), ("called_back_at", "deadline"),
    )  # fmt: skip
    readonly_fields = ("document_id",)


@admin.register(ObjectDeletion)
class ObjectDeletionAdmin(ReadOnlyAdmin):
    """Pending deletions of deleted documents, without their storage paths."""

    list_display = ("drop_after", "document_id", "try_after")
    list_filter = (datetime_range_filter("drop_after", "due"),)
    id_fields = ("deletion_id",)
    ordering = ("drop_after", "deletion_id")
    fields = (("deletion_id", "document_id"), ("drop_after", "try_after"))

    def get_queryset(self, request: HttpRequest) -> QuerySet[ObjectDeletion]:
        deletions: QuerySet[ObjectDeletion] = super().get_queryset(request)
        return deletions.defer("path")
