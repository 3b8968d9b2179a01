"""Of laws: where a code means something else than a tenant's document would mean by it, or is a law's alone."""

from __future__ import annotations

from collections.abc import Mapping

from console.runbook.entry import Remedy

_ANEW = "Put another file under its key and send its message again."
_SPLIT = "Offer the law in parts, each as a law of its own."
_ONCE = f"Retry once. When it comes back, tell a developer, and meanwhile: {_ANEW}"


def _file(meaning: str, remedy: str = _ANEW) -> Remedy:
    return Remedy(meaning, remedy, retry=False)


FAILED: Mapping[str, Remedy] = {
    # The raw file, before it is read.
    "RAW_FILE_MISSING": Remedy("There is no file under the message's key.", "Put it there. Send the message again."),
    "RAW_BUCKET_CLOSED": Remedy(
        "The bucket that the message names is not there, may not be read, or is not in STATUTES_RAW_BUCKETS.",
        "Let the worker's role read it and name it there, or send a right message. Then retry, or put its message"
        " back: `manage.py laws redrive --yes`.",
    ),
    "RAW_FILE_CLOSED": Remedy(
        "The store does not give us this file, but others: archived, encrypted with a key that we may not use, denied,"
        " or not scanned yet.",
        "Restore it, or let the worker's role have it (kms:Decrypt). Then retry, or put its message back:"
        " `manage.py laws redrive --yes`.",
    ),
    "RAW_FILE_INFECTED": _file("The bucket's malware scanner has found a threat in the file."),
    "RAW_FILE_TAGS_DIFFER": _file(
        "The file's tags document_id or version say otherwise than the message.", "Mend the tags or the message."
    ),
    "EMPTY_FILE": _file("The law's file has no bytes."),
    "FILE_TOO_LARGE": _file(
        "The law's file has more than STATUTES_MAX_BYTES.", f"Raise it and send the message again. Or: {_SPLIT}"
    ),
    # Its format.
    "UNKNOWN_FORMAT": _file("The file is neither PDF nor DOCX nor XML, whatever its name says."),
    "OLD_OR_LOCKED_WORD": _file("A Word document of the old kind (.doc), or one with a password.", "Save it as DOCX."),
    "NOT_XML": _file("The XML is not well-formed."),
    "XML_ENTITY_REFUSED": _file(
        "The XML declares or uses entities, which are neither expanded nor fetched.",
        "Ask its publisher for XML without a DOCTYPE of its own, or resolve the entities before it is uploaded.",
    ),
    "XML_TOO_DEEP": _file("The XML's elements are nested deeper than is read."),
    "XML_TOO_LARGE": _file("The XML has more elements than are read.", _SPLIT),
    "NOT_DOCX": _file("The file is a ZIP archive and no Word document."),
    "DOCX_TRUNCATED": _file("The Word document is damaged or cut short."),
    "DOCX_TOO_LARGE": _file("The Word document unpacks to more than is read.", _SPLIT),
    "DOCX_ENCRYPTED": _file("The Word document is encrypted.", "Save it without a password."),
    "NOT_A_PDF": _file("The law's file is not a PDF, whatever its name says."),
    "PDF_TRUNCATED": _file("The law's PDF is cut short."),
    "PDF_MALFORMED": _file("The law's PDF is damaged; two engines could not open it."),
    "PASSWORD_REQUIRED": _file("The law's PDF needs a password.", f"Take the password off. {_ANEW}"),
    "NO_PAGES": _file("The law's PDF has no pages."),
    "TOO_MANY_PAGES": _file("The law's PDF has more pages than MAX_PAGES.", f"Raise it and retry. Or: {_SPLIT}"),
    "NO_TEXT_LAYER": _file("The law's pages are pictures: a scan.", f"Have it read by OCR. {_ANEW}"),
    "NO_TEXT_FOUND": _file("OCR found no text on any page of the law.", f"Look for a better scan. {_ANEW}"),
    # What is read of it.
    "NO_TEXT": _file("The law's file has no text."),
    "NO_ARTICLES": _file("No article and no section was found in the text: it may be no law."),
    "LAW_SCHEMA_INVALID": _file(
        "What was read does not fit schemas/law.schema.json.", "A defect of ours: tell a developer which law it is."
    ),
    "PARSER_OUT_OF_MEMORY": _file("Reading the law needs more memory than a file may have.", _SPLIT),
    "PARSE_TIMEOUT": Remedy("Reading the law did not end in the time that a file may have.", f"Retry once. {_SPLIT}"),
    "PARSER_CRASHED": Remedy("The reader died on this file; nothing else was harmed.", _ONCE),
    "NO_CHUNKS": _file("The law has no text that could be cut into passages."),
    "TEXT_REFUSED": Remedy(
        "The embedding model refuses every passage of the law; of some it would be partial_failed.",
        "Retry once; then set another STATUTES_EMBEDDER.",
    ),
    "LAW_UNKNOWN": Remedy(
        "No row says which version of a law the job is of: rows were deleted by hand.", "Send its message again."
    ),
}
WAITING: Mapping[str, Remedy] = {
    "MORE_URGENT_LAW": Remedy(
        "Laws of a higher priority go first.", "Wait: after 15 minutes the law gives way no more."
    ),
    "LAW_BUSY": Remedy("Another worker is uploading a version of the same law.", "Wait."),
    "LAMBDA_REFUSED": Remedy(
        "STATUTES_LAMBDA is not there, or may not be invoked by us. The artifacts are uploaded.",
        "Mend its name or the role's lambda:InvokeFunction. Jobs go on by themselves.",
    ),
}
# What a consumer waits for, beside what jobs do: it takes no message meanwhile.
CONSUMER_WAITS: Mapping[str, Remedy] = {
    "SQS_NO_QUEUE": Remedy("There is no queue at SQS_QUEUE_URL.", "Make it, or mend the URL or SQS_REGION."),
    "DATABASE_AWAY": Remedy("The database does not answer.", "Look at PostgreSQL. What is held stays held."),
}
TABLES = (FAILED, WAITING, CONSUMER_WAITS)
