"""From a message's key to a law that is found: the handlers of the pipeline ``statute`` (spec 004 §4)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Now

from documents import parsers, services, storage
from documents.ids import parse_id
from documents.models import Document, ScannedPage
from documents.parsers import ocr
from documents.parsers.registry import Parser
from documents.parsing import ocr_pages, parse_store
from documents.parsing.parse_store import ParseResult
from jobs import failpoints
from jobs.claims import Claim, ClaimLost
from jobs.outcomes import Advance, Outcome, Permanent, Postponed, Retryable, Wait
from jobs.states import Stage
from statutes import ids, readers, reprocessing
from statutes.chunking import articles
from statutes.intake import PIPELINE
from statutes.models import Law, LawVersion
from statutes.readers import Format
from statutes.readers.file_type import sniff
from statutes.s3 import raw_files
from statutes.sqs.messages import PRIORITIES
from statutes.structure import json_schema, markdown, model

MIMES = {
    "pdf": "application/pdf",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xml": "application/xml",
}
SCANS = f"{readers.VERSION}.ocr-{ocr.VERSION}"  # whose scanned pages are taken over
GIVING_WAY_SECONDS = 5.0
AGED_SECONDS = 900.0  # whoever has waited so long gives way no more: nobody waits for ever

# From the versions that are begun and not read, by ix_law_versions_urgent, to each one's job: all laws are of one user,
# whose jobs take 150 ms to look through at 100,000 laws. What failed and was taken out has no job. The inner LIMIT
# keeps the planner from joining.
_URGENT = """EXISTS (
        SELECT FROM law_versions v
        WHERE v.status = '{status}' AND v.job_id IS NOT NULL AND v.priority = ANY(%(before)s) AND (
            SELECT j.job_id FROM upload_jobs j
            WHERE j.document_id = v.document_id AND j.pipeline = %(pipeline)s AND j.stage = %(first)s
              AND j.state = 'queued' AND (j.run_after IS NULL OR j.wait_reason = 'MORE_URGENT_LAW')
            LIMIT 1) IS NOT NULL)"""
# What failed, of which staff may have had one tried again, may be much: it is looked through where nothing else waits.
_MORE_URGENT = f"""
    SELECT clock_timestamp() < %(since)s + make_interval(secs => %(aged)s) AND (
        {_URGENT.format(status="processing")} OR {_URGENT.format(status="failed")})"""


def receive(claim: Claim) -> Outcome:
    """queued: let more urgent laws go first; then look at the file, fetch it, and keep what was fetched as our own."""
    version, document = _version(claim), claim.job.document
    if reprocessing.is_found(version):
        return reprocessing.leave(claim)
    if _gives_way(claim, version):
        return Wait(GIVING_WAY_SECONDS, "MORE_URGENT_LAW")
    head = raw_files.look(version)
    with raw_files.fetched(version, head) as fetched:
        found = sniff(fetched.path, most=settings.STATUTES_MAX_BYTES)
        pages = parsers.inspect_pdf(fetched.path).pages if found == "pdf" else 1
        with claim.transaction():
            pass  # a version that was taken out meanwhile gets no new object
        bucket, name = storage.locate(document.raw_path)
        bucket.put_file(fetched.path, name)
    failpoints.failpoint("queued:stored")
    try:
        with claim.transaction():
            Document.objects.filter(pk=document.pk).update(
                bytes_len=fetched.length,
                file_sha256=ids.file_sha256(document.pk, fetched.sha256),
                mime=MIMES[found],
                pages=pages,
                stored_at=Now(),
                updated_at=Now(),
            )
            if fetched.sha256 != version.raw_sha256:
                ScannedPage.objects.filter(document_id=document.pk).delete()  # what was read of another file
                _noted(version, reprocessed=0)  # and what the model refused of it was another text
            _noted(version, raw_sha256=fetched.sha256, format=found)
            return claim.advance(event={"format": found, "bytes": fetched.length}, payload={"format": found})
    except ClaimLost:
        services.delete_pending_objects(document.pk)  # nothing, unless the version was taken out meanwhile
        raise


def _gives_way(claim: Claim, version: LawVersion) -> bool:
    """Tell whether a more urgent law waits to be begun: within one user the machine serves the oldest first."""
    if version.priority == PRIORITIES[0]:
        return False
    with connection.cursor() as cursor:
        cursor.execute(
            _MORE_URGENT,
            {
                "pipeline": PIPELINE,
                "first": Stage.QUEUED.value,
                "before": list(PRIORITIES[: PRIORITIES.index(version.priority)]),
                "since": claim.job.created_at,
                "aged": AGED_SECONDS,
            },
        )
        return bool(cursor.fetchone()[0])


def choose_reader(claim: Claim) -> Outcome:
    """job_validated: the reader is the one of the file's format."""
    reader = _reader(_version(claim))
    plan = {
        "parser_name": reader.name,
        "parser_version": reader.version,
        "parse_id": str(parse_id(claim.job.document_id, reader.name, reader.version)),
    }
    return Advance("PARSE_REQUESTED", fields={"payload": plan}, payload={"parser": reader.name})


