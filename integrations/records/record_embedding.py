"""Vectors for a page's records: only of texts that have none yet, each text once (spec 002 §3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.conf import settings

from accounts.errors import ApiError
from embeddings import active_model, billed_calls
from embeddings.embedders import Embedder
from integrations.records.changes import Draft
from integrations.records.sql import BinaryVector, binary_vectors, execute
from integrations.records.text import RecordText, truncate_for_embedding
from jobs.outcomes import Permanent, Wait
from vendors import guard, ledger
from vendors.error_codes import VENDOR_MISCONFIGURED

STAGE = "connectors"
HOPELESS = 20  # texts refused one by one and none accepted: then it is not the texts
MISCONFIGURED_SECONDS = 60.0

# Within the tenant only: another's sameness of text is not to be felt, not even as speed.
KNOWN = """
    SELECT DISTINCT ON (d.embedding_text_sha256) d.embedding_text_sha256 AS sha, vector_send(d.embedding) AS wire
    FROM source_documents d
    WHERE d.embedding_text_sha256 = ANY(%(shas)s) AND d.user_id = %(user)s AND d.embedding_model = %(model)s"""


@dataclass(slots=True)
class Vectors:
    """A page's vectors by their text's sha, as they come in. ``refused`` are those the model does not take."""

    user_id: UUID
    embedder: Embedder
    found: dict[bytes, BinaryVector] = field(default_factory=dict)
    refused: set[bytes] = field(default_factory=set)
    bought: int = 0

    @property
    def model(self) -> str:
        return f"{self.embedder.model}@{self.embedder.version}"

    @property
    def most(self) -> int:
        asked: int = settings.EMBEDDING_BATCH_SIZE
        return max(1, min(asked, self.embedder.batch_size))

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
        """Embed what is missing. Call it outside of transactions; raises what ``buying.embed`` raises.

        What is bought before something is raised stays in ``found``.
        """
        for batch in _sized(self.missing(texts), self.most):
            self._buy(batch)

    def _buy(self, batch: Sequence[tuple[RecordText, str]]) -> None:
        try:
            rows = billed_calls.embed_texts(
                self.embedder, [sent for _, sent in batch], user_id=self.user_id, stage=STAGE
            )
        except Permanent as never:
            self._split(batch, never)
            return
        self.found |= {text.sha: wire for (text, _), wire in zip(batch, binary_vectors(rows), strict=True)}
        self.bought += len(batch)

    def _split(self, batch: Sequence[tuple[RecordText, str]], never: Permanent) -> None:
        """Halve what is refused until the text that is not wanted, or cannot be paid, stands alone."""
        about_the_text = isinstance(never, guard.VendorRefused) and never.status in billed_calls.TEXT_ERROR_STATUSES
        if not about_the_text and isinstance(never, guard.VendorRefused):  # a wrong address or model
            raise Wait(MISCONFIGURED_SECONDS, VENDOR_MISCONFIGURED) from never
        if not about_the_text and never.code != ledger.BUDGET_TOO_SMALL:
            raise never
        if len(batch) > 1:
            half = len(batch) // 2
            self._buy(batch[:half])
            self._buy(batch[half:])
            return
        if not about_the_text:
            raise never
        self.refused.add(batch[0][0].sha)
        if len(self.refused) >= HOPELESS and not self.bought:
            raise never


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
        if batch and len(lacking | new) > vectors.most:
            yield batch
            batch, lacking = [], set()
        batch.append(draft)
        lacking |= new
    yield batch
    yield idle


def _sized(texts: Sequence[RecordText], most: int) -> Iterator[list[tuple[RecordText, str]]]:
    """Yield texts as they are sent, as many as one call takes. A token is at least a byte, so bytes are counted."""
    batch: list[tuple[RecordText, str]] = []
    room = settings.EMBED_BATCH_TOKENS
    for text in texts:
        sent = truncate_for_embedding(text.text)
        size = len(sent.encode())
        if batch and (len(batch) == most or size > room):
            yield batch
            batch, room = [], settings.EMBED_BATCH_TOKENS
        batch.append((text, sent))
        room -= size
    if batch:
        yield batch
