"""Retrieval quality: hit rates of questions over documents that went through the pipeline, against BM25."""

import tempfile
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import eq
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.test import override_settings

from accessa.embedded_postgres.server import EmbeddedServer
from accounts.rls import as_tenant
from benchmarks import job_timings, question_sets, questions, ranking_metrics, stored_pdfs, subprocesses, text_loss
from benchmarks.baselines import bm25
from benchmarks.questions import Question
from benchmarks.report import Result, print_progress
from embeddings import sentence_vectors
from embeddings.embedders import registry
from embeddings.embedders.registry import EmbeddingModel, Vectors
from embeddings.models import DocumentChunk
from embeddings.search.hybrid_search import search, search_snapshot
from embeddings.search.lexemes import query_lexemes
from embeddings.search.query_parser import HYBRID, TEXT, VECTOR
from embeddings.search.vector_search import Scope, nearest_chunks_exact
from embeddings.search_engine import maintenance, milvus_lite
from embeddings.search_engine.entries import load_engine
from jobs.models import UploadJob
from outbox import queue
from samples import make_retrieval
from testing.ports import free_port

SUMMARY = __doc__
TENANT = UUID("0b54a4c6-6a0e-4a55-9c40-5d2f6f5d9c3e")
TIMEOUT_SECONDS = 1_800.0
QUICK_DOCUMENTS = ("amendment.pdf", "dental_plan.pdf")
RATIOS = ("hit@1", "hit@5", "mrr")  # of hybrid to the better baseline
ENGINE_RECALL, ENGINE_DIFFERENCE = 0.98, 0.01  # of its ten nearest vectors; of hit@5 to PostgreSQL's
GOAL = "more than BM25 at hit@5, and no less than the better arm"
SELECT_LEXEMES = """
    SELECT chunk_id, lexeme, cardinality(positions) FROM document_chunks, unnest(search)
    WHERE user_id = %s AND embedding IS NOT NULL"""

Ranking = Callable[[str], list[UUID]]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "path", nargs="?", type=questions.read_questions, metavar="PATH",
        help="a JSONL file with questions, or its folder (docs/retrieval.md); without it, the samples' own set",
    )  # fmt: skip
    parser.add_argument("--set", choices=question_sets.NAMES, help="a set over documents that are not shipped")
    parser.add_argument("--embedder", type=parse_embedder, default="local", help="as EMBEDDER; default: local")
    add_sentence_model(parser)
    parser.add_argument("--search-engine", action="store_true", help="by Milvus Lite too, against PostgreSQL's figures")
    parser.add_argument("--split", choices=questions.SPLITS, default="test", help="default: test")


def add_sentence_model(parser: ArgumentParser) -> None:
    default = "none" if registry.missing_packages("minilm") else "minilm"
    text = f"as SENTENCE_MODEL; default here: {default}"
    parser.add_argument("--sentence-model", choices=registry.SENTENCE_MODELS, default=default, help=text)


def parse_embedder(name: str) -> str:
    try:
        registry.get_embedder(name)
    except ImproperlyConfigured as error:
        raise ArgumentTypeError(str(error)) from error
    if missing := registry.missing_packages(name):
        raise ArgumentTypeError(f"needs {', '.join(missing)}: pip install -r requirements/base.txt")
    return name


@dataclass(frozen=True, slots=True)
class CitedPassage:
    """A passage, by the file and the pages that it cites."""

    source: Path
    pages: range
    text: str

    def answers(self, question: Question) -> bool:
        on_page = bool(question.gold.get(self.source, frozenset()).intersection(self.pages))
        return on_page and (not question.quote or question.quote in questions.letters(self.text))


def measure(options: Namespace) -> Result:
    with _open_questions(options) as all_questions:
        chosen = questions.filter_split(all_questions, options.split)
        if not chosen:
            raise SystemExit(f"No question is in the split {options.split}.")
        passages = ingest(sorted({path for question in all_questions for path in question.gold}), options.embedder)
        seconds = embed_sentences(options.sentence_model)
        ranked = {name: _score(ranking, chosen, passages) for name, ranking in _rankings().items()}
        loss = text_loss.measure_loss(chosen, _by_source(passages))
        step = 20 if options.quick else 1
        texts = {
            "answerable": [each.text for each in chosen],
            "off_topic": question_sets.off_topic_questions()[::step],
            "held_out": question_sets.off_topic_questions(held_out=True)[::step],
        }
        refused = {name: _refused(asked) for name, asked in texts.items()}
        with override_settings(SENTENCE_MODEL=registry.NO_SENTENCE_MODEL):
            static = {name: _refused(asked) for name, asked in texts.items()}
        engine = _measure_engine(chosen, passages, ranked) if options.search_engine else {}
    more = {
        "pipeline_loss": loss,
        "refused": refused,
        "refused_static": static,
        "sentence_cpu_seconds": seconds,
        **engine,
    }
    return _result(options, chosen, passages, ranked, more)


