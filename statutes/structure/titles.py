"""Titles of laws and headings of articles, told apart from sentences."""

import re

from statutes.structure.model import Article, Law, Paragraph
from statutes.structure.patterns import GOES_ON

MAX_TITLE_CHARS = 300  # characters
MAX_HEADING_CHARS = 80
TITLE = re.compile(
    r"(?:\d{1,6}\s+)?(?:(?:THE|LA|EL|REAL)\s+)?(?:LEY|C[OÓ]DIGO|REGLAMENTO|DECRETO|ESTATUTO|CONSTITUCI[OÓ]N|LINEAMIENTOS)\b"
    r"|DIRECTIVA\b"
    r"|(?:COMMISSION\s+|COUNCIL\s+)?(?:(?:IMPLEMENTING|DELEGATED)\s+)?(?:REGULATION|DIRECTIVE|DECISION)\s*\((?:E[UC]|EEC)\b"
    r"|AN\s+ACT\b|(?=[^.]*\s(?:ACT|CODE|LAW|STATUTE|REGULATIONS|ORDER|RULES)\b(?:,?\s+(?:OF\s+)?\d{4})?\W*$)",
    re.I,
)
# An editor's note below a paragraph: "Fracción reformada DOF 01-01-2024".
NOTE = re.compile(
    r"(?:P[áa]rrafos?|Fracci[óo]n(?:es)?|(?:Sub)?[Ii]ncisos?|Art[íi]culos?|Apartados?|Numeral(?:es)?|Denominaci[óo]n"
    r"|Cap[íi]tulos?|T[íi]tulos?|Secci[óo]n(?:es)?|Libros?|Reforma|Fe de erratas|Nota"
    r"|Última reforma)\b[^.;:]{3,160}\bDOF(?:,?\s+(?:y\s+)?\d{1,2}-\d{1,2}-\d{4})+\.?$"
)
_RECITALS = re.compile(
    r"(?:Having regard|Whereas|WHEREAS|Acting in|HA[SV]E? ADOPTED|BE IT ENACTED|Be it|Vist[oa]s?|Considerando"
    r"|TEXTO VIGENTE|Texto vigente|Última reforma|Nueva Ley|POR CUANTO|(?:EL|LA) PRESIDENT[EA]|EL CONGRESO)\b"
)
_ITEM = re.compile(r"^\d{1,6}\s+(?=[A-ZÁÉÍÓÚ])")  # the number of a gazette's entry
_YEAR = re.compile(r"\b(?:Act|ACT|Order|Regulations|Rules),? \d{4}$")
# A sentence has a verb, a title has none; in Spanish the future tense or "se" suffices.
_SENTENCE = {
    "es": re.compile(
        r"\b(?:se\s\w|\w{2,}rán?\b|(?:es|son|est[áa]n?|ser[íi]an?|ha|han|hay|tienen?|pueden?"
        r"|deben?|quedan?|rigen?|entran?|corresponden?|regulan?|establecen?|gozan?|constituyen?|comprenden?|aplican?"
        r"|pertenecen?|ejercen?|garantizan?|reconocen?|fijan?|dictan?|reglamentan?|derivan?|emanan?|corren?|consisten?)\b)",
        re.I,
    ),
    "en": re.compile(
        r"\b(?:shall|is|are|was|were|may|must|has|have|does|do|will|means|includes?|applies|apply|takes?|consists?|comes?)\b"
    ),
}
# Words that begin a sentence more often than a title.
_DETERMINED = re.compile(
    r"(?:El|La|Los|Las|Un|Una|Tod[oa]s?|Cada|Cuando|Si|Son|Es|En|Para|A|Al|Est[aeo]s?|Quien(?:es)?|Nadie|Ning[úu]n[oa]?"
    r"|The|An?|Any|Every|Each|All|If|When|No|This|These)\s"
)
_CAPITALS = re.compile(r"([A-ZÁÉÍÓÚÜÑ][A-ZÁÉÍÓÚÜÑ\d ,;/()\-]{2,100}\.) +(?=[(“\"«¿]?\w)(?![A-ZÁÉÍÓÚÜÑ ]{4})(\S.*)$")
# "Naturaleza jurídica.- Los recursos …", "Vigencia. La presente ley …"
_NAMED_ES = re.compile(
    r"([A-ZÁÉÍÓÚÑ][^.:;]{2,80}(?<=[a-záéíóúñ]{4})\.)(?: ?[-\u2013\u2014]+ *| +)(?=[A-ZÁÉÍÓÚÑ¿(«“\"])(\S+ \S.*)$"
)
_RUN_IN = re.compile(r"([A-Z][^.—]{2,100}\.) ?[\u2013\u2014] ?(\S.*)$")  # "4. Meters.—(1) A supplier …"


def find_title(preamble: list[Paragraph]) -> str:
    """Return the law's title from its preamble, or the first words of the preamble."""
    texts = [one.text for one in preamble[:40] if len(one.text.split()) > 1 and len(one.text) <= MAX_TITLE_CHARS]
    place = next((number for number, text in enumerate(texts) if TITLE.match(text)), None)
    if place is None:
        return (preamble[0].text if preamble else "")[:MAX_TITLE_CHARS]
    if texts[place].upper() == "AN ACT":
        return " ".join(texts[place : place + 2])[:MAX_TITLE_CHARS]
    return _ITEM.sub("", texts[place])


def is_of_preamble(text: str, before: str) -> bool:
    """Tell whether a line begins a paragraph of the preamble: a recital, a title, or the line after the title."""
    if _RECITALS.match(text) or _YEAR.search(before[-20:]):
        return True
    return TITLE.match(text[:MAX_TITLE_CHARS]) is not None and not GOES_ON.search(before[-20:])


def is_sentence(text: str, language: str) -> bool:
    return _SENTENCE[language].search(text) is not None


def split_run_in_heading(text: str, language: str) -> tuple[str, str] | None:
    """Split an article's heading from the text in the same line: "OBJETO. La ley …", "Meters.—(1) A supplier …"."""
    match = _CAPITALS.match(text) or (_RUN_IN if language == "en" else _NAMED_ES).match(text)
    if match is None or is_sentence(match[1], language) or _DETERMINED.match(match[1]):
        return None
    return match[1], match[2]


def assign_article_headings(law: Law) -> None:
    """Make the short first paragraphs of articles their headings: "Section 4. Definitions."."""
    articles = [article for _, article in law.articles()]
    candidates = [article for article in articles if _may_have_heading(article, law.language)]
    plain = [article for article in candidates if not _DETERMINED.match(article.paragraphs[0].text)]
    count = sum(1 for article in articles if article.heading) + len(plain)
    for article in candidates if 2 * count >= len(articles) else plain:
        article.heading = article.paragraphs.pop(0).text


def _may_have_heading(article: Article, language: str) -> bool:
    is_clause = "transitorio" in article.number and not article.number.startswith("disposicion-")
    if len(article.paragraphs) < 2 or article.heading or is_clause:
        return False
    first, second = article.paragraphs[:2]
    if second.text.startswith("[") or NOTE.match(second.text):
        return False  # a note about an article is not its text
    if first.place.start != article.place.start or len(first.text) > MAX_HEADING_CHARS:
        return False
    return not first.text.endswith((":", ";", ",")) and not is_sentence(first.text, language)
