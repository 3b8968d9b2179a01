"""Advisory locks of a document."""

from uuid import UUID

from jobs.advisory_locks import lock_transaction


def lock_document(document_id: UUID, scope: str = "files") -> None:
    """Hold one of the document's advisory locks until the current transaction ends.

    Take "files" before a job's row is locked, "vectors" after: with one lock for both, a deletion and a worker could
    wait for each other.
    """
    lock_transaction(f"{scope}:{document_id}")
