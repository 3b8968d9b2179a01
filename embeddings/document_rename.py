"""Rename of a document: its row and its name in the index of words; nothing is bought."""

from django.db import transaction
from django.db.models.functions import Now

from accounts.common_error_codes import not_found
from documents.locks import lock_document
from documents.models import Document
from documents.upload_request_validation import clean_filename
from embeddings.search.document_names import replace_name
from jobs import services


def rename_document(document: Document, filename: str) -> None:
    """Store a new file name; searches find it at once. Raises ``ApiError`` for an unusable name, and NOT_FOUND."""
    name = clean_filename(filename)
    with transaction.atomic():
        lock_document(document.pk)
        services.lock_jobs(document.pk)  # a worker may be writing the index; before the document's row, as workers do
        own = Document.objects.filter(pk=document.pk, user_id=document.user_id)
        if not own.update(filename=name, updated_at=Now()):
            raise not_found()
        replace_name(document.pk)
    document.filename = name
