"""Scope of a campaign: the target model, chunker or parser, and the tenants it moves with what that takes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from accounts.errors import ApiError
from accounts.system_tenant import SYSTEM_TENANT_ID
from documents.models import Document
from documents.parsers import registry
from embeddings.chunking import chunkers
from embeddings.embedders.registry import EmbeddingModel, configured_embedders, find_embedder
from embeddings.models import ActiveModel
from embeddings.reindexing import error_codes
from embeddings.reindexing.models import Campaign, CampaignTenant

# Some chunks were made before the chunker counted tokens.
TOKENS = "coalesce((c.meta ->> 'tokens')::bigint, length(c.text) / 4 + 1)"


# Each text is bought once: copies, and texts that have the target's vector already, cost nothing.
REEMBED = f"""
    SELECT user_id, count(DISTINCT document_id), count(*), sum(tokens),
           coalesce(sum(tokens) FILTER (WHERE nth > 1 OR known), 0)
    FROM (
        SELECT user_id, document_id, tokens, covered,
               row_number() OVER (PARTITION BY {{scope}} chunk_sha ORDER BY covered, chunk_id) AS nth,
               bool_or(covered) OVER (PARTITION BY {{scope}} chunk_sha) AS known
        FROM (
            SELECT c.user_id, c.document_id, c.chunk_id, c.chunk_sha, {TOKENS} AS tokens,
                   (c.embed_model = %(model)s AND c.embed_version = %(version)s) OR EXISTS (
                       SELECT FROM shadow_vectors s WHERE s.chunk_id = c.chunk_id
                       AND s.embed_model = %(model)s AND s.embed_version = %(version)s) AS covered
            FROM document_chunks c WHERE c.user_id = ANY(%(users)s) AND c.embed_model IS NOT NULL) c
        ) texts
    WHERE NOT covered GROUP BY user_id"""


# The new chunks are not known, so neither is which of them have a vector already. A chunk's row does not say how many
# pages its document has: they are summed by document.
_OTHER_CHUNKS = f"""
    SELECT user_id, count(*), sum(passages), sum(tokens), 0, sum(pages) FROM (
        SELECT d.user_id, d.document_id, coalesce(d.pages, 1) AS pages, count(*) AS passages, sum({TOKENS}) AS tokens
        FROM documents d JOIN document_chunks c ON c.document_id = d.document_id
        WHERE d.user_id = ANY(%(users)s) AND c.embed_model IS NOT NULL {{is_left}}
        GROUP BY d.document_id) documents
    GROUP BY user_id"""
_IS_CHOSEN = "AND (%(documents)s::uuid[] IS NULL OR d.document_id = ANY(%(documents)s))"
IS_NOT_RECHUNKED = f"""AND d.parsed_path IS NOT NULL AND d.chunks_version IS DISTINCT FROM %(chunker)s
    {_IS_CHOSEN}"""
IS_NOT_REPARSED = f"""AND d.parsed_path IS NOT NULL AND d.stored_at IS NOT NULL
    {_IS_CHOSEN}
    AND coalesce(d.parser_name || '@' || d.parser_version, '')
        <> ALL(CASE WHEN d.ocr THEN %(parsers_ocr)s::text[] ELSE %(parsers_plain)s::text[] END)"""
RECHUNK = _OTHER_CHUNKS.format(is_left=IS_NOT_RECHUNKED)
REPARSE = _OTHER_CHUNKS.format(is_left=IS_NOT_REPARSED)


MAX_NAMED = 10  # tenants in an error message


@dataclass(frozen=True, slots=True)
class Target:
    """A model (``reembed``), or a chunker (``rechunk``) or a parser (``reparse``) as name@version."""

    model: EmbeddingModel | None = None
    chunker: str | None = None
    parser: str | None = None
    document_ids: list[UUID] | None = None  # of a rechunk or a reparse: only these

    @property
    def label(self) -> str:
        return self.model.label if self.model else self.chunker or self.parser or ""

    @property
    def parse_vendor_charges(self) -> bool:
        return self.parser is not None and registry.parser_name(self.parser) != "local"


def parser_params(parser: str | None = None) -> dict[str, list[str]]:
    """Return the parsers of a target, whose versions depend on whether a document is read by OCR, for statements."""
    name = registry.parser_name(parser) if parser else None
    plain, with_ocr = ([each.label for each in registry.current_parsers(ocr=ocr, name=name)] for ocr in (False, True))
    return {"parsers_plain": plain, "parsers_ocr": with_ocr}


def validate_target(
    *,
    kind: str,
    model: str | None = None,
    version: str | None = None,
    chunker: str | None = None,
    parser: str | None = None,
    document_ids: Sequence[UUID] | None = None,
) -> Target:
    """Return the target, or raise ``ApiError``: "UNKNOWN_KIND", "UNKNOWN_MODEL", "UNKNOWN_CHUNKER", "UNKNOWN_PARSER".

    The target of a reparse is ``parser``, one of ``registry.parser_names()``, or the configured one.
    """
    chosen = list(document_ids or ()) or None
    if kind == Campaign.Kind.REPARSE:
        if parser is not None and parser not in registry.parser_names():
            raise ApiError(error_codes.UNKNOWN_PARSER, field="parser")
        return Target(parser=registry.configured_parser(ocr=False, name=parser).label, document_ids=chosen)
    if kind == Campaign.Kind.REEMBED:
        target = EmbeddingModel(model or "", version or "")
        require_embedder(target)
        return Target(model=target)
    if kind == Campaign.Kind.RECHUNK:
        try:
            return Target(chunker=chunkers.get_chunker(chunker or "").label, document_ids=chosen)
        except ImproperlyConfigured as error:
            raise ApiError(error_codes.UNKNOWN_CHUNKER, str(error), field="chunker") from error
    raise ApiError(error_codes.UNKNOWN_KIND, "A campaign is a reembed, a rechunk or a reparse.", field="kind")


def require_embedder(model: EmbeddingModel) -> None:
    """Raise ``ApiError("UNKNOWN_MODEL")`` unless an embedder of this model is configured."""
    if find_embedder(model) is None:
        labels = sorted({f"{each.model}@{each.version}" for each in configured_embedders()})
        detail = f"This model is not configured here; there are {', '.join(labels)}. A vendor's model needs its key."
        raise ApiError(error_codes.UNKNOWN_MODEL, detail, field="model")


@dataclass(frozen=True, slots=True)
class Share:
    """One tenant's part of an estimate."""

    user_id: UUID
    active: EmbeddingModel
    documents: int = 0
    passages: int = 0
    tokens: int = 0
    reused_tokens: int = 0
    pages: int = 0  # to parse

    @property
    def billed_tokens(self) -> int:
        return self.tokens - self.reused_tokens


