"""The pointer: with which model a tenant's passages are found, and how it changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

from accounts.errors import ApiError
from embeddings import embedders
from embeddings.embedders import Embedder
from embeddings.error_codes import MODEL_UNAVAILABLE
from embeddings.models import LiveModel

DETAIL = "The model that these documents were made searchable with is not configured here."


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """What a tenant's search reads. ``shadowed``: some of its vectors are in shadow_vectors."""

    model: str
    version: str
    shadowed: bool = False

    def is_same(self, other: EmbeddingModel) -> bool:
        """Tell whether both name the same model and version."""
        return (self.model, self.version) == (other.model, other.version)


# A pointer to nothing binds nobody: who has deleted all documents begins with the model of today.
HELD = """
    SELECT FROM live_models l WHERE l.user_id = %(user)s AND (l.pinned OR EXISTS (
        SELECT FROM document_chunks c WHERE c.user_id = l.user_id AND c.embed_model IS NOT NULL))"""


def _is_held(user_id: UUID) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT EXISTS ({HELD})", {"user": user_id})
        return bool(cursor.fetchone()[0])


POINTER = "SELECT embed_model, embed_version, shadowed FROM live_models WHERE user_id = %(user)s"


def active_model(user_id: UUID) -> EmbeddingModel:
    """Return the tenant's pointer; without any vectors, the model that EMBEDDER, or EMBEDDERS_OF, names."""
    with connection.cursor() as cursor:  # twice in each search, where the ORM's statement costs as much as a scan
        cursor.execute(POINTER, {"user": user_id})
        pointer = cursor.fetchone()
    chosen = embedders.get_embedder(settings.EMBEDDERS_OF.get(user_id, settings.EMBEDDER))
    if pointer and (pointer[:2] == (chosen.model, chosen.version) or _is_held(user_id)):
        return EmbeddingModel(*pointer)
    return EmbeddingModel(chosen.model, chosen.version)


def require_embedder(live: EmbeddingModel) -> Embedder:
    """Return what embeds for this pointer; raise ``Refused("MODEL_UNAVAILABLE")`` when nothing here does."""
    found = embedders.find_embedder(live.model, live.version)
    if found is None:
        raise ApiError(MODEL_UNAVAILABLE, DETAIL, retry_after=600)
    return found


def has_changed(user_id: UUID, *, model: str, version: str) -> bool:
    """Tell whether the tenant has a pointer by now, and it names another model: what is made of this one is lost."""
    pointer = LiveModel.objects.filter(pk=user_id).values_list("embed_model", "embed_version").first()
    return pointer is not None and pointer != (model, version) and _is_held(user_id)


# The row is locked against a cut-over until the transaction ends: what is committed is of the model that is live then.
CONFIRM = """
    INSERT INTO live_models (user_id, embed_model, embed_version) VALUES (%(user)s, %(model)s, %(version)s)
    ON CONFLICT (user_id) DO NOTHING"""
LOCK_FOR_SHARE = "SELECT embed_model, embed_version FROM live_models WHERE user_id = %(user)s FOR SHARE"
ALONE = "SELECT FROM live_models WHERE user_id = %(user)s FOR UPDATE"
# A statement of its own, after the lock: what whoever held it has committed must be seen.
ANEW = f"""
    UPDATE live_models SET embed_model = %(model)s, embed_version = %(version)s, shadowed = false,
        previous_model = NULL, previous_version = NULL, changed_at = clock_timestamp()
    WHERE user_id = %(user)s AND NOT EXISTS ({HELD})"""


def confirm_active_model(user_id: UUID, *, model: str, version: str) -> bool:
    """Tell whether the tenant's passages are found with this model, which its first vectors decide.

    Call inside the transaction that commits vectors: no cut-over happens before it ends.
    """
    named: dict[str, Any] = {"user": user_id, "model": model, "version": version}
    with connection.cursor() as cursor:
        cursor.execute(f"{CONFIRM};{LOCK_FOR_SHARE}", named)
        cursor.nextset()
        if cursor.fetchone() == (model, version):
            return True
        if _is_held(user_id):
            return False
        cursor.execute(ALONE, named)
        cursor.execute(ANEW, named)
        cursor.execute(LOCK_FOR_SHARE, named)
        return bool(cursor.fetchone() == (model, version))
