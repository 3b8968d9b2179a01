"""Specimens of official publications: their laws, and no text lost."""

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from documents.parsers.sandbox.client import ROOT
from statutes.article_chunker import CHUNKER, ArticleChunk
from statutes.readers import pdf, xml
from statutes.structure import schema_validation
from statutes.structure.markdown import render_markdown
from statutes.structure.model import Article, CanonicalLaw, Division
from statutes.tests.law_texts import all_texts, encode_law, law_json

HERE = Path(__file__).parent / "specimens"
NAMES = sorted(path.name for path in HERE.iterdir() if path.suffix in (".xml", ".txt"))
# What an XML file says of itself, and what its editors add to it.
DROPPED = {
    "meta", "metadatos", "metadata", "analisis", "status", "note", "notes", "noteref", "BIB.INSTANCE", "NOTE",
    "Metadata", "Commentaries", "HistoricalNote", "HEADER", "Identificador", "Metadatos",
}  # fmt: skip
# The lines that each page of a paper repeats, or that number it.
RUNNING = re.compile(
    r"LEY DEL AGUA PARA EL USO DOMÉSTICO|CÁMARA DE|Secretaría General|Nueva Ley DOF|\d de 3"
    r"|BOLETÍN OFICIAL DEL ESTADO|Núm\. 61 |cve: |Verificable en"
)


def read_specimen(name: str) -> CanonicalLaw:
    content = (HERE / name).read_bytes()
    return (
        xml.read_xml(content) if name.endswith(".xml") else pdf.read_pdf(content.decode().rstrip("\n").split("\f"), {})
    )


def outline_text(law: CanonicalLaw) -> str:
    """Return the law as its specimen shows it: a division's or an article's label in brackets, then its heading."""
    lines = [f"{law.language} {law.title}"]
    lines += [f"contents: {paragraph.text}" for paragraph in law.contents]
    lines += [paragraph.text for paragraph in law.preamble]
    for child in law.children:
        lines += _outlined(child, 0)
    return "\n".join(lines) + "\n"


def _outlined(child: Division | Article, depth: int) -> Iterator[str]:
    kind = f"{child.kind} {child.number}".strip() if isinstance(child, Division) else f"= {child.id}"
    yield f"{'  ' * depth}{kind} [{child.label}] {child.heading}".rstrip()
    for paragraph in child.paragraphs:
        yield f"{'  ' * depth}  | {paragraph.text}"
    if isinstance(child, Division):
        for one in child.children:
            yield from _outlined(one, depth + 1)


@pytest.mark.parametrize("name", NAMES)
def test_a_specimen_is_read_with_its_published_outline(name: str) -> None:
    law = read_specimen(name)

    schema_validation.check_schema(law_json(law))
    assert outline_text(law) == (HERE / name).with_suffix(f"{Path(name).suffix}.law").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_every_letter_of_a_specimen_is_kept(name: str) -> None:
    source = visible_text(_seen(name))

    assert not source - visible_text(all_texts(read_specimen(name)))


@pytest.mark.parametrize("name", NAMES)
def test_every_article_can_be_cited_by_its_chunk(name: str) -> None:
    law = read_specimen(name)

    chunks = CHUNKER.split(render_markdown(law).text)

    cited = [article for chunk in chunks if isinstance(chunk, ArticleChunk) for article in chunk.articles]
    assert cited == [article.id for _, article in law.articles()]


READ = """
import hashlib, sys
from pathlib import Path
from statutes.readers import pdf, xml
from statutes.tests.law_texts import encode_law
found = hashlib.sha256()
for path in map(Path, sys.argv[1:]):
    content = path.read_bytes()
    pages = content.decode("utf-8", "replace").rstrip("\\n").split("\\f")
    law = xml.read_xml(content) if path.suffix == ".xml" else pdf.read_pdf(pages, {})
    found.update(encode_law(law))
print(found.hexdigest())
"""


def test_another_process_reads_the_same_law() -> None:
    here = hashlib.sha256(b"".join(encode_law(read_specimen(name)) for name in NAMES)).hexdigest()
    environment, paths = {**os.environ, "PYTHONHASHSEED": "7"}, [str(HERE / name) for name in NAMES]

    run = subprocess.run(
        [sys.executable, "-c", READ, *paths], cwd=ROOT, env=environment, capture_output=True, text=True
    )

    assert run.stdout.strip() == here


def visible_text(texts: Iterator[str]) -> Counter[str]:
    return Counter(sign for text in texts for sign in text if sign.isalnum())


def _seen(name: str) -> Iterator[str]:
    """Yield what a reader of the file sees, read by other means than ours."""
    content = (HERE / name).read_bytes()
    if name.endswith(".txt"):
        lines = content.decode().replace("\f", "\n").split("\n")
        yield from (line for line in lines if not RUNNING.match(line))
        return
    root = ElementTree.fromstring(content)
    for block in root.iter("bloque"):
        for old in block.findall("version")[:-1]:
            block.remove(old)
    yield from _texts(root)


def _texts(element: ElementTree.Element) -> Iterator[str]:
    if element.tag.rpartition("}")[2] not in DROPPED:
        yield element.text or ""
        for child in element:
            yield from _texts(child)
            yield child.tail or ""
