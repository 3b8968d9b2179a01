"""Values of form fields and FreeText annotations of a page, read with PDFium. Runs in the sandboxed child only."""

import html
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pypdfium2.raw as pdfium

MAX_ANNOTATIONS = 3000  # of a page; dense forms have 300
MAX_OPTIONS = 1000  # of a list
MAX_VALUE_CHARS = 20_000
MAX_LABEL_CHARS, MAX_LABEL_WIDTH = 120, 300.0  # points
NOT_SHOWN = pdfium.FPDF_ANNOT_FLAG_HIDDEN | pdfium.FPDF_ANNOT_FLAG_NOVIEW
PASSWORD = 1 << 13  # PDF 1.7, table 228
TICKED = (pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON)
WITH_VALUES = (pdfium.FPDF_ANNOT_WIDGET, pdfium.FPDF_ANNOT_FREETEXT)
CHOICES = (pdfium.FPDF_FORMFIELD_COMBOBOX, pdfium.FPDF_FORMFIELD_LISTBOX)

Box = tuple[float, float, float, float]  # left, bottom, right, top in the page's own space

_TAG = re.compile(r"<[^<>]*>")  # of rich text; stops at the next "<", so that it stays linear
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class FieldValue:
    """A value that a reader displays, and what the field is called."""

    text: str
    label: str
    box: Box


def read_values(document: Any, number: int, page: Any, text_page: Any) -> list[FieldValue]:
    """Return the values of page ``number`` (from 0), which is open, in the order of its annotations.

    Fields that are hidden have none, nor have passwords. Call it last: it may change what is drawn on the page.
    """
    annotations = _visible_annotations(page)
    if not annotations:
        return []
    document.init_forms()  # does nothing where it is done already, or where there is no form
    fields = [_Field(document.formenv, annotation) for annotation in annotations]
    boxes = [field.box for field in fields]
    texts = [field.value() for field in fields]
    labels = [field.tooltip() or _printed_label(text_page, field, boxes) for field in fields]
    for annotation in annotations:
        pdfium.FPDFPage_CloseAnnot(annotation)
    if None in texts:
        drawn = _appearance_texts(document, number, page, text_page, boxes)
        texts = [other if text is None else text for text, other in zip(texts, drawn, strict=True)]
    return [FieldValue(*each) for each in zip(map(str, texts), labels, boxes, strict=True) if each[0]]


def append_missing(text: str, printed: str, values: Sequence[FieldValue]) -> str:
    """Append, as a list, the values that ``text`` does not have beyond what is ``printed`` on the page."""
    if not values:
        return text
    in_text, in_print = _words(text), _words(printed)
    missing, seen = [], Counter[str]()
    for value in values:
        words = _words(value.text)
        seen[words] += 1
        if words.strip() and in_text.count(words) - in_print.count(words) < seen[words]:
            missing.append(f"- {value.label}: {value.text}" if value.label else f"- {value.text}")
    return "\n\n".join(filter(None, [text, "\n".join(missing)]))


def _words(text: str) -> str:
    return "".join(f" {word} " for word in _WORD.findall(text))  # each between blanks of its own, for str.count


def _visible_annotations(page: Any) -> list[Any]:
    """Return the page's open widgets and FreeText annotations that a reader displays."""
    visible = []
    for number in range(min(pdfium.FPDFPage_GetAnnotCount(page.raw), MAX_ANNOTATIONS)):
        annotation = pdfium.FPDFPage_GetAnnot(page.raw, number)
        if not annotation:
            continue
        is_hidden = pdfium.FPDFAnnot_GetFlags(annotation) & NOT_SHOWN
        if not is_hidden and pdfium.FPDFAnnot_GetSubtype(annotation) in WITH_VALUES:
            visible.append(annotation)
        else:
            pdfium.FPDFPage_CloseAnnot(annotation)
    return visible


