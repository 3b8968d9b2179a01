"""Read again and cut again: one document by another parser, with or without OCR, or by another chunker, priced."""

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import reverse

from accounts.admin_cells import find_names
from accounts.errors import ApiError
from accounts.system_tenant import SYSTEM_TENANT_ID
from console.views import render_page, require_permissions
from documents.models import Document
from documents.parsers import registry
from embeddings.chunking import chunkers
from embeddings.reindexing import single_document

PERMISSION = "reindexing.add_campaign"
OCR = {"": None, "on": True, "off": False}


class ReprocessForm(forms.Form):
    kind = forms.ChoiceField(
        label="What",
        choices=[("reparse", "Read again: the parser reads the PDF"), ("rechunk", "Cut again: the same text")],
    )
    parser = forms.ChoiceField(label="Parser, to read again", required=False)
    ocr = forms.ChoiceField(
        label="OCR, to read again",
        required=False,
        choices=[("", "as it is"), ("on", "read images of text too"), ("off", "without")],
    )
    chunker = forms.ChoiceField(label="Chunker, to cut again", required=False)
    reason = forms.CharField(
        label="Why", required=False, max_length=500, help_text="Kept in the audit log with your name; to start it."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, texts in (("parser", registry.parser_names()), ("chunker", sorted(chunkers.all_chunkers()))):
            self.fields[name].choices = [(text, text) for text in texts]  # type: ignore[attr-defined]

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of ``single_document.estimate``."""
        chosen = self.cleaned_data
        if chosen["kind"] == "rechunk":
            return {"kind": "rechunk", "chunker": chosen["chunker"]}
        return {"kind": "reparse", "parser": chosen["parser"] or None, "ocr": OCR[chosen["ocr"]]}


def page(request: HttpRequest, document_id: UUID) -> HttpResponse:
    """Show the price first: it starts only from a page that shows its price."""
    user = require_permissions(request, PERMISSION)
    document = get_object_or_404(Document.objects.exclude(user_id=SYSTEM_TENANT_ID), pk=document_id)
    form, estimate = ReprocessForm(request.POST or None, initial=request.GET.dict()), None
    if form.is_valid():
        try:
            if "start" in request.POST:
                single_document.start(document, **form.options, by=user, reason=form.cleaned_data["reason"])
                messages.success(request, "It has begun: search keeps the old passages until the new ones are there.")
                return HttpResponseRedirect(reverse("admin:documents_document_change", args=[document.pk]))
            estimate = single_document.estimate(document, **form.options)
        except ApiError as error:
            form.add_error(None, f"{error.code}: {error.detail}")
    names = find_names(user, tenant=[document.user_id], document=[document.pk])
    context = {"document": document, "form": form, "estimate": estimate, "names": names}
    return render_page(request, "console/reprocess.html", "Read or cut again", **context)
