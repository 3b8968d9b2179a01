"""PDFs with one form field or annotation each: every kind, with and without an appearance stream."""

from dataclasses import dataclass

from testing.pdfs import build_pdf, content_stream, page_objects, text_operators

RECT = b"/Rect [200 640 400 660]"
LABEL = "Answer of the applicant"  # printed left of the field
NO_VIEW, HIDDEN, INVISIBLE, PRINT = 32, 2, 1, 4
MULTI_LINE, PASSWORD, COMB, RICH_TEXT = 1 << 12, 1 << 13, 1 << 24, 1 << 25
RADIO, PUSH_BUTTON, COMBO, EDITABLE, MULTI_SELECT, READ_ONLY = 1 << 15, 1 << 16, 1 << 17, 1 << 18, 1 << 21, 1
APPEARANCE_FORM = b"/Type /XObject /Subtype /Form /BBox [0 0 200 20] /Resources << /Font << /F1 3 0 R >> >>"
HELVETICA = b"/DA (/F1 10 Tf 0 g)"


@dataclass(frozen=True)
class FormPdf:
    """``shown`` are the strings that a reader displays in the field, ``hidden`` those that nobody sees."""

    kind: str
    content: bytes
    shown: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


def shown_text(text: bytes) -> bytes:
    """Return an appearance stream that shows ``text``."""
    return content_stream(b"/Tx BMC BT /F1 10 Tf 2 5 Td (%s) Tj ET EMC" % text, APPEARANCE_FORM)


def annotated_pdf(
    annotation: bytes, *others: bytes, form: bytes | None = b"", fields: bytes = b"[6 0 R]", text: str = LABEL
) -> bytes:
    """Return one page with the annotation as object 6 and ``others`` from 7 on; ``form`` goes into the AcroForm."""
    kids = b" ".join(b"%d 0 R" % number for number in range(6, 7 + len(others)))
    annotations = [
        number
        for number, body in enumerate((annotation, *others), start=6)
        if b"/Subtype /Widget" in body or b"/Subtype /FreeText" in body or b"/Subtype /Popup" in body
    ]
    kids = b" ".join(b"%d 0 R" % number for number in annotations)
    catalog = b""
    if form is not None:
        catalog = b"/AcroForm << /Fields %s /DR << /Font << /F1 3 0 R >> >> %s %s >>" % (fields, HELVETICA, form)
    contents = content_stream(text_operators(text).replace(b"72 720 Td", b"40 646 Td"))
    objects = page_objects([contents], page=b"/Annots [%s]" % kids, catalog=catalog)
    return build_pdf([*objects, annotation, *others])


def widget(entries: bytes, *, flags: int = PRINT) -> bytes:
    return b"<< /Type /Annot /Subtype /Widget /P 4 0 R /F %d %s %s /T (field) %s >>" % (flags, RECT, HELVETICA, entries)


def free_text(entries: bytes, *, flags: int = PRINT) -> bytes:
    return b"<< /Type /Annot /Subtype /FreeText /P 4 0 R /F %d %s %s %s >>" % (flags, RECT, HELVETICA, entries)


def form_pdfs() -> list[FormPdf]:
    return [*_text_fields(), *_special_text_fields(), *_buttons(), *_choices(), *_hidden(), *_free_texts()]


def _text_fields() -> list[FormPdf]:
    ap = b"/AP << /N 7 0 R >>"
    plain = b"/FT /Tx /V (Walnut77)"
    return [
        FormPdf("text with appearance", annotated_pdf(widget(plain + ap), shown_text(b"Walnut77")), ("Walnut77",)),
        FormPdf("text without appearance", annotated_pdf(widget(plain)), ("Walnut77",)),
        FormPdf("text, NeedAppearances", annotated_pdf(widget(plain), form=b"/NeedAppearances true"), ("Walnut77",)),
        FormPdf(
            "text, stale appearance, NeedAppearances",
            annotated_pdf(widget(plain + ap), shown_text(b"Stale11"), form=b"/NeedAppearances true"),
            ("Walnut77",),
        ),
        FormPdf(
            "text, empty appearance",
            annotated_pdf(widget(plain + ap), content_stream(b"/Tx BMC EMC", APPEARANCE_FORM)),
            ("Walnut77",),
        ),
        FormPdf(
            "text in UTF-16", annotated_pdf(widget(b"/FT /Tx /V <FEFF005A00FC007200690063006800390031>")), ("Zürich91",)
        ),
        FormPdf(
            "text as a stream", annotated_pdf(widget(b"/FT /Tx /V 7 0 R"), content_stream(b"Rowan79")), ("Rowan79",)
        ),
    ]


