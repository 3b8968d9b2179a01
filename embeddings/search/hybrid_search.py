"""Search of a tenant's document chunks: vector search and BM25, fused, from one snapshot of the database."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from django.db import connection, transaction
from django.db.utils import OperationalError

from accounts import read_replica
from accounts.errors import ApiError
from accounts.rls import SET_TENANT_ROLE, as_tenant, bound_cursor, tenant_role_params
from accounts.system_tenant import SYSTEM_TENANT_ID
from embeddings import sentence_vectors
from embeddings.active_model import send_select
from embeddings.embedders.registry import EmbeddingModel
from embeddings.error_codes import SEARCH_UNAVAILABLE
from embeddings.models import DocumentChunk, ShadowVector
from embeddings.search import bm25, document_names, misspellings, query_parser, remote_reranker, reranker, synonyms
from embeddings.search.answer_types import content_words
from embeddings.search.filters import parse_filters
from embeddings.search.fusion import fuse
from embeddings.search.lexemes import configs_of_tenant, query_lexemes
from embeddings.search.postings import NO_POSTINGS, Postings
from embeddings.search.query_parser import HYBRID, TEXT, VECTOR, Query, QueryEmbedding
from embeddings.search.results import Passage, RetrievedChunk, fetch_chunks, make_passages
from embeddings.search.vector_search import PLANNER_SETTINGS, Scope, nearest_chunks
from embeddings.search_engine.retrieval import choose_retriever

__all__ = ["HYBRID", "TEXT", "VECTOR", "Passage", "probe_index", "search", "search_snapshot"]

MIN_CANDIDATES = 50  # of each retriever: what one of them ranks low may be the other's first
MAX_TRIES = 4  # to embed the query, and while the tenant's active model changes meanwhile

SECONDS = 10  # for each statement of a search
RETRY_SECONDS = 5
SET_ISOLATION = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"
# A prepared statement is planned once, and not for each tenant's values: planning takes longer than running it.
SETTINGS = {"statement_timeout": "", "plan_cache_mode": "force_generic_plan", **PLANNER_SETTINGS}
READ_SETTINGS = ", ".join(f"current_setting('{name}')" for name in SETTINGS)
SET_SETTINGS = ", ".join(f"set_config('{name}', %s, true)" for name in SETTINGS)


def search(
    *,
    user_id: UUID,
    query: str,
    k: int = 10,
    mode: str = HYBRID,
    document_ids: Sequence[UUID] | None = None,
    filters: Any = None,
    merge: bool = False,
    model: EmbeddingModel | None = None,
    query_embedding: QueryEmbedding | None = None,
    reranks: bool = True,
) -> list[Passage]:
    """Return at most ``k`` passages of ``user_id`` that match ``query``, best first.

    Documents that are unknown or another tenant's contribute nothing. ``merge`` joins neighbouring chunks. ``model``
    replaces the tenant's active model; ``query_embedding`` shares the query's vector with another search of the same
    request; without ``reranks``, hybrid search ends with its first stage. Raises ``ApiError`` for invalid arguments;
    ``SEARCH_UNAVAILABLE`` when the database takes too long or the model changes in each try; and, unless ``mode`` is
    text, while the query cannot be embedded: ``SEARCH_UNAVAILABLE``, ``BUDGET_SPENT``, ``MODEL_UNAVAILABLE``.
    """
    parsed_query = query_parser.parse_query(query)
    query_parser.validate_options(k, mode)
    parsed_filters = parse_filters(filters)
    query_embedding = query_embedding or QueryEmbedding(user_id)
    conditions = (*parsed_filters.conditions, *parsed_query.conditions(configs_of_tenant(user_id)))

    def retrieve() -> Retrieval | None:
        for _ in range(MAX_TRIES):
            with search_snapshot(user_id, model) as fetch_model:
                live = fetch_model()
                scope = parsed_filters.narrow(Scope(user_id, live, conditions=conditions), document_ids)
                if mode == TEXT:
                    return _retrieve(scope, parsed_query, None, k, mode=mode, reranks=reranks)
                if query_embedding.is_at_hand(live, parsed_query):
                    vector = query_embedding.vector(live, parsed_query)
                    return _retrieve(scope, parsed_query, vector, k, mode=mode, reranks=reranks)
                if not _has_vectors(scope):
                    return None
            query_embedding.vector(live, parsed_query)  # from a vendor: no transaction is open meanwhile
        raise _unavailable("The model of these documents is changing; try again shortly.")

    if (retrieval := read_replica.read(retrieve)) is None:
        return []
    chunks, idf, is_relevant, replaced = retrieval
    if reranks and mode == HYBRID and remote_reranker.is_configured():
        chunks = remote_reranker.rerank(parsed_query.text, chunks, user_id=query_embedding.user_id)
    return make_passages(chunks[:k], idf, parsed_query.text, merge=merge, is_relevant=is_relevant, replaced=replaced)


class Retrieval(NamedTuple):
    """Candidates of a query, best first: after the second stage as many as it ranked."""

    chunks: list[RetrievedChunk]
    idf: Mapping[str, float]  # of the query's lexemes
    is_relevant: bool = True
    replaced: Mapping[str, str] = MappingProxyType({})  # lexemes that no passage has, by their neighbours


def _retrieve(scope: Scope, query: Query, vector: list[float] | None, k: int, *, mode: str, reranks: bool) -> Retrieval:
    n = max(MIN_CANDIDATES, 4 * k)
    configurations = configs_of_tenant(scope.user_id)
    lexemes = _content_lexemes(query.text, configurations)
    retriever = choose_retriever(scope, n)
    fetch_postings = None
    if mode != VECTOR:  # sent together with the first statement of the vector search
        fetch_postings = retriever.send_reads(lexemes, document_names.split_words(query.text), configurations)
    vector_hits = retriever.nearest_chunks(vector) if vector else []
    postings = fetch_postings() if fetch_postings else NO_POSTINGS
    query, lexemes, postings, replaced, lacks_term = _replace_absent_words(
        scope, retriever.read_postings, query, lexemes, postings, configurations
    )
    name_scores = document_names.score_names(postings)
    text_hits = bm25.rank_chunks(scope, postings, n, name_scores)
    idf = bm25.inverse_frequencies(postings, lexemes)
    reranks = reranks and mode == HYBRID
    most = max(k, reranker.CANDIDATES) if reranks else k
    ranking = fuse(scope.live.model, vector_hits, text_hits, most)
    chunks = fetch_chunks(scope.user_id, ranking, sentence_vectors.model_label() if reranks else "")
    relevant = True
    if reranks:
        named = document_names.named_documents(postings, name_scores, [chunk.document_id for chunk in chunks])
        text = query.text
        if replaced:
            text = misspellings.correct_words(text, replaced, [chunk.text for chunk in chunks])
        weights = reranker.word_weights(text, idf, configurations)
        matches = reranker.match_sentences(chunks, text, weights)
        chunks = reranker.rerank(chunks, matches, named)
        if scope.user_id != SYSTEM_TENANT_ID:  # statutes are in languages for which nothing is calibrated
            coverage = bm25.best_coverage(postings, lexemes)
            relevant = reranker.is_relevant(
                matches, coverage, len(lexemes), chunk_count=postings.chunk_count, lacks_term=lacks_term
            )
    return Retrieval(chunks, idf, relevant, replaced)


def _content_lexemes(text: str, configurations: Sequence[str]) -> list[str]:
    """Return the query's lexemes without those of its question words, which passages have by chance."""
    return query_lexemes(content_words(text), configurations) or query_lexemes(text, configurations)


