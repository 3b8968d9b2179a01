"""Factory of searchable records of connected systems, without a sync."""

from hashlib import sha256
from typing import Any
from uuid import UUID

from embeddings import active_model
from integrations.models import ClientIntelligence, ConnectedSource, SourceDocument


def create_source(user_id: UUID, provider: str = "hubspot", **columns: Any) -> ConnectedSource:
    source: ConnectedSource = ConnectedSource.objects.create(user_id=user_id, provider=provider, **columns)
    return source


def create_record(
    source: ConnectedSource, external_id: str, text: str, *, embed: bool = True, **columns: Any
) -> SourceDocument:
    """Store what was fetched, with a vector of the tenant's live model unless ``embed`` is off."""
    kind = f"{source.provider}.{external_id.partition(':')[0]}"
    named = {"user_id": source.user_id, "source": source, "external_id": external_id, "document_type": kind}
    vector = _embedded(source.user_id, text) if embed and text else {}
    row: SourceDocument = SourceDocument.objects.create(**named | {"text": text, "raw_payload": {}} | vector | columns)
    return row


def create_client(user_id: UUID, name: str, text: str, *, embed: bool = True, **columns: Any) -> ClientIntelligence:
    """Store what is known of a client: the tenant's own row, unless ``source`` is said."""
    vector = _embedded(user_id, text) if embed and text else {}
    row: ClientIntelligence = ClientIntelligence.objects.create(
        **{"user_id": user_id, "client_name": name, "text": text} | vector | columns
    )
    return row


def _embedded(user_id: UUID, text: str) -> dict[str, Any]:
    pointer = active_model.active_model(user_id)
    return {
        "embedding": active_model.require_embedder(pointer).embed([text])[0],
        "embedding_model": f"{pointer.model}@{pointer.version}",
        "embedding_text_sha256": sha256(text.encode()).digest(),
    }