def select_tenants(target: Target, user_ids: Sequence[UUID] | None) -> list[Share]:
    """Return the tenants that a campaign moves, each with its share, or raise as ``estimate`` does.

    Statutes are moved when their tenant is named: their artifacts in S3 keep the former vectors.
    """
    if not target.model and SYSTEM_TENANT_ID in (user_ids or ()):
        detail = "Statutes are split by article, by their own chunker: reprocess them (force_reprocess) instead."
        raise ApiError(error_codes.LAWS_NOT_RECHUNKED, detail, field="user_ids")
    if target.document_ids:
        user_ids = _document_owners(target.document_ids, user_ids)
    if user_ids is None:
        models = ActiveModel.objects.exclude(pk=SYSTEM_TENANT_ID)
    else:
        models = ActiveModel.objects.filter(pk__in=user_ids)
        if unknown := sorted(set(user_ids).difference(models.values_list("pk", flat=True))):
            names = ", ".join(map(str, unknown[:MAX_NAMED]))
            detail = f"{len(unknown)} of the tenants have no searchable passages, or are not there: {names}."
            raise ApiError(error_codes.NOTHING_TO_DO, detail, field="user_ids")
    if target.model:
        models = models.exclude(embed_model=target.model.model, embed_version=target.model.version)
    pinned = list(models.filter(pinned=True).values_list("pk", flat=True))
    if user_ids is not None and pinned:
        raise pinned_error(pinned[0])
    movable = {row.pk: EmbeddingModel(row.embed_model, row.embed_version) for row in models.filter(pinned=False)}
    counts = _count_work(target, list(movable))
    if not target.model:
        movable = {pk: model for pk, model in movable.items() if pk in counts}
    if not movable:
        but = f", but {len(pinned)} that {'is' if len(pinned) == 1 else 'are'} pinned" if pinned else ""
        raise ApiError(error_codes.NOTHING_TO_DO, f"No tenant has anything that is not of {target.label} already{but}.")
    if busy := CampaignTenant.objects.filter(user_id__in=movable, ended_at=None).first():
        raise open_campaign_error(busy)
    return [Share(pk, model, *counts.get(pk, ())) for pk, model in sorted(movable.items())]


def _document_owners(document_ids: Sequence[UUID], user_ids: Sequence[UUID] | None) -> list[UUID]:
    """Return the owners of these documents, all of which must be of ``user_ids`` where those are named."""
    documents = Document.objects.filter(pk__in=document_ids).exclude(user_id=SYSTEM_TENANT_ID)
    owners = dict((documents.filter(user_id__in=user_ids) if user_ids else documents).values_list("pk", "user_id"))
    if unknown := sorted(set(document_ids) - set(owners)):
        names = ", ".join(map(str, unknown[:MAX_NAMED]))
        raise ApiError(error_codes.NOTHING_TO_DO, f"There are no such documents: {names}.", field="document_ids")
    return sorted(set(owners.values()))


def pinned_error(user_id: UUID) -> ApiError:
    return ApiError(error_codes.TENANT_PINNED, f"Tenant {user_id} is pinned; unpin it first.", field="user_ids")


def open_campaign_error(busy: CampaignTenant | None) -> ApiError:
    where = f"Tenant {busy.user_id} is in campaign {busy.campaign_id}" if busy else "A tenant is in another campaign"
    return ApiError(error_codes.CAMPAIGN_OPEN, f"{where}: finish, settle or cancel that first.", field="user_ids")


def _count_work(target: Target, user_ids: list[UUID]) -> dict[UUID, tuple[int, ...]]:
    params: dict[str, Any] = {"users": user_ids, "chunker": target.chunker, "documents": target.document_ids}
    sql = RECHUNK if target.chunker else REPARSE
    if target.parser:
        params |= parser_params(target.parser)
    if target.model:
        sql = REEMBED.format(scope="" if settings.REUSE_ACROSS_TENANTS else "user_id,")
        params |= target.model.params
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return {user_id: tuple(map(int, counts)) for user_id, *counts in cursor.fetchall()}
