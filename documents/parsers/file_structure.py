"""Structure of PDF files: truncation, and junk before the header or after the end."""

import re

TAIL = 1024  # bytes from the end within which readers want the end-of-file mark (PDF 1.7, appendix H, note 18)
PADDED, PADDING = 64 * 1024, b"\0\t\n\r "  # mail and backups fill files up
OBJECT = re.compile(rb"(?<!\d)(\d{1,10})\s{1,8}\d{1,5}\s{1,8}obj\b")
REFERENCE = re.compile(rb"(?<!\d)(\d{1,10})\s{1,8}\d{1,5}\s{1,8}R\b")
NEXT_PART = re.compile(rb"(?<!\d)\d{1,10}\s{1,8}\d{1,5}\s{1,8}obj\b|\bxref\s{0,4}(?:\d|\Z)")
# Last keyword of a cross-reference section, and what must follow it.
SECTIONS = {b"startxref": b"", b"trailer": b">>", b"/XRefStm": b">>", b"/XRef": b"endstream"}
START = re.compile(rb"startxref\s{1,8}(\d{1,10})")
SECTION = re.compile(rb"xref\b|\d{1,10}\s{1,8}\d{1,5}\s{1,8}obj\b")
FIRST_SECTION = re.compile(rb"startxref\s{1,8}0\s")  # of a linearized file, long before its end


def is_truncated(data: bytes) -> bool:
    """Tell whether bytes are missing at the end of a PDF. A missing end-of-file mark and junk after it do not matter.

    The last thing in a whole file is a cross-reference section. Objects after it belong to an update that was cut, or
    to the part of a linearized file whose section comes at the end.
    """
    start, last = max((data.rfind(mark), mark) for mark in SECTIONS)
    if b"/Linearized" in data[:TAIL] and FIRST_SECTION.match(data, max(0, start)):
        return True
    if _has_end_mark(data) and not NEXT_PART.search(data, data.rfind(b"%%EOF")):
        return False
    if start < 0:
        return _are_objects_missing(data)
    return bool(NEXT_PART.search(data, start)) or data.find(SECTIONS[last], start) < 0 or _is_in_stream(data, start)


def without_junk(data: bytes) -> bytes | None:
    """Return a whole file without what is before its header and after its end, None if there is nothing.

    The engines then use its cross-reference section; else they search the file for objects.
    """
    header, start = max(0, data.find(b"%PDF-", 0, TAIL)), data.rfind(b"startxref")
    match = START.match(data, max(0, start))
    if match is None:
        section = data.rfind(b"\nxref")
        is_only_one = 0 <= section == data.find(b"\nxref")
        return None if not is_only_one else data[header:] + b"\nstartxref\n%d\n%%%%EOF\n" % (section + 1 - header)
    if not SECTION.match(data, header + int(match[1])):
        header = 0  # offsets count from the file's first byte, or nothing is where it should be
    if data.find(b"trailer", match.end()) >= 0 or NEXT_PART.search(data, match.end()):
        return None
    if header == 0 and _has_end_mark(data):
        return None
    return data[header : match.end()] + b"\n%%EOF\n"


def _has_end_mark(data: bytes) -> bool:
    return b"%%EOF" in data[-PADDED:].rstrip(PADDING)[-TAIL:]


def _is_in_stream(data: bytes, end: int) -> bool:
    """Tell whether the last stream before ``end`` is open there: what stands at ``end`` is part of its data."""
    while (end := data.rfind(b"stream", 0, end)) >= 0:
        if data[end + 6 : end + 7] in (b"\r", b"\n"):
            return data[end - 3 : end] != b"end"
    return False


def _are_objects_missing(data: bytes) -> bool:
    """Tell whether a file without a complete cross-reference section, which engines rebuild, lacks an object."""
    end = data.rfind(b"endobj")
    if end < 0 or data.find(b"/Catalog") < 0 or data[end + len(b"endobj") :].strip(PADDING):
        return True
    return not set(REFERENCE.findall(data)) <= set(OBJECT.findall(data))
