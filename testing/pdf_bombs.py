"""PDF bombs: small files that need far too much memory or time, one function a kind."""

import zlib
from collections.abc import Callable

from testing.pdfs import FONT, build_pdf, content_stream, page_objects, text_operators

MB = 1 << 20
ADLER = 65521  # the modulus of Adler-32
PAGE = (
    b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> %s >> >>"
)
CATALOG = b"<< /Type /Catalog /Pages 2 0 R >>"
ONE_KID = b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>"


def one_page(contents: bytes, *, resources: bytes = b"", more: tuple[bytes, ...] = ()) -> bytes:
    """``more`` are the objects from number 6 on."""
    return build_pdf([CATALOG, ONE_KID, PAGE % resources, contents, FONT, *more])


def deflated(size: int, layers: int, unit: bytes = b" ") -> bytes:
    """``size`` bytes of ``unit``, deflated ``layers`` times; compresses only the first megabyte of them."""
    packer, block = zlib.compressobj(9, zlib.DEFLATED, -15), unit * (MB // len(unit))
    packed = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)  # a block that can be repeated as it is
    out = b"\x78\xda" + packed * (size // MB) + b"\x03\x00" + repeated_adler32(block, size // MB).to_bytes(4, "big")
    for _ in range(layers - 1):
        out = zlib.compress(out, 9)
    return out


def repeated_adler32(block: bytes, times: int) -> int:
    """Return the checksum of ``block * times`` from that of one block: reading gigabytes for it takes a second."""
    high, low = divmod(zlib.adler32(block), 1 << 16)
    rise = low - 1  # by the bytes of a block; the high half adds the low one up after each byte
    total = times * high + len(block) * rise * (times * (times - 1) // 2)
    return total % ADLER << 16 | (1 + times * rise) % ADLER


def flate_once() -> bytes:
    return one_page(content_stream(deflated(1024 * MB, 1), b"/Filter /FlateDecode"))


def flate_chained() -> bytes:
    return one_page(content_stream(deflated(2048 * MB, 3), b"/Filter [/FlateDecode /FlateDecode /FlateDecode]"))


def lzw() -> bytes:
    """LZW grows quadratically until its table is full; deflating it on top makes the rest."""
    codes = [256, *([32, *range(258, 4090), 256] * 60)]
    bits, buffer, out = 0, 0, bytearray()
    width, table = 9, 258
    for code in codes:
        buffer, bits = buffer << width | code, bits + width
        while bits >= 8:
            bits -= 8
            out.append(buffer >> bits & 255)
        buffer &= (1 << bits) - 1
        table = 258 if code == 256 else table + 1
        width = max(9, min(12, (table + 1).bit_length()))
    return one_page(content_stream(bytes(out), b"/Filter /LZWDecode"))


def run_length() -> bytes:
    runs = deflated(64 * MB, 2, b"\x81 ")  # 128 spaces for every two bytes
    return one_page(content_stream(runs, b"/Filter [/FlateDecode /FlateDecode /RunLengthDecode]"))


def ascii_hex() -> bytes:
    hexed = deflated(1536 * MB, 2, b"20")
    return one_page(content_stream(hexed, b"/Filter [/FlateDecode /FlateDecode /ASCIIHexDecode]"))


def many_filters() -> bytes:
    return one_page(content_stream(b"20" * 1000, b"/Filter [%s]" % (b"/ASCIIHexDecode " * 100_000)))


def object_stream() -> bytes:
    packed = content_stream(deflated(1024 * MB, 1), b"/Type /ObjStm /N 1000000 /First 500000000 /Filter /FlateDecode")
    table = b"\0\0\0\0\0\xff" + b"\x02\0\0\0\x03\0" + b"\x02\0\0\0\x03\1" + b"\1" + (9).to_bytes(4, "big") + b"\0"
    head = b"%PDF-1.7\n3 0 obj\n" + packed + b"\nendobj\n"
    entries = b"/Type /XRef /Size 4 /W [1 4 1] /Root 1 0 R"
    return head + b"4 0 obj\n%s\nendobj\nstartxref\n%d\n%%%%EOF\n" % (content_stream(table, entries), len(head))


def xref_stream() -> bytes:
    entries = b"/Type /XRef /Size 2000000000 /W [1 8 8] /Index [0 2000000000] /Root 1 0 R /Filter /FlateDecode"
    head = b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n"
    table = content_stream(deflated(1024 * MB, 1, b"\1"), entries)
    return head + b"4 0 obj\n%s\nendobj\nstartxref\n%d\n%%%%EOF\n" % (table, len(head))


def xref_loop() -> bytes:
    whole = one_page(content_stream(text_operators("round and round")))
    start = whole.rindex(b"xref\n0 ")
    return whole.replace(b"/Root 1 0 R", b"/Root 1 0 R /Prev %d" % start)


def pixel_flood() -> bytes:
    """Text beside an image of 40 gigapixels, so that no engine may leave the page out as a mere scan."""
    image = content_stream(
        deflated(1024 * MB, 1, b"\0"),
        b"/Type /XObject /Subtype /Image /Width 200000 /Height 200000 /BitsPerComponent 8 /ColorSpace /DeviceRGB"
        b" /Filter /FlateDecode",
    )
    return one_page(
        content_stream(text_operators("beside the flood") + b" q 600 0 0 700 0 0 cm /I Do Q"),
        resources=b"/XObject << /I 6 0 R >>",
        more=(image,),
    )


def scanned_flood() -> bytes:
    image = content_stream(
        deflated(1024 * MB, 1, b"\0"),
        b"/Type /XObject /Subtype /Image /Width 30000 /Height 30000 /BitsPerComponent 8 /ColorSpace /DeviceRGB"
        b" /Filter /FlateDecode",
    )
    return one_page(
        content_stream(b"q 600 0 0 700 0 0 cm /I Do Q"), resources=b"/XObject << /I 6 0 R >>", more=(image,)
    )


def deep_tree() -> bytes:
    depth = 50_000
    tree = [b"<< /Type /Pages /Kids [%d 0 R] /Count 1 >>" % (number + 3) for number in range(depth)]
    return build_pdf([CATALOG, *tree, b"<< /Type /Page /MediaBox [0 0 612 792] >>"])


def cyclic_tree() -> bytes:
    return build_pdf([CATALOG, b"<< /Type /Pages /Kids [%s] /Count 100000 >>" % (b"2 0 R " * 1000)])


def fanned_tree() -> bytes:
    """Each node lists the next ten times over: 10 to the 12th pages in a kilobyte."""
    nodes = [b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b"%d 0 R " % n * 10, 10 ** (15 - n)) for n in range(3, 15)]
    return build_pdf([CATALOG, *nodes, b"<< /Type /Page /MediaBox [0 0 612 792] >>"])


def absurd_count() -> bytes:
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] >>"
    return build_pdf([CATALOG, b"<< /Type /Pages /Kids [3 0 R] /Count 1000000 >>", page])


