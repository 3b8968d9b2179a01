"""SearchScope: a tenant's question is asked in everything, in statutes only, or in chosen documents and tags."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.utils.translation import gettext as translate
from django.utils.translation import ngettext

from accounts.errors import ApiError
from accounts.rls import as_tenant
from documents import tags
from documents.models import Document, Tag
from embeddings.error_codes import INVALID_FILTER
from search.models import SavedQuestion
from search.services import UPLOADS

STATUTES_ONLY = "laws"  # chosen instead of documents
TAG = "tag:"
MAX_DOCUMENTS = 1000  # as of the API
MAX_CHOICES = 100  # documents to choose from, the newest


@dataclass(frozen=True, slots=True)
class SearchScope:
    documents: tuple[UUID, ...] = ()
    tags: tuple[UUID, ...] = ()
    only_laws: bool = False

    @classmethod
    def parse(cls, words: Iterable[str]) -> "SearchScope":
        """Parse ids of documents, ``tag:`` with ids of tags, and "laws"; what is none of these is passed over."""
        documents, chosen_tags, only_laws = set[UUID](), set[UUID](), False
        for word in " ".join(words).split()[: MAX_DOCUMENTS + tags.MAX_FILTER_TAGS]:
            only_laws = only_laws or word == STATUTES_ONLY
            try:
                (chosen_tags if word.startswith(TAG) else documents).add(UUID(word.removeprefix(TAG)))
            except ValueError:
                continue
        if documents or chosen_tags:
            return cls(tuple(sorted(documents)[:MAX_DOCUMENTS]), tuple(sorted(chosen_tags)[: tags.MAX_FILTER_TAGS]))
        return cls(only_laws=only_laws)

    def __str__(self) -> str:
        words = [*map(str, self.documents), *(f"{TAG}{tag_id}" for tag_id in self.tags)]
        return " ".join(words or [STATUTES_ONLY] * self.only_laws)

    @property
    def is_narrow(self) -> bool:
        return bool(self.documents or self.tags)

    @property
    def label(self) -> str:
        tag_count, document_count = len(self.tags), len(self.documents)
        parts = [
            ngettext("%s tag", "%s tags", tag_count) % tag_count if tag_count else "",
            ngettext("%s document", "%s documents", document_count) % document_count if document_count else "",
        ]
        default = translate("statutes only") if self.only_laws else translate("everything")
        return ", ".join(filter(None, parts)) or default

    def restrictions(self, user_id: UUID) -> dict[str, Any]:
        """Return ``document_ids`` or ``filters`` of a search. Raises ``ApiError`` if they are too many together."""
        if not self.tags:
            return {"document_ids": list(self.documents)} if self.documents else {}
        if not self.documents:
            return {"filters": {"tags": [str(tag_id) for tag_id in self.tags]}}
        with as_tenant(user_id):
            tagged = Document.objects.filter(tags.has_any_tag(user_id, self.tags), user_id=user_id)
            ids = {*self.documents, *tagged.values_list("pk", flat=True)[: MAX_DOCUMENTS + 1]}
        if len(ids) > MAX_DOCUMENTS:
            detail = translate("That is more than %s documents. Choose tags or documents, not both.")
            raise ApiError(INVALID_FILTER, detail % f"{MAX_DOCUMENTS:,}")
        return {"document_ids": sorted(ids)}


def sources_of(scope: SearchScope, all_sources: list[str]) -> list[str]:
    if scope.is_narrow:
        return [UPLOADS]
    return [] if scope.only_laws else all_sources


def last_scope(user_id: UUID) -> SearchScope:
    """Return the scope of the tenant's last question, without what was deleted since."""
    with as_tenant(user_id):
        last = SavedQuestion.objects.filter(user_id=user_id).order_by("-created_at", "pk").first()
        if last is None:
            return SearchScope()
        scope = SearchScope.parse([last.scope])
        documents = Document.objects.filter(user_id=user_id, pk__in=scope.documents).values_list("pk", flat=True)
        own_tags = Tag.objects.filter(user_id=user_id, pk__in=scope.tags).values_list("pk", flat=True)
        return SearchScope(tuple(documents), tuple(own_tags), scope.only_laws)


def document_choices(user_id: UUID, chosen: SearchScope) -> list[Document]:
    """Return the newest searchable documents, and those that are chosen."""
    with as_tenant(user_id):
        own = Document.objects.filter(user_id=user_id, chunks_version__isnull=False)
        documents = list(own.order_by("-created_at", "document_id")[:MAX_CHOICES])
        missing = set(chosen.documents) - {document.pk for document in documents}
        return documents + list(own.filter(pk__in=missing))
