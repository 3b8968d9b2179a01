"""File format by its first bytes; names and declared types are not trusted."""

import re
from pathlib import Path
from typing import Literal, get_args

from documents.parsers.pdf_parser import HEADER, HEADER_WITHIN
from jobs.outcomes import Permanent
from statutes.error_codes import OLD_OR_LOCKED_WORD, UNKNOWN_FORMAT, statute_failure

Format = Literal["pdf", "docx", "xml"]
FORMATS: tuple[Format, ...] = get_args(Format)

_ZIP, _OLE = b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_XML = re.compile(r"\s*<(?:\?xml\b|!--|!DOCTYPE\s+(?!html\b)|(?!html\b)[\w:.-]+[\s/>])", re.I)


def sniff_format(path: Path, *, most: int) -> Format:
    """Return the format of a file of at most so many bytes, valid or not; raise ``Permanent`` for any other file."""
    size = path.stat().st_size
    if size == 0:
        raise statute_failure("EMPTY_FILE")
    if size > most:
        raise statute_failure("FILE_TOO_LARGE")
    with path.open("rb") as file:
        return detect_format(file.read(HEADER_WITHIN))


def detect_format(start: bytes) -> Format:
    if start.startswith(_ZIP):
        return "docx"
    if start.startswith(_OLE):
        raise Permanent(OLD_OR_LOCKED_WORD)
    encoding = next((encoding for bom, encoding in _BOMS if start.startswith(bom)), "latin-1")
    if encoding == "latin-1" and start[:2] in (b"<\0", b"\0<"):
        encoding = "utf-16-le" if start[0] else "utf-16-be"
    if _XML.match(start.decode(encoding, "replace").lstrip("\ufeff")):
        return "xml"
    if HEADER in start:
        return "pdf"
    raise Permanent(UNKNOWN_FORMAT)
