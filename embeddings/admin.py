"""Admin of chunks and vectors. Reading a chunk's text needs a permission and a reason; vectors are never shown."""

from typing import Any

from django.contrib import admin
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from unfold.decorators import action

from accounts import admin_base
from accounts.admin_base import ReadOnlyAdmin, column, exact_filter
from accounts.audit import log
from embeddings.models import ActiveModel, ChunkBuffer, DocumentChunk, VectorBuffer, VectorIndex

MAY_READ = "documents.read_text"
NOT_LOADED = {"text", "meta", "search", "embedding"}  # headings are text too, and from a vector text can be guessed


class PassageAdmin(ReadOnlyAdmin):
    """Rows of a document, without loading a tenant's text."""

    model_column = column("model", lambda row: f"{row.embed_model}@{row.embed_version}" if row.embed_model else "-")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.defer(*NOT_LOADED & {field.name for field in self.opts.fields})


class ReadableAdmin(PassageAdmin):
    chunker = column("chunker", lambda row: f"{row.chunker_name}@{row.chunker_version}")
    actions_detail = ("read",)

    def has_read_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return bool(self.has_view_permission(request) and request.user.has_perm(MAY_READ))

    @action(description="Read the text", icon="visibility", url_path="read", permissions=["read"])  # type: ignore[untyped-decorator]
    def read(self, request: HttpRequest, object_id: str) -> HttpResponse:
        passage = self.get_object(request, object_id)
        if passage is None:
            raise Http404
        back = reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", args=[passage.pk])
        form = admin_base.ReasonForm(request.POST or None)
        shown: dict[str, Any] = {"title": f"Read passage {passage.pk}", "button": "Read", "back": back}
        if request.method == "POST" and form.is_valid():
            shown |= {"template": "admin/audit/text.html", "text": self._read(request, passage, form.cleaned_data)}
        return admin_base.reason_page(request, self.admin_site, form, **shown)

    def _read(self, request: HttpRequest, passage: Any, answers: dict[str, str]) -> str:
        with transaction.atomic():
            log.record_action(
                by=request.user, action=MAY_READ, reason=answers["reason"], object_type=self.opts.model_name or "",  # type: ignore[arg-type]
                object_id=passage.pk, tenant_id=passage.user_id, document_id=str(passage.document_id),
            )  # fmt: skip
            return str(self.model.objects.values_list("text", flat=True).get(pk=passage.pk))


@admin.register(DocumentChunk)
class DocumentChunkAdmin(ReadableAdmin):
    list_display = (
        "chunk_ord", "document_id", "user_id", "chunker", "model_column", "embed_updated_at",
    )  # fmt: skip
    list_filter = (exact_filter("document_id", "document's id"),)
    id_fields = ("chunk_id", "document_id")
    ordering = ("document_id", "chunker_name", "chunker_version", "chunk_ord")  # uq_chunk_ord
    fields = (
        ("chunk_id", "user_id"), ("document_id", "chunk_ord"), ("chunker_name", "chunker_version"), "chunk_sha",
        ("embed_model", "embed_version", "vector_dim"), "vector_sha", ("created_at", "updated_at", "embed_updated_at"),
    )  # fmt: skip
    readonly_fields = ("document_id",)


@admin.register(ChunkBuffer)
class ChunkBufferAdmin(ReadableAdmin):
    list_display = ("chunk_ord", "document_id", "user_id", "chunker", "created_at")
    list_filter = (exact_filter("document_id", "document's id"),)
    id_fields = ("chunk_id", "document_id")
    ordering = ("document_id", "chunk_ord", "chunk_id")
    fields = (
        ("chunk_id", "user_id"), ("document_id", "chunk_ord"), ("chunker_name", "chunker_version"),
        ("chunk_sha", "created_at"),
    )  # fmt: skip
    readonly_fields = ("document_id",)


@admin.register(VectorBuffer)
class VectorBufferAdmin(PassageAdmin):
    list_display = ("created_at", "document_id", "user_id", "chunk_id", "model_column")
    list_filter = (exact_filter("document_id", "document's id"),)
    id_fields = ("buffer_id", "document_id", "chunk_id")
    ordering = ("document_id", "buffer_id")
    fields = (
        ("buffer_id", "user_id"), ("document_id", "chunk_id"), ("embed_model", "embed_version", "vector_dim"),
        ("vector_sha", "created_at"),
    )  # fmt: skip
    readonly_fields = ("document_id", "chunk_id")


@admin.register(ActiveModel)
class ActiveModelAdmin(ReadOnlyAdmin):
    list_display = (
        "user_id", "embed_model", "embed_version", "previous_model", "previous_version", "pinned", "shadowed",
        "changed_at",
    )  # fmt: skip
    list_filter = (exact_filter("embed_model", "model"),)
    id_fields = ("user_id",)
    ordering = ("user_id",)


@admin.register(VectorIndex)
class VectorIndexAdmin(ReadOnlyAdmin):
    list_display = (
        "name", "user_id", "table_name", "embed_model", "passages", "since", "upto", "built_at",
    )  # fmt: skip
    id_fields = ("name", "user_id")
    ordering = ("name",)
