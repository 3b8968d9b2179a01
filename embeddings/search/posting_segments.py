"""Posting segments: the postings of many documents of a tenant merged into one block a term, in the background."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import psycopg
from django.db import OperationalError, connection, transaction
from numpy.typing import NDArray

from embeddings.models import PostingSegment
from embeddings.search.postings import (
    DENSE_IMPACT,
    EVERY_CHUNK,
    MERGED,
    NAME_PREFIX,
    POSTING,
    ROW_POSTING,
    SEGMENT_DOCUMENT,
    SEGMENT_POSTING,
    SEGMENT_ROW_POSTING,
)
from jobs.advisory_locks import try_lock_transaction
from jobs.cluster import maintenance

log = logging.getLogger("accessa.embeddings")

MIN_DOCUMENTS = 20  # not yet merged: fewer, a row a term each, are not worth a segment
MAX_DOCUMENTS = 1_000  # of those, in one merge
MAX_SLOTS = 1 << 14  # of a segment: its postings, 6 MB, take ten times as much memory while they are merged
DELETED_SHARE, DELETED_MINUTES = 8, 60
THREAD_NAME = "posting-segments"
# Shorter than PostgreSQL waits before it looks for a deadlock: a merge gives way to a transaction that deletes or
# indexes one of its documents.
SET_LOCK_TIMEOUT = "SELECT set_config('lock_timeout', '100ms', true)"
# A segment is merged again without its deleted documents once they are an eighth, or after an hour.
HAS_OLD = f"""deleted_at IS NOT NULL AND (
    deleted_at < clock_timestamp() - make_interval(mins => {DELETED_MINUTES})
    OR cardinality(deleted_documents) * {DELETED_SHARE * SEGMENT_DOCUMENT.itemsize} >= octet_length(documents))"""
SELECT_DUE = f"""
    SELECT user_id FROM document_terms WHERE term = '' GROUP BY user_id HAVING count(*) >= %s
    UNION SELECT user_id FROM posting_segments WHERE {HAS_OLD}"""
SELECT_SEGMENTS = f"""
    SELECT segment_id, slots, documents, {HAS_OLD} FROM posting_segments
    WHERE user_id = %s ORDER BY segment_id DESC"""
LOCK_UNMERGED = """
    SELECT document_id, segment_id, postings, row_postings FROM document_terms
    WHERE user_id = %(user)s AND term = %(every)s ORDER BY document_id LIMIT %(most)s FOR UPDATE"""
LOCK_MERGED = """
    SELECT document_id, segment_id, postings, row_postings FROM document_terms
    WHERE user_id = %(user)s AND term = %(merged)s AND segment_id = ANY(%(segments)s) ORDER BY document_id FOR UPDATE"""
SELECT_TERMS = """
    SELECT t.term, string_agg(int4send(d.number::int - 1), ''  ORDER BY d.number),
           string_agg(int4send(octet_length(t.postings) / %(wide)s), '' ORDER BY d.number),
           string_agg(t.postings, '' ORDER BY d.number),
           string_agg(int4send(coalesce(octet_length(t.row_postings), 0) / %(wide_row)s), '' ORDER BY d.number),
           coalesce(string_agg(t.row_postings, '' ORDER BY d.number), '')
    FROM unnest(%(documents)s::uuid[]) WITH ORDINALITY d(document_id, number)
    JOIN document_terms t ON t.document_id = d.document_id AND t.term <> %(every)s GROUP BY t.term"""
SELECT_BLOCKS = """
    SELECT term, segment_id, size, postings, coalesce(row_postings, '') FROM posting_blocks
    WHERE segment_id = ANY(%s)"""
DELETE_SOURCES = """
    DELETE FROM document_terms WHERE document_id = ANY(%(unmerged)s) AND term <> %(every)s;
    DELETE FROM posting_blocks WHERE segment_id = ANY(%(segments)s);
    DELETE FROM posting_segments WHERE segment_id = ANY(%(segments)s)"""
COPY_BLOCKS = """
    COPY posting_blocks (user_id, term, segment_id, size, postings, row_postings) FROM STDIN (FORMAT binary)"""
MARK_MERGED = """
    UPDATE document_terms SET term = %(merged)s, segment_id = %(segment)s
    WHERE user_id = %(user)s AND document_id = ANY(%(documents)s) AND term IN (%(every)s, %(merged)s)"""


def start_merging() -> None:
    """Start a round of ``merge_due`` in a background thread: a merge takes up to a second or two."""
    maintenance.start_in_background(THREAD_NAME, merge_due, log=log, broke_off="The merging of postings failed")


def merge_due() -> None:
    """Merge the postings of each tenant with many documents that are not merged yet, or with deleted ones."""
    with connection.cursor() as cursor:
        cursor.execute(SELECT_DUE, [MIN_DOCUMENTS])
        due = [user_id for (user_id,) in cursor.fetchall()]
    for user_id in due:
        try:
            while merge_postings(user_id):
                pass
        except OperationalError as error:
            if not isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
                raise  # else the next round tries again


class Document(NamedTuple):
    document_id: UUID
    segment_id: int | None
    chunks: int
    slots: int
    rows: int  # of tables in its chunks


class Segment(NamedTuple):
    segment_id: int
    slots: int
    documents: bytes
    has_old: bool  # deleted documents


def merge_postings(user_id: UUID) -> bool:
    """Merge some of a tenant's documents and segments into one segment, in one transaction; return if any were due.

    What search finds, and each score, stays the same.
    """
    with transaction.atomic():
        if not try_lock_transaction(f"postings:{user_id}"):
            return False
        with connection.cursor() as cursor:
            cursor.execute(SET_LOCK_TIMEOUT)
            cursor.execute(SELECT_SEGMENTS, [user_id])
            segments = [Segment(each, slots, bytes(own), old) for each, slots, own, old in cursor.fetchall()]
        params = {"user": user_id, "every": EVERY_CHUNK, "merged": MERGED, "most": MAX_DOCUMENTS}
        waiting = _documents(LOCK_UNMERGED, params)
        unmerged = list(_fitting(waiting))
        if len(waiting) >= MIN_DOCUMENTS and len(unmerged) > 1:
            sources = segments_to_merge(segments, sum(each.slots for each in unmerged))
        else:
            unmerged, sources = [], [each for each in segments if each.has_old][:1]
        if not unmerged and not sources:
            return False
        params["segments"] = [each.segment_id for each in sources]
        merged = _documents(LOCK_MERGED, params) if sources else []
        _replace(params, unmerged, merged, sources)
        return True


def segments_to_merge(segments: Sequence[Segment], slots: int) -> list[Segment]:
    """Return the newest segments, the newest first, that documents of so many new slots are merged with.

    As far back as a segment is at most twice the size of all that is newer: each posting is written a few times only.
    """
    chosen: list[Segment] = []
    for segment in segments:
        if segment.slots > 2 * slots or segment.slots + slots > MAX_SLOTS:
            break
        chosen.append(segment)
        slots += segment.slots
    return chosen


def _fetch(sql: str, params: Any) -> list[tuple[Any, ...]]:
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        return cursor.execute(sql, params, binary=True).fetchall()


def _documents(sql: str, params: dict[str, Any]) -> list[Document]:
    documents = []
    for document_id, segment_id, postings, row_postings in _fetch(sql, params):
        ords = np.frombuffer(postings, POSTING)["ord"]
        rows = len(row_postings or b"") // ROW_POSTING.itemsize
        documents.append(Document(document_id, segment_id, ords.size, int(ords[-1]) + 1, rows))
    return documents


def _fitting(documents: Sequence[Document]) -> Iterator[Document]:
    """Yield documents that together fit in a segment. One that is larger than a segment stays as it is."""
    left = MAX_SLOTS
    for document in documents:
        if document.slots <= left:
            left -= document.slots
            yield document


def _replace(
    params: dict[str, Any], unmerged: Sequence[Document], merged: Sequence[Document], sources: Sequence[Segment]
) -> None:
    documents = [*unmerged, *merged]
    sizes = np.array([each.slots for each in documents], "i8")
    begins = np.cumsum(sizes) - sizes
    gathered = _Gathered()
    gathered.add_documents([each.document_id for each in unmerged], begins)
    gathered.add_segments(
        sources, {(each.segment_id, each.document_id.bytes): at for each, at in zip(documents, begins, strict=True)}
    )
    params |= {
        "unmerged": [each.document_id for each in unmerged],
        "documents": [each.document_id for each in documents],
    }
    with connection.cursor() as cursor:
        cursor.execute(DELETE_SOURCES, params)
        if not documents:
            return
        rows = [(each.document_id.bytes, at, each.chunks) for each, at in zip(documents, begins, strict=True)]
        segment = PostingSegment.objects.create(
            user_id=params["user"],
            documents=np.array(rows, SEGMENT_DOCUMENT).tobytes(),
            slots=int(sizes.sum()),
            rows=sum(each.rows for each in documents),
        )
        with cursor.copy(COPY_BLOCKS) as copy:
            copy.set_types(["uuid", "text", "int8", "int4", "bytea", "bytea"])
            for term, size, postings, row_postings in gathered.blocks(segment.slots):
                copy.write_row([params["user"], term, segment.pk, size, postings, row_postings])
        cursor.execute(MARK_MERGED, params | {"segment": segment.pk})
    log.info("The postings of %d documents were merged.", len(documents))


class _Gathered:
    """Postings of several documents and segments, of all terms one after another, with slots of the new segment."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}  # of the terms
        self._postings = [_NONE[:3]]  # term, slot, impact
        self._rows = [_NONE]  # term, slot, impact, row

    def _numbered(self, terms: Iterable[str]) -> NDArray[Any]:
        return np.array([self._numbers.setdefault(term, len(self._numbers)) for term in terms], "i8")

    def add_documents(self, document_ids: Sequence[UUID], begins: NDArray[Any]) -> None:
        params = {"documents": list(document_ids), "every": EVERY_CHUNK}
        rows = _fetch(SELECT_TERMS, params | {"wide": POSTING.itemsize, "wide_row": ROW_POSTING.itemsize})
        if not rows:
            return
        terms, *columns = zip(*rows, strict=True)
        kinds: tuple[Any, ...] = ">i4", ">i4", POSTING, ">i4", ROW_POSTING
        documents, counts, postings, row_counts, row_postings = (
            np.frombuffer(b"".join(column), kind) for column, kind in zip(columns, kinds, strict=True)
        )
        numbers = np.repeat(self._numbered(terms), [len(own) // 4 for own in columns[0]])
        firsts = begins[documents]
        slots = np.repeat(firsts, counts) + postings["ord"]
        self._postings.append((np.repeat(numbers, counts), slots, postings["impact"]))
        slots = np.repeat(firsts, row_counts) + row_postings["ord"]
        self._rows.append((np.repeat(numbers, row_counts), slots, row_postings["impact"], row_postings["row"]))
        # Names have no postings: one in the first slot says which document has the term.
        names = np.repeat(np.char.startswith(np.array(terms), NAME_PREFIX), [len(own) // 4 for own in columns[0]])
        self._postings.append((numbers[names], firsts[names], np.zeros(names.sum(), "i8")))

    def add_segments(self, segments: Sequence[Segment], begins: Mapping[tuple[int | None, bytes], int]) -> None:
        moved = {segment.segment_id: _new_slots(segment, begins) for segment in segments}
        for term, segment_id, size, postings, row_postings in _fetch(SELECT_BLOCKS, [list(moved)]):
            number = self._numbered([term])
            if len(postings) == size * SEGMENT_POSTING.itemsize:
                own = np.frombuffer(postings, SEGMENT_POSTING)
                slots, impacts = moved[segment_id][own["slot"]], own["impact"]
            else:
                dense = np.frombuffer(postings, DENSE_IMPACT)
                slots, impacts = moved[segment_id][dense > 0], dense[dense > 0]
            alive = slots >= 0
            self._postings.append((number.repeat(alive.sum()), slots[alive], impacts[alive]))
            if row_postings:
                own = np.frombuffer(row_postings, SEGMENT_ROW_POSTING)
                slots = moved[segment_id][own["slot"]]
                alive = slots >= 0
                self._rows.append((number.repeat(alive.sum()), slots[alive], own["impact"][alive], own["row"][alive]))

    def blocks(self, slots: int) -> Iterator[tuple[str, int, bytes, bytes | None]]:
        """Yield each term, the number of its postings, these, and those of rows, for a segment of so many slots."""
        postings = _sorted(self._postings, SEGMENT_POSTING, len(self._numbers))
        rows = _sorted(self._rows, SEGMENT_ROW_POSTING, len(self._numbers))
        for term, own, own_rows in zip(self._numbers, postings, rows, strict=True):
            stored = own.tobytes()
            if DENSE_IMPACT.itemsize * slots < len(stored) and own["impact"].min():
                dense = np.zeros(slots, DENSE_IMPACT)
                dense[own["slot"]] = own["impact"]
                stored = dense.tobytes()
            if own.size or own_rows.size:
                yield term, own.size, stored, own_rows.tobytes() or None


_NONE = (np.zeros(0, "i8"), np.zeros(0, "i8"), np.zeros(0, "i8"), np.zeros(0, "i8"))


def _new_slots(segment: Segment, begins: Mapping[tuple[int | None, bytes], int]) -> NDArray[Any]:
    """Return the new slot of each slot of the segment, -1 for those of documents that it has no more.

    A deleted document may have been indexed again, and be among those of another segment, or unmerged.
    """
    own = np.frombuffer(segment.documents, SEGMENT_DOCUMENT)
    slots = np.full(segment.slots, -1, "i8")
    for document_id, begin, end in zip(
        own["document_id"], own["begin"], [*own["begin"][1:], segment.slots], strict=True
    ):
        new = begins.get((segment.segment_id, bytes(document_id).ljust(16, b"\0")))
        if new is not None:
            slots[begin:end] = np.arange(new, new + int(end) - int(begin))
    return slots


def _sorted(gathered: Sequence[tuple[NDArray[Any], ...]], kind: np.dtype[Any], terms: int) -> Iterator[NDArray[Any]]:
    """Yield each term's postings, sorted by slot and row."""
    numbers, slots, impacts, *rows = (np.concatenate(column) for column in zip(*gathered, strict=True))
    order = np.lexsort((*rows, slots, numbers))
    postings = np.empty(order.size, kind)
    for name, column in zip(kind.names or (), (slots, *rows, impacts), strict=True):
        postings[name] = column[order]
    ends = np.cumsum(np.bincount(numbers, minlength=terms))
    yield from np.split(postings, ends[:-1])