def _replace_absent_words(
    scope: Scope,
    read_postings: Callable[[Sequence[str], str, Sequence[str]], Postings],
    query: Query,
    lexemes: list[str],
    postings: Postings,
    configurations: Sequence[str],
) -> tuple[Query, list[str], Postings, Mapping[str, str], bool]:
    """Return all as given, or with synonyms, or the nearest terms, in the place of words that no passage has.

    And whether the passages have neither a term of the query that is known nor a synonym.
    """
    replaced: Mapping[str, str] = {}
    lacks_term = False
    if not postings.chunk_count or len(postings.words) == len(lexemes):
        return query, lexemes, postings, replaced, lacks_term
    names = document_names.split_words(query.text)
    if terms := _absent_terms(query.text, postings, configurations):
        lexemes = _content_lexemes(synonyms.replace_terms(query.text, terms), configurations)
        postings = read_postings(lexemes, names, configurations)
        found = {
            term: [each for each in own if _has_term(postings, each, configurations)] for term, own in terms.items()
        }
        lacks_term = not all(found.values())
        # By those synonyms that passages have: the others would be missed.
        text = synonyms.replace_terms(query.text, {term: own for term, own in found.items() if own})
        query = replace(query, text=text)
        lexemes = _content_lexemes(query.text, configurations)
        postings = replace(postings, words=[word for word in postings.words if word.word in lexemes])
    if scope.user_id != SYSTEM_TENANT_ID:  # statutes are in languages whose words the local model does not know
        known = {word.word for word in postings.words}
        if terms := synonyms.find_synonyms(query.text):
            known.update(query_lexemes(" ".join(terms), configurations))
        replaced = misspellings.find_neighbours(scope, query.text, [each for each in lexemes if each not in known])
    if replaced:
        lexemes = list(dict.fromkeys(replaced.get(lexeme, lexeme) for lexeme in lexemes))
        postings = read_postings(lexemes, names, configurations)
    return query, lexemes, postings, replaced, lacks_term


