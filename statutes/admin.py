"""Admin of laws, their versions and the SQS consumers: ids and codes, no text of a law."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, cast
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import BooleanField, Exists, ExpressionWrapper, OuterRef, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.text import Truncator

from accounts import admin_base
from accounts.admin_base import ReadOnlyAdmin, choice_filter, exact_filter, nowrap
from accounts.admin_cells import job_cell
from accounts.errors import ApiError
from accounts.models import User
from jobs.admin import UploadJobAdmin
from statutes import staff_actions, withdrawal
from statutes.models import ALIVE, Consumer, Law, LawVersion, laws_with_error_codes
from statutes.s3 import keys
from statutes.sqs.message_schema import PRIORITIES
from statutes.stages import MIMES

MAX_REPROCESSED, MAX_WITHDRAWN = 100, 10  # per request, which must be answered: a law has hundreds of objects
MAX_TITLE_CHARS = 60  # in a list
MAX_VERSIONS = 1_000  # per law


def document_ids_of_law(law_id: str) -> list[UUID]:
    """Return the document ids of a law's versions, by which its jobs are found."""
    return list(LawVersion.objects.filter(law_id=law_id).values_list("document_id", flat=True)[:MAX_VERSIONS])


UploadJobAdmin.document_lookups.append(document_ids_of_law)


def _choices(names: Iterable[str]) -> list[tuple[str, str]]:
    return [(name, name.replace("_", " ")) for name in names]


@admin.register(Law)
class LawAdmin(ReadOnlyAdmin):
    list_display = (
        "law", "short_title", "status", "code", "version", "chunk_count", "language", "updated_at", "versions_link",
    )  # fmt: skip
    list_filter = (choice_filter("status", "status", _choices(Law.Status.values)),)
    list_disable_select_all = True
    id_fields = ("law_id",)
    ordering = ("-updated_at", "law_id")
    fields = (
        "law_id", "title", ("status", "code"), "version", ("chunk_count", "language"), "document_id", "versions_link",
        ("created_at", "updated_at"), "artifacts",
    )  # fmt: skip
    readonly_fields = ("code", "versions_link", "artifacts")
    actions = ("withdraw",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Law]:
        return laws_with_error_codes().defer("uploader_id")

    @admin.display(description="statute")
    def law(self, law: Law) -> str:
        return nowrap(law.pk)

    @admin.display(description="title")
    def short_title(self, law: Law) -> str:
        return Truncator(law.title).chars(MAX_TITLE_CHARS)

    @admin.display(description="error code of the latest version")
    def code(self, law: Law) -> str:
        return getattr(law, "error_code", None) or ""

    @admin.display(description="versions")
    def versions_link(self, law: Law) -> str:
        listed = reverse("admin:statutes_lawversion_changelist")
        return format_html('<a class="underline" href="{}?q={}">show</a>', listed, law.pk)

    @admin.display(description="keys in the bucket")
    def artifacts(self, law: Law) -> str:
        if law.document_id is None:
            return "none: no version is live"
        names = (keys.manifest(law.pk), keys.law(law.pk), keys.chunks(law.pk), keys.vectors(law.pk))
        return format_html_join("", "<div>{}</div>", ((key,) for key in names))

    def has_withdraw_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("statutes.withdraw_law")

    @admin.action(description="Withdraw", permissions=["withdraw"])
    def withdraw(self, request: HttpRequest, queryset: QuerySet[Law]) -> HttpResponse | None:
        return _confirm_action(
            self, request, withdrawal.withdraw, name="withdraw", most=MAX_WITHDRAWN, done="withdrawn",
            line="Passages, vectors, jobs and objects in the bucket of all versions are deleted. The raw files stay.",
            title="Withdraw statutes", button="Withdraw",
        )  # fmt: skip