def _reader(version: LawVersion) -> Parser:
    return Parser(f"law-{version.format}", readers.VERSION)


def normalize(claim: Claim) -> Outcome:
    """parsing: read the file, in a capped child, to canonical JSON; its rendered text is the document's parse."""
    document, version = claim.job.document, _version(claim)
    if reprocessing.is_found(version):
        return reprocessing.leave(claim)
    bucket, name = storage.locate(document.raw_path)
    scan = _Scan(claim)
    with bucket.local_file(name) as path:
        law = readers.read(path, format=cast(Format, version.format), scan=scan)
    told = law.as_json(law_id=version.law_id, version=version.version, source=_source(version))
    rendered = markdown.render(law, pages=(document.pages or 1) if version.format == "pdf" else 0)
    parse = ParseResult(_reader(version), rendered.text, rendered.page_starts, scan.failed)
    return reprocessing.go_home(claim, version, parse, told) or _store(claim, version, law, told, parse)


class _Scan:
    """Reads scanned pages slice by slice: what a lost worker has read is not read again."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self.failed: tuple[int, ...] = ()

    def __call__(self, path: Path, blank: Sequence[int]) -> dict[int, str]:
        pages = ["" if number in blank else "-" for number in range(1, max(blank) + 1)]
        read = ocr_pages.recognize_blank_pages(self._claim, path, pages, SCANS)
        if isinstance(read, Wait):
            raise Postponed(read.seconds, read.reason)
        self.failed = read.failed
        return {number: read.pages[number - 1] for number in blank}


def _source(version: LawVersion) -> dict[str, object]:
    return {"key": version.raw_key, "format": version.format, "sha256": version.raw_sha256}


def _store(claim: Claim, version: LawVersion, law: model.Law, told: dict[str, object], parse: ParseResult) -> Outcome:
    document = claim.job.document
    with claim.transaction():
        pass
    path = parse_store.write_parse(document, parse)
    failpoints.failpoint("parsing:stored")
    try:
        with transaction.atomic():
            if not parse_store.lock_shared_parse(document, path):
                raise Retryable(
                    "PARSE_TWIN_GONE", "The document that had the same text was deleted; it is stored anew."
                )
            with claim.transaction():
                fields = parse_store.record_parse(document, parse, path)
                Document.objects.filter(pk=document.pk).update(filename=law.title or version.law_id)
                _noted(version, canonical=told, status=Law.Status.NORMALIZED)
                Law.objects.filter(pk=version.law_id, document_id=None, version=version.version).update(
                    status=Law.Status.NORMALIZED, title=law.title, language=law.language, updated_at=Now()
                )
                moved = claim.advance(code="PARSE_STORED", event={"bytes": len(parse.content)}, **fields)
    except ClaimLost:
        services.delete_pending_objects(document.pk)
        raise
    parse_store.delete_own_parse(document, path)
    return moved


def check(claim: Claim) -> Outcome:
    """parsed: prove that the law fits its published schema, and that the stored text is the one that was recorded."""
    document, version = claim.job.document, _version(claim)
    json_schema.check(version.canonical)
    content = parse_store.read_bytes(document)
    if hashlib.sha256(content).hexdigest() != document.parsed_sha256:
        raise Permanent("PARSE_HASH_MISMATCH", "The parsed text was changed in the store; retrying parses it again.")
    return Advance()


def plan_chunks(claim: Claim) -> Outcome:
    """parse_validated: laws are cut by article."""
    chunker = articles.CHUNKER
    plan = {"chunker_name": chunker.name, "chunker_version": chunker.version}
    return Advance(fields={"chunks_version": chunker.label, "payload": plan})


def _version(claim: Claim) -> LawVersion:
    found = LawVersion.objects.filter(pk=claim.job.document_id).defer("canonical").first()  # megabytes
    if found is None:
        raise Permanent("LAW_UNKNOWN", "Nothing is noted of this version of a law.")
    return found


def _noted(version: LawVersion, **columns: object) -> None:
    LawVersion.objects.filter(pk=version.pk).update(**columns, updated_at=Now())