def _special_text_fields() -> list[FormPdf]:
    plain, ap = b"/FT /Tx /V (Walnut77)", b"/AP << /N 7 0 R >>"
    rich = b"<?xml version='1.0'?><body xmlns='http://www.w3.org/1999/xhtml'><p>Rich <b>Larch78</b></p></body>"
    parent = b"<< /FT /Tx /T (parent) /V (Hazel80) /Kids [6 0 R] >>"
    child = widget(b"/Parent 7 0 R").replace(b"/T (field)", b"")
    return [
        FormPdf(
            "multi-line",
            annotated_pdf(widget(b"/FT /Tx /Ff %d /V (First81\\rSecond82)" % MULTI_LINE)),
            ("First81", "Second82"),
        ),
        FormPdf("comb", annotated_pdf(widget(b"/FT /Tx /Ff %d /MaxLen 8 /V (COMB8311)" % COMB)), ("COMB8311",)),
        FormPdf(
            "comb with appearance",
            annotated_pdf(
                widget(b"/FT /Tx /Ff %d /MaxLen 4 /V (CM83) /AP << /N 7 0 R >>" % COMB),
                content_stream(
                    b"/Tx BMC BT /F1 10 Tf 20 5 Td (C) Tj 50 0 Td (M) Tj 50 0 Td (8) Tj 50 0 Td (3) Tj ET EMC",
                    APPEARANCE_FORM,
                ),
            ),
            ("CM83",),
        ),
        FormPdf(
            "rich text",
            annotated_pdf(widget(b"/FT /Tx /Ff %d /V (Rich Larch78) /RV (%s)" % (RICH_TEXT, rich))),
            ("Larch78",),
        ),
        FormPdf("rich text alone", annotated_pdf(widget(b"/FT /Tx /Ff %d /RV (%s)" % (RICH_TEXT, rich))), ("Larch78",)),
        FormPdf("read-only", annotated_pdf(widget(b"/FT /Tx /Ff %d /V (Fixed84)" % READ_ONLY)), ("Fixed84",)),
        FormPdf("value of the parent", annotated_pdf(child, parent, fields=b"[7 0 R]"), ("Hazel80",)),
        FormPdf("not in the form's list", annotated_pdf(widget(plain), fields=b"[]"), ("Walnut77",)),
        FormPdf(
            "without an AcroForm", annotated_pdf(widget(plain + ap), shown_text(b"Walnut77"), form=None), ("Walnut77",)
        ),
        FormPdf(
            "XFA beside the AcroForm",
            annotated_pdf(widget(plain), content_stream(b"<xdp/>"), form=b"/XFA 7 0 R"),
            ("Walnut77",),
        ),
        FormPdf("page without other text", annotated_pdf(widget(plain), text=""), ("Walnut77",)),
        FormPdf("default value only", annotated_pdf(widget(b"/FT /Tx /DV (Default85)")), (), ("Default85",)),
    ]


def _buttons() -> list[FormPdf]:
    states = b"/AP << /N << /Agreed86 7 0 R /Off 8 0 R >> >>"
    on, off = content_stream(b"0 0 10 10 re f", APPEARANCE_FORM), content_stream(b"", APPEARANCE_FORM)
    radio = b"<< /FT /Btn /Ff %d /T (plan) /V /Gold87 /Kids [6 0 R 7 0 R] >>" % RADIO
    options = [
        widget(
            b"/Parent 8 0 R /AS /%s /AP << /N << /%s 9 0 R /Off 10 0 R >> >>" % (name if is_on else b"Off", name)
        ).replace(b"/T (field)", b"")
        for name, is_on in ((b"Gold87", True), (b"Silver88", False))
    ]
    options[1] = options[1].replace(RECT, b"/Rect [200 600 400 620]")
    return [
        FormPdf(
            "checkbox, on",
            annotated_pdf(widget(b"/FT /Btn /V /Agreed86 /AS /Agreed86" + states), on, off),
            ("Agreed86",),
        ),
        FormPdf(
            "checkbox, off", annotated_pdf(widget(b"/FT /Btn /V /Off /AS /Off" + states), on, off), (), ("Agreed86",)
        ),
        FormPdf(
            "radio buttons", annotated_pdf(*options, radio, on, off, fields=b"[8 0 R]"), ("Gold87",), ("Silver88",)
        ),
        FormPdf(
            "push button",
            annotated_pdf(
                widget(b"/FT /Btn /Ff %d /MK << /CA (Submit89) >> /AP << /N 7 0 R >>" % PUSH_BUTTON),
                shown_text(b"Submit89"),
            ),
            ("Submit89",),
        ),
    ]


