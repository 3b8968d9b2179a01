"""New parses of searchable documents, kept apart until their chunks and vectors replace the old ones."""

import hashlib
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from documents import parse_store
from documents.error_codes import PARSE_HASH_MISMATCH
from documents.models import Document, StagedParse
from documents.parse_store import ParseResult
from documents.parsers.registry import Parser
from jobs.models import UploadJob
from jobs.outcomes import Permanent

REPARSE = "reparse"  # the pipeline of the jobs that make them
COLUMNS = ("parser", "text")  # fields of ParseResult that are not among the details


def store_parse(document: Document, parse: ParseResult, former_text: str) -> None:
    """Write the parse and the text that it replaces, in the caller's transaction, in place of an earlier one."""
    details: dict[str, Any] = {
        each.name: getattr(parse, each.name) for each in fields(parse) if each.init and each.name not in COLUMNS
    }
    columns = {
        "user_id": document.user_id,
        "parser_name": parse.parser.name,
        "parser_version": parse.parser.version,
        "text": parse.text,
        "sha256": parse.sha256,
        "details": details,
        "former_text": former_text,
    }
    StagedParse.objects.update_or_create(pk=document.pk, defaults=columns)


def load_parse(job: UploadJob) -> ParseResult:
    """Return the parse that the job has made. Raises ``Permanent`` when another one has been made since."""
    row = StagedParse.objects.filter(pk=job.document_id, sha256=job.payload.get("staged_sha256")).first()
    if row is None:
        raise Permanent(PARSE_HASH_MISMATCH, "The new parse is not the one that this job has made.")
    details: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in row.details.items()
    }
    return ParseResult(Parser(row.parser_name, row.parser_version), row.text, **details)


def job_text(job: UploadJob) -> tuple[str, Sequence[int]]:
    """Return the text that the job's chunks are cut from, and the offsets of its pages."""
    if job.pipeline != REPARSE:
        return parse_store.read_bytes(job.document).decode(errors="replace"), job.document.page_starts or ()
    parse = load_parse(job)
    return parse.text, parse.page_starts


def replace_parse(document: Document, parse: ParseResult) -> dict[str, Any]:
    """Make a staged parse the document's, in the caller's transaction, which holds the document's lock.

    Returns the fields for its job. The text is stored last, under the document's own path: twins that shared the old
    one have inherited it, and a kill before the commit lets the next attempt store the same again.
    """
    path = document.parsed_path or parse_store.own_path(document)
    if parse.sha256 != document.parsed_sha256:
        path = parse_store.own_path(document)
        parse_store.transfer_shared_parse(document)
        parse_store.put_text(path, parse.content)
    job_fields = parse_store.record_parse(document, parse, path)
    StagedParse.objects.filter(pk=document.pk).delete()
    return {name: value for name, value in job_fields.items() if name != "progress"}


def discard_parse(document: Document) -> None:
    """Delete the document's staged parse, in the caller's transaction.

    Stores the former text again if a worker was killed between storing the new one and its commit.
    """
    row = StagedParse.objects.filter(pk=document.pk).first()
    if row is None:
        return
    former = row.former_text.encode()
    is_former = hashlib.sha256(former).hexdigest() == document.parsed_sha256
    if document.parsed_path and is_former and not parse_store.is_intact(document):
        parse_store.put_text(document.parsed_path, former)
    row.delete()
