"""Active embedding model of each tenant: the model that its search uses (table ``active_models``)."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

from accounts.errors import ApiError
from accounts.prepared_statements import prepared_cursor
from embeddings.embedders import registry
from embeddings.embedders.registry import Embedder, EmbeddingModel
from embeddings.error_codes import MODEL_UNAVAILABLE
from embeddings.models import ActiveModel

# The row binds a tenant that is pinned or has vectors. After deleting all documents, it starts with EMBEDDER again.
BOUND = """
    SELECT FROM active_models l WHERE l.user_id = %(user)s AND (l.pinned OR EXISTS (
        SELECT FROM document_chunks c WHERE c.user_id = l.user_id AND c.embed_model IS NOT NULL))"""
# One that is the default as well is active either way, without a look at the chunks.
SELECT = f"""
    SELECT embed_model, embed_version, shadowed FROM active_models WHERE user_id = %(user)s
    AND ((embed_model = %(model)s AND embed_version = %(version)s) OR EXISTS ({BOUND}))"""
CREATE = """
    INSERT INTO active_models (user_id, embed_model, embed_version) VALUES (%(user)s, %(model)s, %(version)s)
    ON CONFLICT (user_id) DO NOTHING"""
# Held until the transaction ends: a cut-over waits, so what is committed belongs to the model that is active then.
LOCK_FOR_SHARE = "SELECT embed_model, embed_version FROM active_models WHERE user_id = %(user)s FOR SHARE"
LOCK_FOR_UPDATE = "SELECT FROM active_models WHERE user_id = %(user)s FOR UPDATE"
# A statement of its own, after the lock: it must see what the lock's previous holder committed.
REPLACE_UNBOUND = f"""
    UPDATE active_models SET embed_model = %(model)s, embed_version = %(version)s, shadowed = false,
        previous_model = NULL, previous_version = NULL, changed_at = clock_timestamp()
    WHERE user_id = %(user)s AND NOT EXISTS ({BOUND})"""


def _is_bound(user_id: UUID) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT EXISTS ({BOUND})", {"user": user_id})
        return bool(cursor.fetchone()[0])


def active_model(user_id: UUID) -> EmbeddingModel:
    """Return the tenant's active model; without any vectors, the model that EMBEDDER, or EMBEDDERS_OF, names."""
    return send_select(user_id)()


def send_select(user_id: UUID) -> Callable[[], EmbeddingModel]:
    """Select the active model, and return a function that returns it.

    Within a pipeline the statement is sent with the next ones. It must come before those of the tenant's role, which
    cannot read the table.
    """
    default = registry.get_embedder(settings.EMBEDDERS_OF.get(user_id, settings.EMBEDDER))
    cursor = prepared_cursor()
    cursor.execute(SELECT, {"user": user_id, "model": default.model, "version": default.version})

    def fetch() -> EmbeddingModel:
        row = cursor.fetchone()
        return EmbeddingModel(*row) if row else EmbeddingModel(default.model, default.version)

    return fetch


def require_embedder(model: EmbeddingModel) -> Embedder:
    """Return the embedder of this model; raise ``ApiError("MODEL_UNAVAILABLE")`` when none is configured."""
    embedder = registry.find_embedder(model)
    if embedder is None:
        detail = "The model that these documents were made searchable with is not configured here."
        raise ApiError(MODEL_UNAVAILABLE, detail, retry_after=600)
    return embedder


def has_changed(user_id: UUID, model: EmbeddingModel) -> bool:
    """Tell whether another model is the tenant's active one: vectors of this one would not be committed."""
    row = ActiveModel.objects.filter(pk=user_id).values_list("embed_model", "embed_version").first()
    return row is not None and row != (model.model, model.version) and _is_bound(user_id)


def confirm_active_model(user_id: UUID, model: EmbeddingModel) -> bool:
    """Lock the tenant's active model and tell whether it is this one. A tenant's first vectors decide its model.

    Call inside the transaction that commits vectors: no cut-over happens before it ends.
    """
    params: dict[str, Any] = {"user": user_id, **model.params}
    label = model.model, model.version
    with connection.cursor() as cursor:
        cursor.execute(f"{CREATE};{LOCK_FOR_SHARE}", params)
        cursor.nextset()
        if cursor.fetchone() == label:
            return True
        if _is_bound(user_id):
            return False
        cursor.execute(LOCK_FOR_UPDATE, params)
        cursor.execute(REPLACE_UNBOUND, params)
        cursor.execute(LOCK_FOR_SHARE, params)
        return bool(cursor.fetchone() == label)
