"""End matter of a law: promulgation, signatures, and notes that are no part of it."""

import re

from statutes.structure.headings import Heading

DECREE = "decreto"  # a reform decree begins a text of its own
LINE_ENDS = (".", ":", ";", "”", "»", '"', ")", "]", "_")
MAX_SIGNATURE_CHARS = 90
_MONTHS_ES = "enero|febrero|marzo|abril|mayo|junio|julio|agosto|sep?tiembre|octubre|noviembre|diciembre"
_MONTHS_EN = "January|February|March|April|May|June|July|August|September|October|November|December"
# Formulas that occur nowhere else.
_FORMULA = re.compile(
    rf"[A-ZÁÉÍÓÚ][\w. ]{{2,40}},(?: D\.? ?[FC]\.?,)?(?: a)? \d{{1,2}}[º°]? de (?:{_MONTHS_ES}) del? \d{{4}}"
    r"\s*(?:[.\-\u2013\u2014]|$)"
    r"|En [A-ZÁÉÍÓÚ][\w ]{2,30}, a (?:los|las) \w+ días? del mes"
    r"|D(?:ad[oa]s?|AD[OA]S?) (?:en|EN) (?:(?:el|la|EL|LA) )?[A-ZÁÉÍÓÚ]"
    r"|REGISTRAD[OA] BAJO EL"
    r"|(?:Por tanto|POR TANTO)\s*(?:[,:]?$|[,:]\s+[Mm]ando\b)|Mando a todos los"
    r"|(?:Comun[ií]quese|Reg[ií]strese|Publ[ií]quese|C[úu]mplase|Prom[úu]lguese)\b[^.]*"
    r"\b(?:promulgaci[óo]n|publ[ií]quese|c[úu]mplase|ejec[úu]tese|arch[ií]vese)\b"
    r"|Habi[ée]ndose cumplido con lo establecido en el|Y por cuanto he tenido a bien|Lo que transcribo a "
    r"|En cumplimiento de lo dispuesto por la fracción I del [Aa]rtículo 89"
    r"|This (?:Regulation|Directive|Decision) (?:shall be binding in its entirety|is addressed to)"
    r"|Done at [A-Z][a-z]+,"
)
# Offices and names, which count only after the last article.
_AT_THE_END = re.compile(
    r"(?:El|La|EL|LA) (?:Primer[oa]? )?(?:President|Secretari|Ministr|Re[iy]na?|PRESIDENT|SECRETARI|MINISTR|REY)"
    r"[^.;:]{0,90},?$"
    r"|REP[ÚU]BLICA D|e\. \d\d/\d\d/\d{4} N"
    # These also occur in forms that a section prescribes.
    r"|Given under (?:my|our) hands?\b|IN WITNESS WHEREOF|In witness whereof"
    r"|Approved by the Governor\b|Filed in (?:the )?[Oo]ffice"
    rf"|Approved (?:{_MONTHS_EN}) \d{{1,2}}, \d{{4}}\b|\d{{1,2}}(?:st|nd|rd|th) (?:{_MONTHS_EN}) \d{{4}}(?:$| [A-Z])"
    r"|_{10,}|I (?:hereby )?certify that [A-Z]|Signed by authority of"
    r"|Speaker of the House|President of the Senate|Vice President of the United States|Secretary of State\b"
    r"|Passed (?:by )?the (?:House|Senate|Assembly)\b|For the (?:Commission|Council|European Parliament)$"
)
# Titles of appended parts.
_NOTE = re.compile(
    r"(?:EXPLANATORY NOTES?|Explanatory Notes?|LEGISLATIVE HISTORY\b.*|NOTES?|NOTAS?(?: (?:EXPLICATIVAS?|DEL EDITOR))?"
    r"|ENDNOTES|REFERENDUM CERTIFICATE|VOTACI[OÓ]N|FE DE ERRATAS|TABLE OF (?:REPEALS|CASES|AMENDMENTS))\s*[.:]?$"
)
_DECREE = re.compile(
    r"(?:DECRETO|Decreto|LEY|Ley|FE DE ERRATAS) (?:por (?:el|la) que|de reformas?|que reforma|al Decreto)"
)
_PARTICLES = frozenset(("de", "del", "la", "las", "los", "y", "e", "van", "von", "of", "-", "\u2013"))


def end_matter_heading(text: str, before: str, *, is_behind: bool, in_transitory: bool) -> Heading | None:
    """Return the heading of the end matter that a line begins; ``is_behind``: no article follows any more."""
    if before and not before.endswith(LINE_ENDS) and not (is_behind and is_signature_line(before)):
        return None
    if _NOTE.match(text) and is_behind:
        return Heading("text", "", text.strip(" .:"), "")
    if in_transitory and _DECREE.match(text):
        return Heading("text", DECREE, "", text)
    if _FORMULA.match(text) or (is_behind and _AT_THE_END.match(text)):
        return Heading("text", "", "", text)
    return None


def is_signature_line(text: str) -> bool:
    words = text.split() if len(text) <= MAX_SIGNATURE_CHARS else []
    return bool(words) and all(word[0].isupper() or word in _PARTICLES for word in words)
