"""Laws, their versions and the queue's consumers, as staff look at them: ids and codes, no law's text."""

from __future__ import annotations

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

from accounts.audit import forms
from accounts.audit.admin_base import ReadOnlyAdmin
from accounts.audit.admin_filters import choice_filter, exact_filter
from accounts.errors import ApiError
from accounts.models import User
from jobs.admin import UploadJobAdmin, job_link, nowrap
from jobs.models import UploadJob
from statutes import services
from statutes.consumer.status import ALIVE
from statutes.models import Consumer, Law, LawVersion
from statutes.queries import document_ids_of_law, laws_with_error_codes
from statutes.s3 import keys
from statutes.sqs.messages import PRIORITIES
from statutes.stages import MIMES

MOST_AGAIN, MOST_OUT = 100, 10  # at once: a request must be answered, and a law has hundreds of objects
MOST_TITLE_CHARS = 60  # in a list
Act = Callable[[str], object]
UploadJobAdmin.document_lookups.append(document_ids_of_law)


def _named(values: Iterable[str]) -> list[tuple[str, str]]:
    return [(value, value.replace("_", " ")) for value in values]


@admin.register(Law)
class LawAdmin(ReadOnlyAdmin):
    list_display = (
        "law", "named", "status", "code", "version", "chunk_count", "language", "updated_at", "of_versions",
    )  # fmt: skip
    list_filter = (choice_filter("status", "status", _named(Law.Status.values)),)
    list_disable_select_all = True
    id_fields = ("law_id",)
    ordering = ("-updated_at", "law_id")
    fields = (
        "law_id", "title", ("status", "code"), "version", ("chunk_count", "language"), "document_id", "of_versions",
        ("created_at", "updated_at"), "artifacts",
    )  # fmt: skip
    readonly_fields = ("code", "of_versions", "artifacts")
    actions = ("withdraw",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Law]:
        return laws_with_error_codes().defer("uploader_id")

    @admin.display(description="law")
    def law(self, law: Law) -> str:
        return nowrap(law.pk)

    @admin.display(description="title")
    def named(self, law: Law) -> str:
        return Truncator(law.title).chars(MOST_TITLE_CHARS)

    @admin.display(description="error code of the latest version")
    def code(self, law: Law) -> str:
        return getattr(law, "error_code", None) or ""

    @admin.display(description="versions")
    def of_versions(self, law: Law) -> str:
        listed = reverse("admin:statutes_lawversion_changelist")
        return format_html('<a class="underline" href="{}?q={}">show</a>', listed, law.pk)

    @admin.display(description="keys in the bucket")
    def artifacts(self, law: Law) -> str:
        if law.document_id is None:
            return "none: no version of this law is found"
        found = (keys.manifest(law.pk), keys.law(law.pk), keys.chunks(law.pk), keys.vectors(law.pk))
        return format_html_join("", "<div>{}</div>", ((key,) for key in found))

    def has_withdraw_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("statutes.withdraw_law")

    @admin.action(description="Take out of the corpus", permissions=["withdraw"])
    def withdraw(self, request: HttpRequest, queryset: QuerySet[Law]) -> HttpResponse | None:
        """Ask why, and take out what was chosen once that has been confirmed."""
        line = "All versions go: passages, vectors, work and the objects in the bucket. The raw files stay."
        shown = {"title": "Take laws out of the corpus", "button": "Take out"}
        asked = _Asked(self, request, "withdraw", most=MOST_OUT, line=line, **shown)
        return asked.answer(lambda law_id, **said: services.withdraw(law_id, **said), done="taken out")