@admin.register(LawVersion)
class LawVersionAdmin(ReadOnlyAdmin):
    list_display = (
        "document", "law_id", "version", "live", "status", "error_code", "priority", "format", "created_at",
        "updated_at", "job",
    )  # fmt: skip
    list_filter = (
        choice_filter("status", "status", _choices(Law.Status.values)),
        choice_filter("priority", "priority", _choices(PRIORITIES)), choice_filter("format", "format", _choices(MIMES)),
        exact_filter("error_code", "error code"),
    )  # fmt: skip
    list_disable_select_all = True
    id_fields = ("law_id", "document_id")
    ordering = ("-created_at", "document_id")
    fields = (
        "law_link", "version", "document_id", "job", ("status", "error_code"), ("priority", "format"),
        ("refused_count", "reprocessed"), "bucket", "raw_key", "uploader_id", "raw_sha256", "manifest_sha256",
        ("ingest_timestamp", "created_at"), "updated_at", "archive_folder",
    )  # fmt: skip
    readonly_fields = ("law_link", "job", "refused_count", "archive_folder")
    actions = ("reprocess",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[LawVersion]:
        live = Law.objects.filter(pk=OuterRef("law_id"), document_id=OuterRef("pk"))
        # The canonical JSON is megabytes, and a law's text.
        return LawVersion.objects.defer("canonical").annotate(is_live=Exists(live))

    @admin.display(description="document")
    def document(self, version: LawVersion) -> str:
        return nowrap(version.pk)

    @admin.display(description="live", boolean=True)
    def live(self, version: LawVersion) -> bool:
        return bool(getattr(version, "is_live", False))

    @admin.display(description="statute")
    def law_link(self, version: LawVersion) -> str:
        page = reverse("admin:statutes_law_change", args=[version.law_id])
        return format_html('<a class="underline" href="{}">{}</a>', page, version.law_id)

    @admin.display(description="job")
    def job(self, version: LawVersion) -> str:
        return job_cell(version.job_id)

    @admin.display(description="passages that the embedder refused")
    def refused_count(self, version: LawVersion) -> int:
        return len(version.refused)

    @admin.display(description="archive of its failure")
    def archive_folder(self, version: LawVersion) -> str:
        return keys.failed(version.law_id, version.version) if version.status == Law.Status.FAILED else ""

    def response_action(self, request: HttpRequest, queryset: QuerySet[LawVersion]) -> HttpResponse | None:
        try:
            for pk in request.POST.getlist(ACTION_CHECKBOX_NAME):
                UUID(pk)
        except ValueError:
            messages.error(request, "A selected id is not a version's; select again.")
            return HttpResponseRedirect(request.get_full_path())
        return cast("HttpResponse | None", super().response_action(request, queryset))

    def has_reprocess_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("statutes.reprocess_lawversion")

    @admin.action(description="Reprocess from the raw file", permissions=["reprocess"])
    def reprocess(self, request: HttpRequest, queryset: QuerySet[LawVersion]) -> HttpResponse | None:
        def run(pk: str, **fields: Any) -> None:
            version = LawVersion.objects.only("law_id", "version").get(pk=UUID(pk))
            staff_actions.reprocess(version.law_id, version.version, document_id=version.pk, **fields)

        return _confirm_action(
            self, request, run, name="reprocess", most=MAX_REPROCESSED, done="queued again",
            line="Each is read, chunked and embedded again from its raw file. Until that has succeeded,"
            " the live version stays searchable.",
            title="Reprocess versions", button="Reprocess",
        )  # fmt: skip


def _confirm_action(
    model_admin: ReadOnlyAdmin, request: HttpRequest, run: Callable[..., object], *, name: str, most: int, done: str,
    line: str, **texts: str,
) -> HttpResponse:  # fmt: skip
    chosen = [pk for pk in request.POST.getlist(ACTION_CHECKBOX_NAME) if "\0" not in pk]
    batch, path = chosen[:most], request.get_full_path()
    form = admin_base.ReasonForm(request.POST if "confirmed" in request.POST else None)
    if not form.is_valid():
        left = f" At most {most} at once: the other {len(chosen) - most} are left." if len(chosen) > most else ""
        names = sorted(map(str, model_admin.get_queryset(request).filter(pk__in=batch)))
        hidden = [(ACTION_CHECKBOX_NAME, pk) for pk in batch]
        return admin_base.reason_page(
            request, model_admin.admin_site, form, back=path,
            lines=(f"{len(batch)} chosen: {', '.join(names)}.{left}", line),
            hidden=[*hidden, ("action", name), ("index", "0"), ("confirmed", "yes")], **texts,
        )  # fmt: skip
    refused: Counter[str] = Counter()
    for pk in batch:
        try:
            run(pk, by=cast(User, request.user), reason=form.cleaned_data["reason"])
        except ApiError as error:
            refused[error.code] += 1
        except LawVersion.DoesNotExist:
            refused["NOT_FOUND"] += 1
    if count := len(batch) - refused.total():
        messages.success(request, f"{count} {done}.")
    for code, times in sorted(refused.items()):
        messages.warning(request, f"{times} not {done}: {code}.")
    return HttpResponseRedirect(path)


@admin.register(Consumer)
class ConsumerAdmin(ReadOnlyAdmin):
    counts = ("received_count", "ended_count", "failed_count")
    list_display = ("name", "state", "liveness", *counts, "seen_at", "changed_at", "job")
    list_filter = (choice_filter("state", "state", _choices(Consumer.State.values)),)
    id_fields = ("name",)
    ordering = ("name",)
    fields = ("name", "job", ("state", "liveness"), counts, ("started_at", "changed_at", "seen_at"))
    readonly_fields = ("liveness", "job", *counts)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Consumer]:
        return Consumer.objects.annotate(is_alive=ExpressionWrapper(ALIVE, output_field=BooleanField()))

    # As statutes.consumer.status_reporter counts: a redelivered message is counted again.
    @admin.display(description="messages received")
    def received_count(self, consumer: Consumer) -> int:
        return consumer.received

    @admin.display(description="done and deleted")
    def ended_count(self, consumer: Consumer) -> int:
        return consumer.ended

    @admin.display(description="refused or failed")
    def failed_count(self, consumer: Consumer) -> int:
        return consumer.failed

    @admin.display(description="liveness")
    def liveness(self, consumer: Consumer) -> str:
        if consumer.state == Consumer.State.SHUTDOWN:
            return "stopped"
        return "alive" if getattr(consumer, "is_alive", False) else "silent"

    @admin.display(description="job")
    def job(self, consumer: Consumer) -> str:
        return job_cell(consumer.job_id)
