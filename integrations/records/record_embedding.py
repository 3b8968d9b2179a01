"""Embedding of connector records: vectors for texts that have none yet, each text once (spec 002 §3)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from django.conf import settings

from accounts.errors import ApiError
from embeddings import active_model, tokenizer
from embeddings.embedders import registry
from embeddings.embedders.http_base import HttpEmbedder
from embeddings.embedders.registry import Embedder, EmbeddingModel
from embeddings.embedding_calls import MISCONFIGURED_SECONDS, EmbeddingTask, Reservation, Settle, reserve_call, run_task
from integrations.records.prepared_sql import BinaryVector, binary_vectors, execute
from integrations.records.text_normalization import RecordText, truncate_for_embedding
from jobs.outcomes import Wait

T = TypeVar("T")

STAGE = "connectors"

# Within the tenant only: another's sameness of text is not to be felt, not even as speed.
KNOWN = """
    SELECT DISTINCT ON (d.embedding_text_sha256) d.embedding_text_sha256 AS sha, vector_send(d.embedding) AS wire
    FROM source_documents d
    WHERE d.embedding_text_sha256 = ANY(%(shas)s) AND d.user_id = %(user)s AND d.embedding_model = %(model)s"""


@dataclass(frozen=True, slots=True)
class TruncatedText:
    """A record's text as the model takes it, under the sha of the whole text."""

    sha: bytes
    text: str

    @property
    def tokens(self) -> int:
        return tokenizer.count_tokens(self.text)


class Vectors(EmbeddingTask[TruncatedText]):
    """Vectors of a page's records by the sha of their text. ``refused`` are the texts that the model does not take."""

    splits_over_budget = True

    def __init__(self, user_id: UUID, embedder: Embedder) -> None:
        super().__init__(embedder)
        self.user_id = user_id
        self.found: dict[bytes, BinaryVector] = {}
        self.refused: set[bytes] = set()
        self._batches: Iterator[list[TruncatedText]] = iter(())

    @property
    def model(self) -> str:
        return f"{self.embedder.model}@{self.embedder.version}"

    @property
    def batch_size(self) -> int:
        return max(1, min(int(settings.EMBEDDING_BATCH_SIZE), self.embedder.batch_size))

    def reuse(self, texts: Sequence[RecordText]) -> None:
        """Take the vectors that the same model has made of the same texts for others of the tenant's records."""
        params = {"shas": [text.sha for text in texts], "user": self.user_id, "model": self.model}
        if texts:
            self.found |= {bytes(row.sha): BinaryVector(row.wire) for row in execute(KNOWN, params, binary=True)}

    def missing(self, texts: Sequence[RecordText]) -> list[RecordText]:
        new = {text.sha: text for text in texts if text.sha not in self.found and text.sha not in self.refused}
        return list(new.values())

    def buy(self, texts: Sequence[RecordText]) -> None:
        """Embed the missing texts. Call outside of transactions; raises what ``run_task`` raises.

        Vectors that were bought before an error stay in ``found``.
        """
        truncated = (TruncatedText(each.sha, truncate_for_embedding(each.text)) for each in self.missing(texts))
        # A token is at least a byte.
        self._batches = size_batches(
            truncated, lambda text: len(text.text.encode()), most=self.batch_size, room=settings.EMBED_BATCH_TOKENS
        )
        run_task(self)

    def next_batch(self) -> Sequence[TruncatedText]:
        return next(self._batches, [])

    def reserve(self, embedder: HttpEmbedder, tokens: int) -> Reservation:
        return reserve_call(embedder, tokens, user_id=self.user_id, stage=STAGE)

    def save(self, batch: Sequence[TruncatedText], vectors: registry.Vectors, settle: Settle) -> None:
        settle()
        self.found |= {text.sha: wire for text, wire in zip(batch, binary_vectors(vectors), strict=True)}

    def refuse(self, text: TruncatedText) -> None:
        self.refused.add(text.sha)


def brain_model() -> EmbeddingModel | None:
    """Return the model of the deployment that embeds all records (spec 002 §1), None where none is configured.

    A process' first call asks the deployment for the model's name, and raises what ``calls.guarded_call`` raises.
    """
    if not (settings.BOOTS_BRAIN_URL and settings.BRAIN_API_SECRET):
        return None
    brain = registry.get_embedder("remote")
    return EmbeddingModel(brain.model, brain.version)


def records_model(user_id: UUID) -> EmbeddingModel:
    """Return the model of the tenant's records: that of ``brain_model``, else the tenant's active one."""
    return brain_model() or active_model.active_model(user_id)


def tenant_vectors(user_id: UUID) -> Vectors:
    """Return no vectors yet, of the model of the tenant's records. Raises ``Wait`` while nothing here makes them."""
    try:
        return Vectors(user_id, active_model.require_embedder(records_model(user_id)))
    except ApiError as refused:  # an operator's mistake: no record's fault
        raise Wait(MISCONFIGURED_SECONDS, refused.code) from refused


def size_batches(items: Iterable[T], size: Callable[[T], int], *, most: int, room: int) -> Iterator[list[T]]:
    """Yield the items in batches of at most ``most`` items, whose sizes add up to ``room`` unless there is only one."""
    batch: list[T] = []
    left = room
    for item in items:
        item_size = size(item)
        if batch and (len(batch) == most or item_size > left):
            yield batch
            batch, left = [], room
        batch.append(item)
        left -= item_size
    if batch:
        yield batch
