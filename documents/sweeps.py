"""What the keeper does for documents from time to time."""

from __future__ import annotations

from django.db.models.functions import Now

from documents import services
from documents.models import Removal

AT_ONCE = 200


def remove_objects() -> None:
    """Remove objects of deleted documents once no worker can write them again, then forget the removal."""
    due = Removal.objects.filter(drop_after__lt=Now())
    for document_id in set(due.values_list("document_id", flat=True)[:AT_ONCE]):
        services.remove_objects(document_id)
        due.filter(document_id=document_id).delete()
