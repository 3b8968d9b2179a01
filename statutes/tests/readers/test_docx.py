"""Word documents, valid and hostile."""

import io
import zipfile
from collections.abc import Mapping

import pytest

from statutes.readers import docx
from statutes.readers.xml_tree import Unreadable
from statutes.tests.law_texts import article_texts

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def docx_bytes(body: str, **parts: str) -> bytes:
    document = f'<w:document xmlns:w="{W}"><w:body>{body}</w:body></w:document>'
    named = {f"word/{name}.xml": content for name, content in parts.items()}
    return zip_bytes({docx.BODY: document, **named})


def zip_bytes(members: Mapping[str, str | bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def paragraphs(*texts: str, properties: str = "") -> str:
    return "".join(f"<w:p>{properties}<w:r><w:t>{text}</w:t></w:r></w:p>" for text in texts)


def test_paragraphs_are_lines_and_offsets_count_their_characters() -> None:
    law = docx.read_docx(docx_bytes(paragraphs("LEY", "Artículo 1. Los de la ley.", "Artículo 2. El resto.")))

    assert article_texts(law) == {"1": "Los de la ley.", "2": "El resto."}
    second = [article for _, article in law.articles()][1]
    assert (second.place.start, second.place.end, second.place.page) == (4 + 27, 4 + 27 + 21, None)


def test_the_cells_of_a_row_are_one_line() -> None:
    cell = "<w:tc>{}</w:tc>"
    row = f"<w:tbl><w:tr>{cell.format(paragraphs('Toma', 'de agua'))}{cell.format(paragraphs('25'))}</w:tr></w:tbl>"

    law = docx.read_docx(docx_bytes(paragraphs("Artículo 1. Las cuotas de la ley:") + row))

    assert article_texts(law) == {"1": "Las cuotas de la ley:\nToma de agua | 25"}


def test_deleted_and_moved_text_is_ignored() -> None:
    change = (
        "<w:p><w:r><w:t>Artículo 1. El plazo </w:t></w:r><w:del><w:r><w:delText>viejo</w:delText></w:r></w:del>"
        "<w:moveFrom><w:r><w:t>movido</w:t></w:r></w:moveFrom><w:ins><w:r><w:t>es de la ley.</w:t></w:r></w:ins></w:p>"
    )

    assert article_texts(docx.read_docx(docx_bytes(change))) == {"1": "El plazo es de la ley."}


NUMBERING = (
    f'<w:numbering xmlns:w="{W}"><w:abstractNum w:abstractNumId="7">'
    '<w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="decimal"/><w:lvlText w:val="Artículo %1."/></w:lvl>'
    '<w:lvl w:ilvl="1"><w:start w:val="1"/><w:numFmt w:val="upperRoman"/><w:lvlText w:val="%2."/></w:lvl>'
    '</w:abstractNum><w:num w:numId="3"><w:abstractNumId w:val="7"/></w:num></w:numbering>'
)


def numbered_docx(level: int) -> str:
    return f'<w:pPr><w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="3"/></w:numPr></w:pPr>'


def test_automatic_list_numbers_are_read() -> None:
    body = (
        paragraphs("Son de la ley:", properties=numbered_docx(0))
        + paragraphs("una;", "dos.", properties=numbered_docx(1))
        + paragraphs("Otras de la ley:", properties=numbered_docx(0))
        + paragraphs("tres.", properties=numbered_docx(1))
    )

    law = docx.read_docx(docx_bytes(body, numbering=NUMBERING))

    assert article_texts(law) == {"1": "Son de la ley:\nI. una;\nII. dos.", "2": "Otras de la ley:\nI. tres."}


def test_numbers_may_come_from_a_style() -> None:
    styles = f'<w:styles xmlns:w="{W}"><w:style w:styleId="Art">{numbered_docx(0)}</w:style></w:styles>'
    styled = '<w:pPr><w:pStyle w:val="Art"/></w:pPr>'

    law = docx.read_docx(docx_bytes(paragraphs("Los.", "Las.", properties=styled), numbering=NUMBERING, styles=styles))

    assert article_texts(law) == {"1": "Los.", "2": "Las."}


def test_the_body_is_found_by_the_package_relations() -> None:
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    relations = f'<Relationships><Relationship Type="{kind}" Target="/word/document2.xml"/></Relationships>'
    document = f'<w:document xmlns:w="{W}"><w:body>{paragraphs("Artículo 1. La ley.")}</w:body></w:document>'

    law = docx.read_docx(zip_bytes({docx.RELATIONS: relations, "word/document2.xml": document}))

    assert article_texts(law) == {"1": "La ley."}


def encrypted_docx() -> bytes:
    """Return an archive whose members have the password flag, which zipfile checks before it reads."""
    content = bytearray(docx_bytes(paragraphs("Artículo 1. La ley.")))
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + place] |= 1
    return bytes(content)


SOUND = docx_bytes(paragraphs("Artículo 1. La ley."))
LARGEST = 1 << 20  # here: the real one takes a while to write, and is tried in test_read
BOMB = f'<w:document xmlns:w="{W}"><w:body>' + " " * (LARGEST + 10)
REFUSED = {
    "no Word document": (zip_bytes({"xl/workbook.xml": "<workbook/>"}), "NOT_DOCX"),
    "another kind of body": (zip_bytes({docx.BODY: "<workbook/>"}), "NOT_DOCX"),
    "cut short": (SOUND[: len(SOUND) // 2], "DOCX_TRUNCATED"),
    "flipped bytes": (SOUND.replace(SOUND[60:70], b"\xff" * 10), "DOCX_TRUNCATED"),
    "a body that is no XML": (zip_bytes({docx.BODY: "<w:document"}), "DOCX_TRUNCATED"),
    "entities": (zip_bytes({docx.BODY: '<!DOCTYPE d [<!ENTITY a "b">]><d>&a;</d>'}), "XML_ENTITY_REFUSED"),
    "a bomb": (zip_bytes({docx.BODY: BOMB}), "DOCX_TOO_LARGE"),
    "a bomb beside the body": (docx_bytes("", numbering=BOMB), "DOCX_TOO_LARGE"),
    "many members": (zip_bytes({f"{n}": "" for n in range(docx.MAX_MEMBERS + 1)}), "DOCX_TOO_LARGE"),
    "a password": (encrypted_docx(), "DOCX_ENCRYPTED"),
    "deep nesting": (docx_bytes("<w:p>" * 200 + "</w:p>" * 200), "XML_TOO_DEEP"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_invalid_and_oversized_word_documents_are_rejected(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docx, "LARGEST", LARGEST)
    content, code = REFUSED[kind]

    with pytest.raises(Unreadable) as refused:
        docx.read_docx(content)

    assert refused.value.code == code


def test_a_bomb_in_a_bomb_is_not_unpacked() -> None:
    content = zip_bytes({docx.BODY: zip_bytes({docx.BODY: BOMB})})

    with pytest.raises(Unreadable) as refused:
        docx.read_docx(content)

    assert refused.value.code == "DOCX_TRUNCATED"


def test_subsections_with_own_headings_are_articles() -> None:
    lines = ("Example Act", "Section 4(a) Of the board.", "Section 4(b) Of the clerk.", "Section 5. (a) Of the act.")

    law = docx.read_docx(docx_bytes(paragraphs(*lines)))

    assert article_texts(law) == {"4(a)": "Of the board.", "4(b)": "Of the clerk.", "5": "(a) Of the act."}
    assert [article.label for _, article in law.articles()] == ["Section 4(a)", "Section 4(b)", "Section 5"]