def _measure_engine(
    chosen: Sequence[Question], passages: dict[UUID, CitedPassage], ranked: dict[str, list[dict[str, float]]]
) -> dict[str, Any]:
    """Return the engine's recall of vectors against an exact search, and its hit rate beside PostgreSQL's."""
    port, folder = free_port(), EmbeddedServer().data.parent / "milvus"
    environment = {"SEARCH_ENGINE": "milvus", "MILVUS_URI": f"http://127.0.0.1:{port}"}
    embedder = registry.get_embedder(settings.EMBEDDER)
    model = EmbeddingModel(embedder.model, embedder.version)
    with milvus_lite.running_server(folder, port), override_settings(**environment):
        maintenance.rebuild()
        queue.send_due(time.monotonic() + TIMEOUT_SECONDS)
        assert maintenance.verify().is_clean
        engine = load_engine()
        with engine.connected() as client:
            client.flush(engine.collection_name())  # from here on by its HNSW index
        recalls = [_engine_recall(model, vector) for vector in embedder.embed([each.text for each in chosen])]
        hybrid = _score(_rankings()[HYBRID], chosen, passages)
    by_engine, by_postgres = (ranking_metrics.mean_scores(each) for each in (hybrid, ranked[HYBRID]))
    return {
        "engine": by_engine,
        "engine_recall@10": sum(recalls) / len(recalls),
        "engine_same_answers": sum(map(eq, hybrid, ranked[HYBRID])) / len(chosen),
        "engine_ok": sum(recalls) / len(recalls) >= ENGINE_RECALL
        and abs(by_engine["hit@5"] - by_postgres["hit@5"]) <= ENGINE_DIFFERENCE,
    }


def _engine_recall(model: EmbeddingModel, vector: Vectors) -> float:
    with search_snapshot(TENANT, model):
        exact = nearest_chunks_exact(Scope(TENANT, model), vector, 10)
    found = load_engine().search_vectors(TENANT, model, vector, 10)
    return len({hit.chunk_id for hit in exact} & set(found)) / max(1, len(exact))


@contextmanager
def _open_questions(options: Namespace) -> Iterator[list[Question]]:
    """Yield the questions given, or those of a set, whose PDFs exist until the end of the block."""
    if options.path:
        yield options.path
        return
    with tempfile.TemporaryDirectory() as folder:
        if options.set:
            yield questions.read_questions(str(question_sets.open_set(options.set, Path(folder))))
            return
        sample_questions = questions.read_questions(str(make_retrieval.make(Path(folder))))
        yield [
            each
            for each in sample_questions
            if not options.quick or {path.name for path in each.gold} <= set(QUICK_DOCUMENTS)
        ]


def ingest(documents: Sequence[Path], embedder: str) -> dict[UUID, CitedPassage]:
    """Process PDFs through the pipeline of one tenant; return what can be found of them, by its id."""
    settings.EMBEDDER = embedder
    stored = stored_pdfs.store_pdfs(documents, TENANT)
    stored_pdfs.create_jobs(stored)
    print_progress(f"{len(stored)} documents of one tenant, embedded by {embedder}")
    with subprocesses.running_cluster(EMBEDDER=embedder):
        subprocesses.wait_until(job_timings.jobs_have_ended, seconds=TIMEOUT_SECONDS)
    for job in UploadJob.objects.exclude(state="done"):
        print_progress(f"{job.document_id} is not searchable: {(job.last_error or {}).get('code')}")
    by_id = {each.document_id: each.source for each in stored}
    return _passages(by_id)


def embed_sentences(model: str) -> float:
    """Make the sentence vectors of all passages by ``model``; return the CPU seconds that it took."""
    settings.SENTENCE_MODEL = model
    began = time.process_time()
    if sentence_vectors.sentence_embedder():
        sentence_vectors.enqueue_missing()  # a process looks for them once, and may ingest again
    count = sentence_vectors.embed_pending()
    print_progress(f"sentences of {count} passages embedded by {model}")
    return round(time.process_time() - began, 1)


def _passages(sources: dict[UUID, Path]) -> dict[UUID, CitedPassage]:
    with as_tenant(TENANT):
        rows = DocumentChunk.objects.filter(user_id=TENANT, embedding__isnull=False)
        columns = rows.values_list("chunk_id", "document_id", "meta", "text")
        return {pk: CitedPassage(sources[document], _pages(meta), text) for pk, document, meta, text in columns}


def _pages(meta: dict[str, Any] | None) -> range:
    first, last = (meta or {})["pages"]
    return range(first, last + 1)


