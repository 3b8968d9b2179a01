"""The pointer: with which model a tenant's passages are found, and how it changes."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from uuid import UUID

from django.conf import settings
from django.db import connection

from embeddings import embedders
from embeddings.embedders import Embedder
from embeddings.models import LiveModel
from tenancy.refusals import Refused

DETAIL = "The model that these documents were made searchable with is not configured here."


@dataclass(frozen=True, slots=True)
class Live:
    """What a tenant's search reads. ``shadowed``: some of its vectors are in shadow_vectors."""

    model: str
    version: str
    shadowed: bool = False

    def is_same(self, other: Live) -> bool:
        """Tell whether both name the same model and version."""
        return (self.model, self.version) == (other.model, other.version)


def of(user_id: UUID) -> Live:
    """Return the tenant's pointer; before its first vectors, the model that EMBEDDER names."""
    pointer = LiveModel.objects.filter(pk=user_id).values_list("embed_model", "embed_version", "shadowed").first()
    if pointer:
        return Live(*pointer)
    chosen = embedders.get(settings.EMBEDDER)
    return Live(chosen.model, chosen.version)


def embedder(live: Live) -> Embedder:
    """Return what embeds for this pointer; raise ``Refused("MODEL_UNAVAILABLE")`` when nothing here does."""
    found = embedders.find(live.model, live.version)
    if found is None:
        raise Refused("MODEL_UNAVAILABLE", DETAIL, status=HTTPStatus.SERVICE_UNAVAILABLE, retry_after=600)
    return found


def has_moved(user_id: UUID, *, model: str, version: str) -> bool:
    """Tell whether the tenant has a pointer by now, and it names another model: what is made of this one is lost."""
    pointer = LiveModel.objects.filter(pk=user_id).values_list("embed_model", "embed_version").first()
    return pointer is not None and pointer != (model, version)


# The row is locked against a cut-over until the transaction ends: what is committed is of the model that is live then.
CONFIRM = """
    INSERT INTO live_models (user_id, embed_model, embed_version) VALUES (%(user)s, %(model)s, %(version)s)
    ON CONFLICT (user_id) DO NOTHING"""
LOCKED = "SELECT embed_model, embed_version FROM live_models WHERE user_id = %(user)s FOR SHARE"


def confirm(user_id: UUID, *, model: str, version: str) -> bool:
    """Tell whether the tenant's passages are found with this model, which its first vectors decide.

    Call inside the transaction that commits vectors: no cut-over happens before it ends.
    """
    with connection.cursor() as cursor:
        cursor.execute(CONFIRM, {"user": user_id, "model": model, "version": version})
        cursor.execute(LOCKED, {"user": user_id})
        return bool(cursor.fetchone() == (model, version))
