"""Embedding of connector records: vectors for texts that have none yet, each text once (spec 002 §3)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings

from accounts.error_codes import ApiError
from embeddings import active_model, embedders, tokenizer
from embeddings.embedders import Embedder
from embeddings.embedders.http_base import HttpEmbedder
from embeddings.embedding_calls import MISCONFIGURED_SECONDS, EmbeddingTask, Reservation, Settle, reserve_call, run_task
from integrations.records.changes import Draft
from integrations.records.sql import BinaryVector, binary_vectors, execute
from integrations.records.text import RecordText, truncate_for_embedding
from jobs.outcomes import Wait

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
        """Return the texts to buy, each once."""
        new = {text.sha: text for text in texts if text.sha not in self.found and text.sha not in self.refused}
        return list(new.values())

    def buy(self, texts: Sequence[RecordText]) -> None:
        """Embed the missing texts. Call outside of transactions; raises what ``run_task`` raises.

        Vectors that were bought before an error stay in ``found``.
        """
        self._batches = _batches(self.missing(texts), self.batch_size)
        run_task(self)

    def next_batch(self) -> Sequence[TruncatedText]:
        return next(self._batches, [])

    def reserve(self, embedder: HttpEmbedder, tokens: int) -> Reservation:
        return reserve_call(embedder, tokens, user_id=self.user_id, stage=STAGE)

    def save(self, batch: Sequence[TruncatedText], vectors: embedders.Vectors, settle: Settle) -> None:
        settle()
        self.found |= {text.sha: wire for text, wire in zip(batch, binary_vectors(vectors), strict=True)}

    def refuse(self, text: TruncatedText) -> None:
        self.refused.add(text.sha)


def of_tenant(user_id: UUID) -> Vectors:
    """Return no vectors yet, of the tenant's live model. Raises ``Wait`` while nothing here makes them."""
    try:
        return Vectors(user_id, active_model.require_embedder(active_model.active_model(user_id)))
    except ApiError as refused:  # an operator's mistake: no record's fault
        raise Wait(MISCONFIGURED_SECONDS, refused.code) from refused


def batches(drafts: Sequence[Draft], vectors: Vectors) -> Iterator[list[Draft]]:
    """Yield the drafts in groups whose missing texts make one call; last, all that need none.

    Each group is written before the next is bought: what a budget or a fault holds up in the middle of a page is not
    bought again, and a crash costs one call.
    """
    batch: list[Draft] = []
    lacking: set[bytes] = set()
    idle = []
    for draft in drafts:
        new = {text.sha for text in vectors.missing(draft.missing_texts)}
        if not new:
            idle.append(draft)
            continue
        if batch and len(lacking | new) > vectors.batch_size:
            yield batch
            batch, lacking = [], set()
        batch.append(draft)
        lacking |= new
    yield batch
    yield idle


def _batches(texts: Sequence[RecordText], most: int) -> Iterator[list[TruncatedText]]:
    """Yield truncated texts, as many as one call takes. A token is at least a byte, so bytes are counted."""
    batch: list[TruncatedText] = []
    room = settings.EMBED_BATCH_TOKENS
    for each in texts:
        text = TruncatedText(each.sha, truncate_for_embedding(each.text))
        size = len(text.text.encode())
        if batch and (len(batch) == most or size > room):
            yield batch
            batch, room = [], settings.EMBED_BATCH_TOKENS
        batch.append(text)
        room -= size
    if batch:
        yield batch
