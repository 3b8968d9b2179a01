"""Error codes of unreadable statute files. All are fatal (spec 004 §5.1): no retry can succeed."""

from jobs.outcomes import Permanent, undeclared

#  code                   detail in the log and the archived record; repeats nothing of the file
UNREADABLE = {
    "EMPTY_FILE": "The file is empty.",
    "FILE_TOO_LARGE": "The file is larger than may be read (STATUTES_MAX_BYTES).",
    "UNKNOWN_FORMAT": "The file is neither PDF nor DOCX nor XML.",
    "OLD_OR_LOCKED_WORD": "The file is a Word document of the old kind (.doc) or one that needs a password.",
    "NOT_XML": "The file is not well-formed XML.",
    "XML_ENTITY_REFUSED": "The file declares or uses entities: these are neither expanded nor fetched.",
    "XML_TOO_DEEP": "The file's elements are nested too deeply.",
    "XML_TOO_LARGE": "The file has more elements than may be read.",
    "NOT_DOCX": "The file is not a Word document (DOCX).",
    "DOCX_TRUNCATED": "The Word document is damaged or cut short.",
    "DOCX_TOO_LARGE": "The Word document unpacks to more than may be read.",
    "DOCX_ENCRYPTED": "The Word document is encrypted.",
    "NO_ARTICLES": "No article or section was found in the text.",
    "NO_TEXT": "The file has no text.",
    "LAW_SCHEMA_INVALID": "What was read does not fit schemas/law.schema.json.",
}
#  How the sandboxed reader ended, in the codes of ``documents.parsers.errors``, worded for any format.
SANDBOX_FAILURES = {
    "PARSER_OUT_OF_MEMORY": "The file needs more memory than reading is allowed.",
    "PARSE_TIMEOUT": "The file needs more time than reading is allowed.",
    "PARSER_CRASHED": "The reader stopped unexpectedly on this file.",
}


class Unreadable(Permanent):
    """``code`` is in ``UNREADABLE``."""

    def __init__(self, code: str) -> None:
        super().__init__(undeclared(code), UNREADABLE[code])
