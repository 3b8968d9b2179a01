"""One at a time per document, across processes and tables."""

from uuid import UUID

from jobs.advisory_locks import lock_transaction


def lock(document_id: UUID, what: str = "files") -> None:
    """Hold one of the document's advisory locks until the present transaction ends.

    "files" is taken before a job's row is locked, "vectors" after: were they one lock, a deletion and a worker could
    wait for each other.
    """
    lock_transaction(f"{what}:{document_id}")
