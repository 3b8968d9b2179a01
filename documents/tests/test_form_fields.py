"""Values of form fields and FreeText annotations are in the parsed text."""

import pypdfium2
import pytest

from documents.parsers import form_fields, pdf_parser
from documents.parsers.form_fields import FieldValue
from testing.form_pdfs import LABEL, PRINT, RECT, FormPdf, annotated_pdf, form_pdfs, free_text, widget
from testing.pdfs import SavePdf, content_stream

KINDS = pytest.mark.parametrize("form", form_pdfs(), ids=lambda form: form.kind)


def read_values(content: bytes) -> list[FieldValue]:
    document = pypdfium2.PdfDocument(content)
    page = document[0]
    return form_fields.read_values(document, 0, page, page.get_textpage())


@KINDS
def test_what_a_reader_displays_is_parsed(form: FormPdf, save_pdf: SavePdf) -> None:
    (page,) = pdf_parser.parse_pdf(save_pdf(form.content), pages=1).markdown

    assert [text for text in form.shown if text not in page] == []
    assert [text for text in form.hidden if text in page] == []


@KINDS
def test_values_do_not_depend_on_the_parsing_engine(form: FormPdf) -> None:
    values = " ".join(value.text for value in read_values(form.content))

    assert [text for text in form.shown if text not in values] == []
    assert [text for text in form.hidden if text in values] == []


def test_a_value_is_named_by_its_tooltip_or_by_the_text_before_it() -> None:
    plain = b"/FT /Tx /V (Walnut77)"

    (printed,) = read_values(annotated_pdf(widget(plain)))
    (tooltip,) = read_values(annotated_pdf(widget(plain + b" /TU (Home town)")))
    (note,) = read_values(annotated_pdf(free_text(b"/Contents (Note)"), form=None))

    assert (printed.label, tooltip.label, note.label) == (LABEL, "Home town", "")


def test_the_name_of_a_field_ends_at_the_field_before_it() -> None:
    first = widget(b"/FT /Tx /V (Walnut77)").replace(RECT, b"/Rect [100 640 140 660]")
    second = widget(b"/FT /Tx /V (Larch78) /Ff 0").replace(b"(field)", b"(other)")

    values = read_values(annotated_pdf(first, second, fields=b"[6 0 R 7 0 R]"))

    assert [value.text for value in values] == ["Walnut77", "Larch78"]
    assert len(values[1].label) < len(LABEL) / 2


def test_a_ticked_box_is_named_by_the_text_behind_it() -> None:
    box = widget(b"/FT /Btn /V /1 /AS /1 /AP << /N << /1 7 0 R /Off 7 0 R >> >>").replace(
        RECT, b"/Rect [20 640 36 660]"
    )

    (value,) = read_values(annotated_pdf(box, content_stream(b"", b"/Type /XObject /Subtype /Form /BBox [0 0 9 9]")))

    assert (value.text, value.label) == ("[x]", LABEL)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("Name", "Name\n\n- Name: Name"),  # printed on the page, and entered too
        ("Name\n\nName", "Name\n\nName"),
        ("", "- Name: Name"),
    ],
)
def test_a_value_that_the_engine_has_read_is_not_repeated(text: str, parsed: str) -> None:
    values = [FieldValue("Name", "Name", (0, 0, 1, 1))]

    assert form_fields.append_missing(text, "Name" if text else "", values) == parsed


def test_two_fields_of_one_value_are_two() -> None:
    values = [FieldValue("25", label, (0, 0, 1, 1)) for label in ("Copay", "Deductible")]

    assert form_fields.append_missing("Costs 25", "Costs", values) == "Costs 25\n\n- Deductible: 25"


def test_a_page_of_more_fields_than_any_form_has_is_read_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(form_fields, "MAX_ANNOTATIONS", 1)
    fields = [widget(b"/FT /Tx /V (Value%d)" % number, flags=PRINT) for number in range(2)]

    values = read_values(annotated_pdf(*fields, fields=b"[6 0 R 7 0 R]"))

    assert [value.text for value in values] == ["Value0"]
