"""Text of Word documents: all visible words, and none that Word does not show."""

from statutes.readers import docx
from statutes.tests.law_texts import article_texts
from statutes.tests.readers.test_docx import NUMBERING, W, docx_bytes, numbered_docx, paragraphs

FIRST = "Artículo 1. Los de la ley."


def run(text: str, properties: str = "") -> str:
    return f'<w:r>{properties}<w:t xml:space="preserve">{text}</w:t></w:r>'


def paragraph(*runs: str) -> str:
    return f"<w:p>{''.join(runs)}</w:p>"


def test_a_note_follows_the_paragraph_with_its_reference() -> None:
    notes = (
        f'<w:footnotes xmlns:w="{W}"><w:footnote w:id="0"><w:p><w:r><w:separator/></w:r></w:p></w:footnote>'
        f'<w:footnote w:id="2">{paragraphs("Reformado en 2027.")}</w:footnote></w:footnotes>'
    )
    body = paragraph(run(FIRST), '<w:r><w:footnoteReference w:id="2"/></w:r>') + paragraphs("Artículo 2. El resto.")

    law = docx.read_docx(docx_bytes(body, footnotes=notes))

    assert article_texts(law) == {"1": "Los de la ley.\n[Reformado en 2027.]", "2": "El resto."}


def test_a_note_of_deleted_text_is_ignored() -> None:
    notes = f'<w:footnotes xmlns:w="{W}"><w:footnote w:id="2">{paragraphs("Vieja.")}</w:footnote></w:footnotes>'
    body = paragraph(run(FIRST), '<w:del><w:r><w:footnoteReference w:id="2"/></w:r></w:del>')

    assert article_texts(docx.read_docx(docx_bytes(body, footnotes=notes))) == {"1": "Los de la ley."}


def test_hidden_text_and_soft_hyphens_are_removed() -> None:
    body = paragraph(
        run("Artículo 1. Los contri\u00adbu"), "<w:r><w:softHyphen/></w:r>", run("yentes"),
        run(" ocultos", "<w:rPr><w:vanish/></w:rPr>"), run(" pagan.", '<w:rPr><w:vanish w:val="0"/></w:rPr>'),
    )  # fmt: skip

    assert article_texts(docx.read_docx(docx_bytes(body))) == {"1": "Los contribuyentes pagan."}


def test_the_result_of_a_field_is_read_and_its_code_is_not() -> None:
    field = '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText>REF art_5</w:instrText></w:r>'
    body = paragraph(run("Artículo 1. Véase el "), field, run("artículo 5"), run(" de la ley."))

    assert article_texts(docx.read_docx(docx_bytes(body))) == {"1": "Véase el artículo 5 de la ley."}


def test_an_article_after_a_line_break_in_a_paragraph_is_found() -> None:
    body = paragraph(run(FIRST), "<w:r><w:br/></w:r>", run("Artículo 2. El resto, que sigue en"), "<w:r><w:br/></w:r>")
    body = body.replace("</w:p>", run("la línea de abajo.") + "</w:p>")

    assert article_texts(docx.read_docx(docx_bytes(body))) == {
        "1": "Los de la ley.", "2": "El resto, que sigue en la línea de abajo."
    }  # fmt: skip


def test_articles_in_a_layout_table_are_found() -> None:
    law = f"<w:tc>{paragraphs(FIRST, 'Artículo 2. El resto.')}</w:tc>"
    frame = f"<w:tbl><w:tr>{law}<w:tc>{paragraphs('')}</w:tc></w:tr></w:tbl>"

    assert article_texts(docx.read_docx(docx_bytes(frame))) == {"1": "Los de la ley.", "2": "El resto."}


def test_text_of_a_floating_box_is_separate() -> None:
    box = f"<w:r><w:pict><w:txbxContent>{paragraphs('Al margen')}</w:txbxContent></w:pict></w:r>"

    law = docx.read_docx(docx_bytes(paragraph(run("Artículo 1. Los de la"), box, run("ley."))))

    assert article_texts(law)["1"].split() == ["Los", "de", "la", "Al", "margen", "ley."]


def test_a_style_inherits_numbering_from_its_base() -> None:
    styles = (
        f'<w:styles xmlns:w="{W}"><w:style w:styleId="Art">{numbered_docx(0)}</w:style>'
        '<w:style w:styleId="Art2"><w:basedOn w:val="Art"/></w:style></w:styles>'
    )
    styled = '<w:pPr><w:pStyle w:val="Art2"/></w:pPr>'

    law = docx.read_docx(docx_bytes(paragraphs("Los.", "Las.", properties=styled), numbering=NUMBERING, styles=styles))

    assert article_texts(law) == {"1": "Los.", "2": "Las."}


def test_lists_of_one_definition_share_counts_unless_restarted() -> None:
    begun = '<w:num w:numId="5"><w:abstractNumId w:val="7"/><w:lvlOverride w:ilvl="0"><w:startOverride w:val="9"/>'
    lists = '<w:num w:numId="4"><w:abstractNumId w:val="7"/></w:num>' + begun + "</w:lvlOverride></w:num></w:numbering>"
    body = "".join(
        paragraphs(
            f"De la lista {number}.", properties=numbered_docx(0).replace('numId w:val="3"', f'numId w:val="{number}"')
        )
        for number in (3, 4, 5, 5)
    )

    law = docx.read_docx(docx_bytes(body, numbering=NUMBERING.replace("</w:numbering>", lists)))

    assert list(article_texts(law)) == ["1", "2", "9", "10"]