class _Field:
    """A widget or a FreeText annotation. The form environment is None for a document without an AcroForm."""

    def __init__(self, form: Any, annotation: Any) -> None:
        self._form, self._annotation = form, annotation
        self.is_note = pdfium.FPDFAnnot_GetSubtype(annotation) == pdfium.FPDF_ANNOT_FREETEXT
        # -1 for a field that the form does not list, and for one that is no field.
        self.type = pdfium.FPDFAnnot_GetFormFieldType(form, annotation) if form and not self.is_note else -1
        rect = pdfium.FS_RECTF()
        pdfium.FPDFAnnot_GetRect(annotation, rect)
        self.box = rect.left, rect.bottom, rect.right, rect.top

    def value(self) -> str | None:
        """Return the value, "" for a field that displays none; None if only its appearance can tell."""
        if self.is_note:
            return self._entry("Contents") or _plain(self._entry("RC")) or None
        if self.type in TICKED:
            return self._ticked()
        if self.type in CHOICES and (chosen := self._chosen()):
            return chosen
        if self.type == -1:
            return self._entry("V") or None
        if pdfium.FPDFAnnot_GetFormFieldFlags(self._form, self._annotation) & PASSWORD:
            return ""
        return self._read(pdfium.FPDFAnnot_GetFormFieldValue) or _plain(self._entry("RV")) or None

    def tooltip(self) -> str:
        return self._read(pdfium.FPDFAnnot_GetFormFieldAlternateName)[:MAX_LABEL_CHARS] if self.type != -1 else ""

    def _ticked(self) -> str:
        state = self._entry("AS")  # FPDFAnnot_IsChecked knows only pages that are open for filling in
        if state in ("", "Off"):
            return ""
        return state if len(state) > 1 and any(map(str.isalpha, state)) else "[x]"

    def _chosen(self) -> str:
        """Return the labels of the chosen options, where the field's value has their export values."""
        count = min(pdfium.FPDFAnnot_GetOptionCount(self._form, self._annotation), MAX_OPTIONS)
        is_chosen = (pdfium.FPDFAnnot_IsOptionSelected(self._form, self._annotation, each) for each in range(count))
        labels = (
            self._read(pdfium.FPDFAnnot_GetOptionLabel, number) for number, chosen in enumerate(is_chosen) if chosen
        )
        return ", ".join(filter(None, labels))

    def _read(self, function: Callable[..., int], *arguments: Any) -> str:
        return _read_string(function, self._form, self._annotation, *arguments)

    def _entry(self, key: str) -> str:
        return _read_string(pdfium.FPDFAnnot_GetStringValue, self._annotation, key.encode())


def _read_string(function: Callable[..., int], *arguments: Any) -> str:
    """Call a function of PDFium that fills a buffer with UTF-16, and returns the length in bytes that it needs."""
    length = function(*arguments, None, 0)
    if not 2 < length <= 2 * MAX_VALUE_CHARS:
        return ""
    buffer = (pdfium.FPDF_WCHAR * (length // 2 + 1))()
    function(*arguments, buffer, length)
    text = bytes(memoryview(buffer).cast("B"))[: length - 2].decode("utf-16-le", "ignore")
    return " ".join(text.replace("\0", " ").split())


def _plain(rich: str) -> str:
    return " ".join(html.unescape(_TAG.sub(" ", rich)).split())


def _printed_label(text_page: Any, field: _Field, boxes: Sequence[Box]) -> str:
    """Return what is printed on the field's line: behind a box that is ticked, else before the field."""
    if field.is_note or field.type == pdfium.FPDF_FORMFIELD_PUSHBUTTON:
        return ""
    left, bottom, right, top = field.box
    same_line = [box for box in boxes if min(box[3], top) > max(box[1], bottom)]
    start = max((box[2] for box in same_line if box[2] <= left), default=min(0.0, left))
    end = min((box[0] for box in same_line if box[0] >= right), default=right + MAX_LABEL_WIDTH)
    before = _bounded(text_page, (start, bottom, left, top))
    if field.type in TICKED:
        return (_bounded(text_page, (right, bottom, end, top)) or before)[:MAX_LABEL_CHARS]
    return before[-MAX_LABEL_CHARS:].rstrip(": ")


def _appearance_texts(document: Any, number: int, page: Any, text_page: Any, boxes: Sequence[Box]) -> list[str]:
    """Return what the annotations' appearances show: draw them into the page, and read it again."""
    if pdfium.FPDFPage_Flatten(page.raw, pdfium.FLAT_NORMALDISPLAY) != pdfium.FLATTEN_SUCCESS:
        return [""] * len(boxes)
    drawn = document[number].get_textpage()
    texts = ((_bounded(drawn, box), _bounded(text_page, box)) for box in boxes)
    return [text.replace(printed, "", 1).strip() for text, printed in texts]


def _bounded(text_page: Any, box: Box) -> str:
    left, bottom, right, top = box
    return " ".join(text_page.get_text_bounded(left=left, bottom=bottom, right=right, top=top).split())
