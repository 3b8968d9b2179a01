"""Laws as staff list them: each with the code of its latest version, which says what went wrong."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from django.db.models import OuterRef, QuerySet, Subquery

from statutes.models import Law, LawVersion

MOST_VERSIONS = 1_000  # of one law


def with_codes() -> QuerySet[Law]:
    """Return the laws, each with ``error_code``: None where its latest version has not failed."""
    latest = LawVersion.objects.filter(law_id=OuterRef("law_id")).order_by("-created_at")
    return Law.objects.annotate(error_code=Subquery(latest.values("error_code")[:1]))


def documents_of(law_id: str) -> Collection[UUID]:
    """Return the documents of a law's versions: their jobs are the law's."""
    return list(LawVersion.objects.filter(law_id=law_id).values_list("document_id", flat=True)[:MOST_VERSIONS])