def huge_media_box() -> bytes:
    return build_pdf(page_objects([content_stream(text_operators("vast"))])).replace(
        b"[0 0 612 792]", b"[-1e30 -1e30 1e30 1e30]"
    )


def nested_forms() -> bytes:
    """Sixteen forms, each drawing the next ten times over."""
    calls = b"/X Do " * 10
    forms = [
        content_stream(
            calls, b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X %d 0 R >> >>" % n
        )
        for n in range(7, 22)
    ]
    last = content_stream(
        text_operators("boom"), b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /Font << /F1 5 0 R >> >>"
    )
    return one_page(content_stream(calls), resources=b"/XObject << /X 6 0 R >>", more=(*forms, last))


def own_form() -> bytes:
    form = content_stream(
        b"/X Do /X Do", b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X 6 0 R >> >>"
    )
    return one_page(content_stream(b"/X Do"), resources=b"/XObject << /X 6 0 R >>", more=(form,))


def giant_cmap() -> bytes:
    """Return a PDF with a million ranges that each map every code."""
    ranges = b"begincmap 1 begincodespacerange <0000> <ffff> endcodespacerange 1000000 beginbfrange\n"
    cmap = zlib.compress(ranges + b"<0000> <ffff> <0000>\n" * 1_000_000 + b"endbfrange endcmap", 9)
    font = (
        b"<< /Type /Font /Subtype /Type0 /BaseFont /A /Encoding /Identity-H"
        b" /ToUnicode 7 0 R /DescendantFonts [8 0 R] >>"
    )
    descendant = (
        b"<< /Type /Font /Subtype /CIDFontType2 /BaseFont /A"
        b" /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> >>"
    )
    contents = content_stream(b"BT /F2 12 Tf 72 720 Td <00410042> Tj ET")
    more = (font, content_stream(cmap, b"/Filter /FlateDecode"), descendant)
    return one_page(contents, more=more).replace(b"/F1 5 0 R", b"/F2 6 0 R")


def many_operators() -> bytes:
    return one_page(content_stream(deflated(200 * MB, 2, b"0 0 m 9 9 l S q\n"), b"/Filter [/FlateDecode /FlateDecode]"))


def much_text() -> bytes:
    shown = b"BT /F1 1 Tf 1 TL 72 720 Td " + b"(aaaa bbb) Tj T* " * 2_000_000 + b"ET"
    return one_page(content_stream(zlib.compress(shown, 9), b"/Filter /FlateDecode"))


def deep_arrays() -> bytes:
    return one_page(content_stream(text_operators("deep")), more=(b"[" * 1_000_000 + b"]" * 1_000_000,))


def deep_operands() -> bytes:
    return one_page(content_stream(zlib.compress(b"[" * 20_000_000), b"/Filter /FlateDecode"))


KINDS: tuple[Callable[[], bytes], ...] = (
    flate_once, flate_chained, lzw, run_length, ascii_hex, many_filters, object_stream, xref_stream, xref_loop,
    pixel_flood, scanned_flood, deep_tree, cyclic_tree, fanned_tree, absurd_count, huge_media_box, nested_forms,
    own_form, giant_cmap, many_operators, much_text, deep_arrays, deep_operands,
)  # fmt: skip
