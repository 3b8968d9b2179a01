"""Regular expressions for headings of statutes, in Spanish and in English."""

import re

DASHES = "-\u2010\u2011\u2012\u2013\u2014\u2015"
AFTER_LABEL = " \t.:;" + DASHES
_DASH = re.escape(DASHES)
ROMAN = r"(?:(?=[IVXLCDM])M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})\b)"
_UNITS = r"primer[oa]?|segund[oa]|tercer[oa]?|cuart[oa]|quint[oa]|sext[oa]|s[eé]ptim[oa]|octav[oa]|noven[oa]"
_TENS = (
    r"(?:d[eé]cim|vig[eé]sim|trig[eé]sim|cuadrag[eé]sim|quincuag[eé]sim|sexag[eé]sim|septuag[eé]sim|octog[eé]sim"
    r"|nonag[eé]sim|cent[eé]sim)[oa]"
)
ORDINALS_ES = rf"{_UNITS}|{_TENS}(?:\s?(?:{_UNITS}))?|und[eé]cim[oa]|duod[eé]cim[oa]|[uú]nic[oa]|preliminar"
_ORDINALS_EN = (
    "first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|one|two|three|four|five|six|seven|eight|nine|ten"
)
_COUNT = (
    rf"(?:{ROMAN}(?:\s(?-i:[A-Z])(?=\s*$))?|\d{{1,4}}(?:\.\d{{1,3}}(?=\.?\s)|-?[A-Z]|-\d{{1,4}}|\.?[ºª°])?|[A-Z]|(?:{ORDINALS_ES})|(?:{_ORDINALS_EN}))"
    r"(?:[\s-]+(?:bis|ter|qu[aá]ter)\b)?"
)
_LATIN = r"[\s-]*(?:bis|ter|qu[aá]ter|quinquies|quintus|sexies|septies|octies|nonies|decies|unvicies|vicies)\b"
_LETTER = rf"(?:\s?\.?[{_DASH}]|\s|)(?-i:[A-Z]{{1,2}})\b(?=\s*[.:{_DASH}]|\s*$|\s+(?-i:[A-ZÁÉÍÓÚÑ])|\s+(?:bis|ter)\b)"
_NUMBER = (
    r"\d{1,4}(?:\.\d{1,3}){0,3}"
    rf"(?:\s?[oºª°](?!\w)(?:\.(?={_LATIN}))?|\.[ºª°])?"  # "2o. Bis"
    rf"(?:{_LATIN}|{_LETTER}|[{_DASH}]\d{{1,2}}\b){{0,3}}(?:\s\d{{1,2}}(?=\s?\.))?"
)
_END = rf"(?:\s*[.:;]?\s*[{_DASH}]+|\s*[.:](?!\d)|\s*$|\s+(?=(?-i:[A-ZÁÉÍÓÚÑ¿¡«])|[\[(\"“]))"