def _absent_terms(text: str, postings: Postings, configurations: Sequence[str]) -> dict[str, list[str]]:
    """Return the query's terms that no passage has, each with itself and its synonyms."""
    return {
        term: [term, *others]
        for term, others in synonyms.find_synonyms(text).items()
        if not _has_term(postings, term, configurations)
    }


def _has_term(postings: Postings, term: str, configurations: Sequence[str]) -> bool:
    """Tell whether one passage has all words of a term."""
    return bm25.best_coverage(postings, query_lexemes(term, configurations)) > reranker.WHOLE


HAS_VECTORS = """
    SELECT EXISTS (SELECT 1 FROM {table} WHERE user_id = %(user)s
    AND embed_model = %(model)s AND embed_version = %(version)s{documents})"""


def _has_vectors(scope: Scope) -> bool:
    """Tell whether the scope has any vector. Where it has none, the query is not embedded."""
    if scope.document_ids == ():
        return False
    documents = "" if scope.document_ids is None else " AND document_id = ANY(%(documents)s)"
    with connection.cursor() as cursor:
        for table in ("document_chunks", "shadow_vectors")[: 1 + scope.live.shadowed]:
            cursor.execute(HAS_VECTORS.format(table=table, documents=documents), scope.params)
            if cursor.fetchone()[0]:
                return True
    return False


@contextmanager
def search_snapshot(
    user_id: UUID, model: EmbeddingModel | None = None, *, seconds: float | None = None
) -> Iterator[Callable[[], EmbeddingModel]]:
    """Read as ``user_id``, all statements from one snapshot, each within ``seconds`` (None: those of a search).

    Yields a function that returns ``model``, or without it the tenant's active model in that snapshot. A statement is
    sent together with those before it once rows are fetched: the way to the database and back takes longer than most.
    Inside a caller's transaction the isolation is the caller's, and each is sent by itself. Raises
    ``ApiError("SEARCH_UNAVAILABLE")`` when a statement takes too long.
    """
    values = [*(SETTINGS | {"statement_timeout": f"{max(1, int((seconds or SECONDS) * 1000))}ms"}).values()]
    try:
        if connection.get_autocommit():
            # The transaction's end resets isolation, time limit, role and claims.
            with (
                read_replica.selected_connection(),
                transaction.atomic(),
                connection.wrap_database_errors,
                connection.connection.pipeline(),
            ):
                with bound_cursor() as cursor:
                    cursor.execute(SET_ISOLATION)
                    cursor.execute(f"SELECT {SET_SETTINGS}", values)
                    fetch_model = _send_model(user_id, model)
                    cursor.execute(f"SELECT {SET_TENANT_ROLE}", tenant_role_params(user_id))
                yield fetch_model
        else:
            fetch_model = _send_model(user_id, model)
            with as_tenant(user_id), connection.cursor() as cursor:
                cursor.execute(f"SELECT {READ_SETTINGS}, {SET_SETTINGS}", values)
                before = cursor.fetchone()[: len(SETTINGS)]
                yield fetch_model
                # SET LOCAL outlasts a savepoint that is released; one that is rolled back resets it.
                cursor.execute(f"SELECT {SET_SETTINGS}", before)
    except OperationalError as error:
        if not _is_timeout(error):
            raise
        raise _unavailable("The search took too long; try again shortly.") from error


def _send_model(user_id: UUID, model: EmbeddingModel | None) -> Callable[[], EmbeddingModel]:
    """Select the active model unless one is given: before the role changes, since tenants cannot read the table."""
    return (lambda: model) if model else send_select(user_id)


def _unavailable(detail: str) -> ApiError:
    return ApiError(SEARCH_UNAVAILABLE, detail, retry_after=RETRY_SECONDS)


def _is_timeout(error: OperationalError) -> bool:
    return isinstance(error.__cause__, psycopg.errors.QueryCanceled)


def probe_index(document_id: UUID, *, user_id: UUID, seconds: float) -> float | None:
    """Search as the tenant for the document's first chunk; return the seconds it took, None without a chunk.

    Raises ``TimeoutError`` after ``seconds``.
    """
    try:
        with search_snapshot(user_id, seconds=seconds) as fetch_model:
            model = fetch_model()
            rows = {"document_id": document_id, "embed_model": model.model, "embed_version": model.version}
            chunks = DocumentChunk.objects.filter(**rows).order_by("chunk_ord")
            vector = chunks.values_list("embedding", flat=True).first()
            if vector is None and model.shadowed:
                shadows = ShadowVector.objects.filter(**rows).order_by("chunk__chunk_ord")
                vector = shadows.values_list("embedding", flat=True).first()
            if vector is None:
                return None
            began = time.monotonic()
            nearest_chunks(Scope(user_id, model), vector, 1)
            return time.monotonic() - began
    except ApiError as error:
        raise TimeoutError from error
