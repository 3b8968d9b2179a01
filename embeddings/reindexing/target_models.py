"""Campaign targets: the model or chunker that a campaign moves to, and its validation."""

from dataclasses import dataclass
from decimal import Decimal

from django.core.exceptions import ImproperlyConfigured

from accounts.error_codes import ApiError
from embeddings import chunking, embedders
from embeddings.embedders import Embedder
from embeddings.reindexing.error_codes import CAMPAIGN_STATE, UNKNOWN_CHUNKER, UNKNOWN_KIND, UNKNOWN_MODEL
from embeddings.reindexing.models import Campaign

MAX_CENTS = Decimal(10) ** 9  # of a budget


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
    """Return the target, or raise ``ApiError``: "UNKNOWN_KIND", "UNKNOWN_MODEL", "UNKNOWN_CHUNKER"."""
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
    """Return the embedder of this model, or raise ``ApiError("UNKNOWN_MODEL")``."""
    embedder = embedders.find_embedder(model, version)
    if embedder is None:
        labels = sorted({f"{each.model}@{each.version}" for each in embedders.configured_embedders()})
        detail = f"This model is not configured here; there are {', '.join(labels)}. A vendor's model needs its key."
        raise ApiError(UNKNOWN_MODEL, detail, field="model")
    return embedder


def state_error(detail: str) -> ApiError:
    return ApiError(CAMPAIGN_STATE, detail)