_NAMES = {
    "annex": r"ANEXO|AP[EÉ]NDICE|ANNEX|SCHEDULE|APPENDIX",
    "book": r"LIBRO|BOOK",
    "part": r"PARTE|PART",
    "subpart": r"SUBPARTE|SUBPART",
    "title": r"T[IÍ]TULO|TITLE",
    "subtitle": r"SUBT[IÍ]TULO|SUBTITLE",
    "chapter": r"CAP[IÍ]TULO|CHAPTER",
    "subchapter": r"SUBCAP[IÍ]TULO|SUBCHAPTER",
    "section": r"SECCI[OÓ]N",
    "subsection": r"SUBSECCI[OÓ]N",
}
DIVISIONS = {kind: re.compile(rf"(?:{names})\s+({_COUNT})(?!\w)", re.I) for kind, names in _NAMES.items()}
# Chile divides chapters into these.
PARAGRAPH = re.compile(rf"P[AÁ]RRAFO\s+({ROMAN}|\d{{1,3}}(?:\s?\.?[ºª°])?)(?!\w)\s*[.:{_DASH}]*\s*", re.I)
# The only annex has no number, and a line of its own.
ANNEX = re.compile(
    r"(?:ANEXOS?|AP[EÉ]NDICES?)(?:\s+[A-ZÁÉÍÓÚÑ]{4,}(?:\s+[A-ZÁÉÍÓÚÑ]{2,}){0,3})?\s*[.:]?$"
    r"|(?:ANNEX(?:ES)?|SCHEDULES?|APPENDIX)\s*[.:]?$"
)
SPOKEN_ANNEX = re.compile(r"(?:Anexos?|Ap[ée]ndices?)(?:\s+[a-záéíóúñ]{4,}){0,2}$|(?:Annex|Schedule|Appendix)$")
# In Canada parts contain them, in California they contain parts.
DIVISION = re.compile(rf"DIVISION\s+({_COUNT})(?!\w)", re.I)
# In Ecuador this is a division of its own, and ordinals follow.
GENERAL = re.compile(r"(DISPOSICIONES\s+GENERALES)\s*[:.]?$", re.I)
# In the law of the European Union, for example, a section contains the articles, which are cited.
SECTION_OF_ARTICLES = re.compile(rf"SECTION\s+({_COUNT})$", re.I)
TRANSITORY = re.compile(
    r"(?:(?:ART[IÍ]CULOS?|DISPOSICI[OÓ]N(?:ES)?|R[EÉ]GIMEN)\s+)?"
    r"(?:TRANSITORI[OA]S?(?:\s+Y\s+FINALES)?|T\s+R\s+A\s+N\s+S\s+I\s+T\s+O\s+R\s+I\s+[OA](?:\s+S)?"
    r"|TRANSITIONAL PROVISIONS)"
    r"(?:\s+DEL?(?:\s+(?:LOS\s+)?DECRETOS?(?:\s+DE(?:\s+REFORMAS?)?)?)?)?\s*[:.]?\s*$",
    re.I,
)
_PROVISION_KINDS = (
    "ADICIONAL(?:ES)?|TRANSITORIAS?|DEROGATORIAS?|FINAL(?:ES)?|MODIFICATORIAS?|REFORMATORIAS?|COMPLEMENTARIAS?"
)
PROVISIONS = re.compile(
    rf"(DISPOSICI[OÓ]N(?:ES)?\s+(?:{_PROVISION_KINDS})(?:(?:\s*,\s*|\s+[YE]\s+|\s+)(?:{_PROVISION_KINDS})){{0,3}})\s*[:.]?$",
    re.I,
)
ARTICLE_ES = re.compile(
    rf"(?:ART[IÍ]CULO|ART\.)\s*((?:{_NUMBER}|(?:{ORDINALS_ES})(?:{_LATIN})?)(?:\s+transitorio)?|transitorio"
    rf"|innumerado|\.{{3}}|…|\(\.{{3}}\))(?!\w){_END}",
    re.I,
)
PROVISION = re.compile(
    rf"(DISPOSICI[OÓ]N\s+(?:COMPLEMENTARIA\s+)?(?:ADICIONAL|TRANSITORIA|DEROGATORIA|FINAL|GENERAL|REFORMATORIA|MODIFICATORIA)"
    rf"(?:\s+(?:{ORDINALS_ES}|\d{{1,3}}\s?\.?[ºª°])(?:{_LATIN})?(?!\w){_END}|\.\s+(?=(?-i:[A-ZÁÉÍÓÚÑ]))))",
    re.I,
)
ARTICLE_EN = re.compile(
    rf"(?:ARTICLE|ART\.)\s+(\d{{1,4}}[a-z]{{1,2}}(?=\s*$|\s*[.:{_DASH}])|{_NUMBER}|{ROMAN}(?:\s(?-i:[A-Z])(?=\s*$))?|(?:{_ORDINALS_EN})\b)(?!\w){_END}",
    re.I,
)
# Rules of courts and regulations under an act, which have neither sections nor articles.
RULE_EN = re.compile(rf"(?:RULE|REGULATION)\s+({_NUMBER})(?!\w){_END}", re.I)
SECTION_EN = re.compile(
    rf"\[?(?:SECTION|SEC\.|§{{1,2}})\s*(\d{{1,5}}[A-Z]{{0,2}}(?:[.:{_DASH}]\d{{1,5}}[A-Z]{{0,2}}){{0,5}})(?!\w)"
    rf"(?:(?<=\d)(?:,|\s+to|\s+and)\s+\d{{1,5}}[A-Za-z]{{0,2}}(?=\.\s)|\s*[.:](?!\d)|\s*[{_DASH}]++(?!\d)|\s*(?=\()|\s*$|\s+(?=(?-i:[A-Z])|[\[\"“]))",
    re.I,
)
# Subsections may have headings of their own: "Section 4(a)", "§ 12-3-4(b)(1)".
SUBSECTION = r"\((?:\d{1,3}|[A-Za-z]|[ivx]{2,5}|[IVX]{2,5}|aa|bb|cc)\)"
SUBSECTIONS = re.compile(rf"(?:{SUBSECTION})+(?!\w|\s*[{_DASH}]\s*\()")
LAST_SUBSECTIONS = re.compile(rf"(?<=[a-z0-9])\s*({SUBSECTION}(?:\s*{SUBSECTION})*)[\s.:]*$")
SECOND = {"(a)": "(b)", "(A)": "(B)", "(1)": "(2)", "(i)": "(ii)", "(I)": "(II)"}
CLAUSES = re.compile(rf"(?:^|[.;:,{_DASH}]\s+(?:and\s+|or\s+)?)((?:{SUBSECTION})+)(?=\s)")
ORDINAL = re.compile(rf"({ORDINALS_ES})(?:\s*[.:]?\s*[{_DASH}]+|\s*[.:]\s+(?=(?-i:[A-ZÁÉÍÓÚÑ])))", re.I)
# Beginnings of paragraphs: fractions, clauses, subsections.
_CLAUSE = rf"(?:{ROMAN}|[ivx]{{1,6}}|[a-zA-Z]|\d{{1,3}})"
ENUMERATED = re.compile(
    rf"(?:\({_CLAUSE}\)\s?)+|\d{{1,3}}\.[{_DASH}]?(?=\()|(?:{_CLAUSE}[.)][{_DASH}]?|\d{{1,2}}\.?[ºª°][.)]?[{_DASH}]?|{ROMAN}\s*[.{_DASH}]+|[•*{_DASH}])\s+"
)
GOES_ON = re.compile(
    r"(?:[,;(]|\b(?:el|los|las?|al|del?|en|por|con|según|y|[eoua]|que|art[ií]culos?|fracci[oó]n"
    r"|the|of|to|in|and|or|under|with|by|see|from|this|that|section|sections|article|for))$",
    re.I,
)
# After a number: "Título II de esta Ley", "Section 4(a) of this Act", "PART 2 shall" are references.
SPOKEN_OF = re.compile(
    r"\s*(?:\([A-Za-z0-9]{1,4}\)\s*)*(?:[,;)]|(?-i:de|del|of|shall|que|y|and|or|o|se|en|in|is|are|may|[a-z]{2,})\b)"
)


# A bill that is quoted as a whole: "Proyecto de ley: “Artículo 1°.- …"
QUOTED = re.compile(r"[\"“«](?=[A-ZÁÉÍÓÚ])")
BILL = re.compile(r"\b(?:proyecto de reforma constitucional|ley(?: de la rep[úu]blica)?|decreto)\s*:$", re.I)
# Sections of a code: "1340. This chapter …", in chapters and articles.
CODED = re.compile(r"(\d{3,5}(?:\.\d{1,3}){0,2})\.\s+(?=[A-Z(“])")
# Sections of British and Commonwealth acts: "1 Overview", "2A. Tariffs.—(1) A supplier …".
BARE = re.compile(rf"(\d{{1,4}}([A-Z]{{0,2}}))(?:\.\s*(?:[{_DASH}]\s*)?|\s+)(?=[A-Z(“])")