def _rankings() -> dict[str, Ranking]:
    def ours(mode: str, *, reranks: bool = True) -> Ranking:
        return lambda text: [
            hit.chunk_id
            for hit in search(user_id=TENANT, query=text, k=ranking_metrics.DEPTH, mode=mode, reranks=reranks)
        ]

    def static(text: str) -> list[UUID]:
        with override_settings(SENTENCE_MODEL=registry.NO_SENTENCE_MODEL):
            return ours(HYBRID)(text)

    plain, stemmed = _plain_bm25(), _stemmed_bm25()
    return {
        **{mode: ours(mode) for mode in (TEXT, VECTOR, HYBRID)},
        "hybrid_static": static,
        "candidates": ours(HYBRID, reranks=False),
        "bm25": lambda text: plain.rank(bm25.words(text), ranking_metrics.DEPTH),
        "bm25_lexemes": lambda text: stemmed.rank(query_lexemes(text), ranking_metrics.DEPTH),
    }


def _plain_bm25() -> bm25.Okapi:
    with as_tenant(TENANT):
        rows = DocumentChunk.objects.filter(user_id=TENANT, embedding__isnull=False).order_by("pk")
        return bm25.Okapi({pk: Counter(bm25.words(text)) for pk, text in rows.values_list("pk", "text")})


def _stemmed_bm25() -> bm25.Okapi:
    """Return BM25 over the lexemes of our own text retriever: PostgreSQL's, headings included."""
    bags: dict[UUID, dict[str, int]] = defaultdict(dict)
    with as_tenant(TENANT), connection.cursor() as cursor:
        cursor.execute(SELECT_LEXEMES + " ORDER BY 1", [TENANT])
        for chunk_id, lexeme, times in cursor.fetchall():
            bags[chunk_id][lexeme] = times
    return bm25.Okapi(bags)


def _score(ranking: Ranking, chosen: Sequence[Question], passages: dict[UUID, CitedPassage]) -> list[dict[str, float]]:
    judged = []
    for question in chosen:
        relevant = sum(cited.answers(question) for cited in passages.values())
        judged.append(
            ranking_metrics.score_ranking([passages[pk].answers(question) for pk in ranking(question.text)], relevant)
        )
    return judged


def _refused(texts: Sequence[str]) -> float:
    """Return the share of questions of which hybrid search says that no passage answers them."""
    found = [search(user_id=TENANT, query=text, k=1) for text in texts]
    return sum(not (passages and passages[0].is_relevant) for passages in found) / len(found)


def _by_source(passages: dict[UUID, CitedPassage]) -> dict[Path, list[tuple[range, str]]]:
    passages_by_source: dict[Path, list[tuple[range, str]]] = defaultdict(list)
    for cited in passages.values():
        passages_by_source[cited.source].append((cited.pages, cited.text))
    return passages_by_source


def _result(
    options: Namespace,
    chosen: Sequence[Question],
    passages: dict[UUID, CitedPassage],
    ranked: dict[str, list[dict[str, float]]],
    more: dict[str, Any],
) -> Result:
    figures = {name: ranking_metrics.mean_scores(judged) for name, judged in ranked.items()}
    rivals = figures["bm25"], figures["bm25_lexemes"]
    hybrid, rival = figures[HYBRID]["hit@5"], max(each["hit@5"] for each in rivals)
    ratios = {name: _ratio(figures[HYBRID][name], max(each[name] for each in rivals)) for name in RATIOS}
    arms = max(figures[TEXT]["hit@5"], figures[VECTOR]["hit@5"])
    return Result(
        name="retrieval",
        value=hybrid,
        unit="hit@5 of hybrid",
        against=f"BM25 over the same passages, the better of plain and stemmed words: {rival:.3f}",
        ratio=ratios["hit@5"],
        goal=GOAL,
        ok=hybrid > rival and hybrid >= arms and more.get("engine_ok", True),
        details={
            "set": options.set or "samples",
            "split": options.split,
            "ratios": ratios,
            "embedder": options.embedder,
            "sentence_model": options.sentence_model,
            "questions": len(chosen),
            "documents": len({cited.source for cited in passages.values()}),
            "passages": len(passages),
            **figures,
            "hit@5_by_kind": _by_kind(chosen, ranked),
            **more,
        },
    )


def _ratio(ours: float, theirs: float) -> float:
    return ours / theirs if theirs else 0.0


def _by_kind(chosen: Sequence[Question], ranked: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    kinds = sorted({question.kind for question in chosen if question.kind})
    return {
        kind: {"questions": float(sum(question.kind == kind for question in chosen))}
        | {name: _hits(kind, chosen, judged) for name, judged in ranked.items()}
        for kind in kinds
    }


def _hits(kind: str, chosen: Iterable[Question], judged: Iterable[dict[str, float]]) -> float:
    hits = [one["hit@5"] for question, one in zip(chosen, judged, strict=True) if question.kind == kind]
    return sum(hits) / len(hits)
