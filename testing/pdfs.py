"""Minimal hand-written PDFs: text, pages, streams, encryption."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

PADDING = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")
FILE_ID = b"0123456789abcdef"
FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
FIRST_PAGE = 4  # objects 1, 2 and 3 are the catalog, the page tree and the font

SavePdf = Callable[[bytes], Path]  # puts bytes into a file


def build_pdf(objects: Sequence[bytes], *, trailer: bytes = b"") -> bytes:
    """Return a whole file; the first object is the catalog and has number 1."""
    out, offsets = bytearray(b"%PDF-1.7\n"), []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer\n<< /Size %d /Root 1 0 R %s >>\n" % (len(objects) + 1, trailer)
    return bytes(out + b"startxref\n%d\n%%%%EOF\n" % start)


def content_stream(content: bytes, entries: bytes = b"") -> bytes:
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(content), entries, content)


def text_operators(text: str) -> bytes:
    """Return the operators of a content stream that shows each line of ``text``, which must be Latin."""
    escaped = text.encode("cp1252").replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")
    lines = b" T* ".join(b"(%s) Tj" % line for line in escaped.split(b"\n"))
    return b"BT /F1 12 Tf 14 TL 72 720 Td %s ET" % lines


def text_pdf(*texts: str) -> bytes:
    """One page for each text; an empty text makes a blank page."""
    return build_pdf(page_objects([content_stream(text_operators(text) if text else b"") for text in texts]))


def page_objects(contents: Sequence[bytes], *, page: bytes = b"", catalog: bytes = b"") -> list[bytes]:
    """Catalog, page tree, font, then a page and its contents by turns; the extra entries go where they are named."""
    kids = b" ".join(b"%d 0 R" % (FIRST_PAGE + 2 * number) for number in range(len(contents)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R %s >>" % catalog,
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(contents)),
        FONT,
    ]
    for number, content in enumerate(contents):
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R %s"
            b" /Resources << /Font << /F1 3 0 R >> >> >>" % (FIRST_PAGE + 2 * number + 1, page)
        )
        objects.append(content)
    return objects


def encrypted_pdf(text: str, *, user_password: bytes = b"") -> bytes:
    """RC4, 40 bits (revision 2): opens without a password when ``user_password`` is empty, though it is encrypted."""
    owner = _rc4(hashlib.md5(_padded(b"owner")).digest()[:5], _padded(user_password))
    seed = _padded(user_password) + owner + (-4).to_bytes(4, "little", signed=True) + FILE_ID
    key = hashlib.md5(seed).digest()[:5]
    contents_number = FIRST_PAGE + 1
    salted = hashlib.md5(key + contents_number.to_bytes(3, "little") + b"\0\0").digest()[:10]
    encrypt = b"/Encrypt << /Filter /Standard /V 1 /R 2 /Length 40 /P -4 /O <%s> /U <%s> >> /ID [<%s> <%s>]" % (
        owner.hex().encode(),
        _rc4(key, PADDING).hex().encode(),
        FILE_ID.hex().encode(),
        FILE_ID.hex().encode(),
    )
    return build_pdf(page_objects([content_stream(_rc4(salted, text_operators(text)))]), trailer=encrypt)


def _padded(password: bytes) -> bytes:
    return (password + PADDING)[:32]


def _rc4(key: bytes, data: bytes) -> bytes:
    box, j = list(range(256)), 0
    for i in range(256):
        j = (j + box[i] + key[i % len(key)]) % 256
        box[i], box[j] = box[j], box[i]
    out, i, j = bytearray(), 0, 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + box[i]) % 256
        box[i], box[j] = box[j], box[i]
        out.append(byte ^ box[(box[i] + box[j]) % 256])
    return bytes(out)