def _choices() -> list[FormPdf]:
    options = b"/Opt [(Red01) (Green02) (Blue03)]"
    pairs = b"/Opt [[(r) (Red01)] [(g) (Green02)] [(b) (Blue03)]]"
    return [
        FormPdf("list, one", annotated_pdf(widget(b"/FT /Ch /V (Green02) /I [1]" + options)), ("Green02",)),
        FormPdf(
            "list, several",
            annotated_pdf(widget(b"/FT /Ch /Ff %d /V [(Red01) (Blue03)] /I [0 2]" % MULTI_SELECT + options)),
            ("Red01", "Blue03"),
        ),
        FormPdf("list, by export value", annotated_pdf(widget(b"/FT /Ch /V (g)" + pairs)), ("Green02",)),
        FormPdf(
            "combo box",
            annotated_pdf(widget(b"/FT /Ch /Ff %d /V (Green02)" % COMBO + options)),
            ("Green02",),
            ("Red01",),
        ),
        FormPdf(
            "combo box, by export value", annotated_pdf(widget(b"/FT /Ch /Ff %d /V (g)" % COMBO + pairs)), ("Green02",)
        ),
        FormPdf(
            "combo box, text of its own",
            annotated_pdf(widget(b"/FT /Ch /Ff %d /V (Mauve04)" % (COMBO | EDITABLE) + options)),
            ("Mauve04",),
            ("Red01",),
        ),
    ]


def _hidden() -> list[FormPdf]:
    plain = b"/FT /Tx /V (Secret05) /AP << /N 7 0 R >>"
    shown = shown_text(b"Secret05")
    fields = [
        FormPdf(kind, annotated_pdf(widget(plain, flags=flags), shown), (), ("Secret05",))
        for kind, flags in (("hidden", HIDDEN), ("no view", NO_VIEW), ("hidden, printed", HIDDEN | PRINT))
    ]
    notes = [
        FormPdf(
            f"FreeText, {kind}",
            annotated_pdf(free_text(b"/Contents (Secret05) /AP << /N 7 0 R >>", flags=flags), shown, form=None),
            (),
            ("Secret05",),
        )
        for kind, flags in (("hidden", HIDDEN), ("no view", NO_VIEW))
    ]
    password = widget(b"/FT /Tx /Ff %d /V (Secret05)" % PASSWORD)
    return [*fields, *notes, FormPdf("password", annotated_pdf(password), (), ("Secret05",))]


def _free_texts() -> list[FormPdf]:
    note = b"/Contents (Note06 by hand)"
    rich = b"<?xml version='1.0'?><body xmlns='http://www.w3.org/1999/xhtml'><p>Rich <b>Note07</b></p></body>"
    ap = b"/AP << /N 7 0 R >>"
    return [
        FormPdf(
            "FreeText with appearance",
            annotated_pdf(free_text(note + ap), shown_text(b"Note06 by hand"), form=None),
            ("Note06 by hand",),
        ),
        FormPdf("FreeText without appearance", annotated_pdf(free_text(note), form=None), ("Note06 by hand",)),
        FormPdf(
            "FreeText, appearance alone", annotated_pdf(free_text(ap), shown_text(b"Note08"), form=None), ("Note08",)
        ),
        FormPdf(
            "FreeText, callout",
            annotated_pdf(free_text(note + b"/IT /FreeTextCallout /CL [100 600 150 640 200 650]"), form=None),
            ("Note06 by hand",),
        ),
        FormPdf(
            "FreeText, typewriter",
            annotated_pdf(free_text(note + b"/IT /FreeTextTypeWriter"), form=None),
            ("Note06 by hand",),
        ),
        FormPdf("FreeText, rich contents alone", annotated_pdf(free_text(b"/RC (%s)" % rich), form=None), ("Note07",)),
        FormPdf(
            "FreeText, page without other text",
            annotated_pdf(free_text(note), form=None, text=""),
            ("Note06 by hand",),
        ),
    ]
