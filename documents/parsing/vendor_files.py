"""What the parsing vendor has of a document: how it is named there, found again, and deleted with its document."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from documents.models import Document, ParseRequest
from documents.parsers import registry
from vendors import guard

VENDOR_PREFIX = "llamaparse://"


def vendor_file_key(asked: ParseRequest) -> str:
    """Return the name of the document's file at the vendor's: deleted and uploaded anew, it is another file."""
    return f"{asked.pk}-{asked.round}-{asked.job_id}"


def vendor_paths(document: Document) -> list[str]:
    """Name what the vendor has of a document: job and file, or how to find them when a submit may be under way."""
    return [vendor_path(asked) for asked in ParseRequest.objects.filter(document=document)]


def vendor_path(asked: ParseRequest) -> str:
    return f"{VENDOR_PREFIX}{asked.vendor_job_id or ''}/{asked.file_id or ''}/{asked.pk}:{asked.round}/{asked.job_id}"


def delete_vendor_copy(what: str) -> bool:
    """Delete a copy at the vendor's; return whether nothing of it can be left or come late."""
    vendor_job_id, file_id, parse, job_id = what.removeprefix(VENDOR_PREFIX).split("/")
    with guard.guarded_call(registry.parsing_vendor(), "forget"):
        since = datetime.now(UTC) - timedelta(days=2)
        found = vendor_job_id or registry.vendor_client().find_job({"parse_id": parse, "job_id": job_id}, since)
        file = file_id or registry.vendor_client().find_file(f"{parse.replace(':', '-')}-{job_id}")
        is_gone = registry.vendor_client().delete_parse(vendor_job_id=found, file_id=file)
    return is_gone and bool(vendor_job_id and file_id)