@admin.register(LawVersion)
class LawVersionAdmin(ReadOnlyAdmin):
    list_display = (
        "document", "law_id", "version", "found", "status", "error_code", "priority", "format", "created_at",
        "updated_at", "job",
    )  # fmt: skip
    list_filter = (
        choice_filter("status", "status", _named(Law.Status.values)),
        choice_filter("priority", "priority", _named(PRIORITIES)), choice_filter("format", "format", _named(MIMES)),
        exact_filter("error_code", "error code"),
    )  # fmt: skip
    list_disable_select_all = True
    id_fields = ("law_id", "document_id")
    ordering = ("-created_at", "document_id")
    fields = (
        "of_law", "version", "document_id", "job", ("status", "error_code"), ("priority", "format"),
        ("missing", "reprocessed"), "bucket", "raw_key", "uploader_id", "raw_sha256", "manifest_sha256",
        ("ingest_timestamp", "created_at"), "updated_at", "archived",
    )  # fmt: skip
    readonly_fields = ("of_law", "job", "missing", "archived")
    actions = ("reprocess",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[LawVersion]:
        found = Law.objects.filter(pk=OuterRef("law_id"), document_id=OuterRef("pk"))
        # Its canonical form is megabytes, and a law's text.
        return LawVersion.objects.defer("canonical").annotate(is_found=Exists(found))

    @admin.display(description="document")
    def document(self, version: LawVersion) -> str:
        return nowrap(version.pk)

    @admin.display(description="found", boolean=True)
    def found(self, version: LawVersion) -> bool:
        return bool(getattr(version, "is_found", False))

    @admin.display(description="law")
    def of_law(self, version: LawVersion) -> str:
        page = reverse("admin:statutes_law_change", args=[version.law_id])
        return format_html('<a class="underline" href="{}">{}</a>', page, version.law_id)

    @admin.display(description="job")
    def job(self, version: LawVersion) -> str:
        return job_link(version.job_id) if version.job_id else ""

    @admin.display(description="passages that the embedder refused")
    def missing(self, version: LawVersion) -> int:
        return len(version.refused)

    @admin.display(description="kept of its failure")
    def archived(self, version: LawVersion) -> str:
        return keys.failed(version.law_id, version.version) if version.status == Law.Status.FAILED else ""

    def response_action(self, request: HttpRequest, queryset: QuerySet[LawVersion]) -> HttpResponse | None:
        try:
            for chosen in request.POST.getlist(ACTION_CHECKBOX_NAME):
                UUID(chosen)
        except ValueError:
            messages.error(request, "What was chosen is no version; choose again.")
            return HttpResponseRedirect(request.get_full_path())
        return cast("HttpResponse | None", super().response_action(request, queryset))

    def has_reprocess_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("statutes.reprocess_lawversion")

    @admin.action(description="Do again from the raw file", permissions=["reprocess"])
    def reprocess(self, request: HttpRequest, queryset: QuerySet[LawVersion]) -> HttpResponse | None:
        """Ask why, and let what was chosen be done again once that has been confirmed."""
        line = (
            "Each is read, cut and embedded again from its raw file. What is found of it stays as it is until that is"
            " done, and where it fails."
        )
        asked = _Asked(
            self, request, "reprocess", most=MOST_AGAIN, line=line, title="Do versions again", button="Do again"
        )
        return asked.answer(_reprocess, done="begun again")


def _reprocess(chosen: str, **said: Any) -> UploadJob:
    version = LawVersion.objects.only("law_id", "version").get(pk=UUID(chosen))
    return services.reprocess(version.law_id, version.version, document_id=version.pk, **said)


class _Asked:
    """A reason that is asked for, and the act upon each that was chosen."""

    def __init__(
        self, of: ReadOnlyAdmin, request: HttpRequest, verb: str, *, most: int, line: str, **shown: str
    ) -> None:
        self._site, self._request, self._verb, self._shown = of.admin_site, request, verb, shown
        chosen = [each for each in request.POST.getlist(ACTION_CHECKBOX_NAME) if "\0" not in each]
        self._chosen = chosen[:most]
        left = f" At most {most} at once: the other {len(chosen) - most} are left." if len(chosen) > most else ""
        names = sorted(map(str, of.get_queryset(request).filter(pk__in=self._chosen)))
        self._lines = (f"{len(self._chosen)} chosen: {', '.join(names)}.{left}", line)

    def answer(self, act: Callable[..., object], *, done: str) -> HttpResponse:
        form = forms.ReasonForm(self._request.POST if "confirmed" in self._request.POST else None)
        if form.is_valid():
            said = {"by": cast(User, self._request.user), "reason": form.cleaned_data["reason"]}
            return self._told(lambda chosen: act(chosen, **said), done)
        hidden = [(ACTION_CHECKBOX_NAME, each) for each in self._chosen]
        return forms.reason_page(
            self._request, self._site, form, lines=self._lines, back=self._request.get_full_path(),
            hidden=[*hidden, ("action", self._verb), ("index", "0"), ("confirmed", "yes")], **self._shown,
        )  # fmt: skip

    def _told(self, act: Act, done: str) -> HttpResponse:
        became = Counter(filter(None, [_refusal(act, chosen) for chosen in self._chosen]))
        if count := len(self._chosen) - became.total():
            messages.success(self._request, f"{count} {done}.")
        for code, refused in sorted(became.items()):
            messages.warning(self._request, f"{refused} not {done}: {code}.")
        return HttpResponseRedirect(self._request.get_full_path())


def _refusal(act: Act, chosen: str) -> str:
    """Act upon one; return the code of its refusal, or nothing."""
    try:
        act(chosen)
    except ApiError as refused:
        return refused.code
    except LawVersion.DoesNotExist:
        return "NOT_FOUND"
    return ""


@admin.register(Consumer)
class ConsumerAdmin(ReadOnlyAdmin):
    list_display = ("name", "state", "heard", "handed_out", "done", "not_done", "seen_at", "changed_at", "job")
    list_filter = (choice_filter("state", "state", _named(Consumer.State.values)),)
    id_fields = ("name",)
    ordering = ("name",)
    fields = (
        "name",
        "job",
        ("state", "heard"),
        ("handed_out", "done", "not_done"),
        ("started_at", "changed_at", "seen_at"),
    )
    readonly_fields = ("heard", "job", "handed_out", "done", "not_done")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Consumer]:
        return Consumer.objects.annotate(is_alive=ExpressionWrapper(ALIVE, output_field=BooleanField()))

    # As statutes.consumer.status counts: a message that comes again is counted again.
    @admin.display(description="messages handed out")
    def handed_out(self, consumer: Consumer) -> int:
        return consumer.received

    @admin.display(description="done and deleted")
    def done(self, consumer: Consumer) -> int:
        return consumer.ended

    @admin.display(description="refused or failed")
    def not_done(self, consumer: Consumer) -> int:
        return consumer.failed

    @admin.display(description="heard of")
    def heard(self, consumer: Consumer) -> str:
        if consumer.state == Consumer.State.SHUTDOWN:
            return "stopped"
        return "alive" if getattr(consumer, "is_alive", False) else "silent"

    @admin.display(description="job")
    def job(self, consumer: Consumer) -> str:
        return job_link(consumer.job_id) if consumer.job_id else ""
