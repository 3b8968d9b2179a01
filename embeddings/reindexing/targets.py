"""What a campaign moves to, checked before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from django.core.exceptions import ImproperlyConfigured

from accounts.errors import ApiError
from embeddings import chunking, embedders
from embeddings.embedders import Embedder
from embeddings.reindexing.error_codes import CAMPAIGN_STATE, UNKNOWN_CHUNKER, UNKNOWN_KIND, UNKNOWN_MODEL
from embeddings.reindexing.models import Campaign

MOST_CENTS = Decimal(10) ** 9  # of a budget


@dataclass(frozen=True, slots=True)
class Target:
    """A model (``reembed``) or a chunker as name@version (``rechunk``)."""

    kind: str
    model: str | None = None
    version: str | None = None
    chunker: str | None = None

    @property
    def label(self) -> str:
        return self.chunker or f"{self.model}@{self.version}"


def validate_target(*, kind: str, model: str | None, version: str | None, chunker: str | None) -> Target:
    """Return the target, or raise ``Refused``: "UNKNOWN_KIND", "UNKNOWN_MODEL", "UNKNOWN_CHUNKER"."""
    if kind == Campaign.Kind.REEMBED:
        require_embedder(model or "", version or "")
        return Target(kind, model=model, version=version)
    if kind == Campaign.Kind.RECHUNK:
        try:
            return Target(kind, chunker=chunking.get_chunker(chunker or "").label)
        except ImproperlyConfigured as error:
            raise ApiError(UNKNOWN_CHUNKER, str(error), field="chunker") from error
    raise ApiError(UNKNOWN_KIND, "A campaign is a reembed or a rechunk.", field="kind")


def require_embedder(model: str, version: str) -> Embedder:
    """Return what makes this model's vectors here, or raise ``Refused("UNKNOWN_MODEL")``."""
    found = embedders.find_embedder(model, version)
    if found is None:
        there = sorted({f"{made.model}@{made.version}" for made in embedders.configured_embedders()})
        detail = f"Nothing here makes vectors of this model; there are {', '.join(there)}. A vendor's needs its key."
        raise ApiError(UNKNOWN_MODEL, detail, field="model")
    return found


def embedder(campaign: Campaign) -> Embedder | None:
    """Return what makes the vectors of a re-embedding's target, if it is still configured."""
    return embedders.find_embedder(campaign.embed_model or "", campaign.embed_version or "")


def state_error(detail: str) -> ApiError:
    return ApiError(CAMPAIGN_STATE, detail)
