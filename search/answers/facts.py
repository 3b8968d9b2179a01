"""Facts of a sentence that an answer must not invent: figures, amounts, percentages, dates, spans of time and names."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import StrEnum


class FactKind(StrEnum):
    CONTACT = "contact"
    DATE = "date"
    MONEY = "money"
    PERCENT = "percent"
    DURATION = "duration"
    NUMBER = "number"
    NAME = "name"
    CLAIM = "claim"


@dataclass(frozen=True, slots=True)
class Fact:
    """``text`` is normalized; ``unit`` is that of a duration, or the currency of an amount."""

    kind: FactKind
    text: str
    unit: str = ""


_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january jan enero", "february feb febrero", "march mar marzo", "april apr abril", "may mayo",
            "june jun junio", "july jul julio", "august aug agosto", "september sept sep septiembre",
            "october oct octubre", "november nov noviembre", "december dec diciembre",
        ),
        start=1,
    )
    for name in names.split()
}  # fmt: skip
_MONTH = rf"(?:{'|'.join(sorted(_MONTHS, key=len, reverse=True))})"
_UNITS = {
    "hour": "hour", "hora": "hour", "day": "day", "día": "day", "dia": "day", "week": "week", "semana": "week",
    "month": "month", "me": "month", "mese": "month", "year": "year", "año": "year",
}  # fmt: skip
_UNIT = r"(?:hour|hora|day|d[ií]a|week|semana|month|year|año)s?\b|mes(?:es)?\b"
_NUMBER = r"(?<!\d)(?<!\d[.,])\d++(?:[.,]\d++)*+"  # possessive: a list of thousands of numbers is read once
FIGURE = re.compile(_NUMBER)
_MINUS = r"(?<![\w)$%])[-\u2212]"  # "$100-$500" has none
_TO_NINETEEN = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SMALL = {word: number for number, word in enumerate(_TO_NINETEEN)}
_SMALL |= {word: 10 * number for number, word in enumerate(_TENS, 2)}
# Without "once", 11, which is an English word too.
_SPANISH = {
    "cero": 0, "dos": 2, "tres": 3, "cuatro": 4, "cinco": 5, "seis": 6, "siete": 7, "ocho": 8, "nueve": 9, "diez": 10,
    "doce": 12, "trece": 13, "catorce": 14, "quince": 15, "dieciséis": 16, "dieciseis": 16, "diecisiete": 17,
    "dieciocho": 18, "diecinueve": 19, "veinte": 20, "veintiuno": 21, "veintiún": 21, "veintidós": 22, "veintidos": 22,
    "veintitrés": 23, "veintitres": 23, "veinticuatro": 24, "veinticinco": 25, "veintiséis": 26, "veintiseis": 26,
    "veintisiete": 27, "veintiocho": 28, "veintinueve": 29, "treinta": 30, "cuarenta": 40, "cincuenta": 50,
    "sesenta": 60, "setenta": 70, "ochenta": 80, "noventa": 90, "cien": 100, "ciento": 100, "doscientos": 200,
    "trescientos": 300, "cuatrocientos": 400, "quinientos": 500, "seiscientos": 600, "setecientos": 700,
    "ochocientos": 800, "novecientos": 900,
}  # fmt: skip
_SMALL |= _SPANISH
_SCALES = {
    "hundred": 100, "thousand": 1_000, "million": 1_000_000, "billion": 10**9, "trillion": 10**12, "mil": 1_000,
    "millón": 1_000_000, "millon": 1_000_000, "millones": 1_000_000,
}  # fmt: skip
_LETTERS = {"": 1, "k": 1_000, "m": 1_000_000, "b": 10**9}  # $5K
_WORD = rf"(?:(?<!por )(?:{'|'.join((*_SMALL, *_SCALES))}))"  # "por ciento" is a percentage
_NUMBER_WORDS = re.compile(rf"\b{_WORD}(?:(?:[\s-]|\sand\s|\sy\s){_WORD})*\b", re.IGNORECASE)
_CURRENCIES = {
    "$": "$", "€": "EUR", "£": "GBP", "¥": "JPY", "usd": "USD", "mxn": "MXN", "eur": "EUR", "dollar": "USD",
    "euro": "EUR", "peso": "MXN",
}  # fmt: skip
_SAME_CURRENCY = {"$": ("USD", "MXN"), "USD": ("$",)}
_PESOS = frozenset({"mxn", "peso", "pesos"})

# In this order: what one has matched, the following ones do not see.
_PATTERNS = {
    FactKind.CONTACT: re.compile(
        r"(?P<address>(?<![\w.+-])[\w.+-]++@[\w-]++\.[\w.-]*\w|(?:https?://|www\.)[^\s<>)\]]*[\w/])"
        r"|(?P<phone>(?<!\d)\(?\d{3}\)?[\s.-]\d{3}[\s.-]\d{4}(?!\d))",
        re.IGNORECASE,
    ),
    FactKind.DATE: re.compile(
        rf"\b(?P<y1>\d{{4}})[-/](?P<m1>\d\d)[-/](?P<d1>\d\d)\b"
        rf"|\b(?P<m2>\d{{1,2}})/(?P<d2>\d{{1,2}})/(?P<y2>\d{{4}}|\d\d)\b"
        rf"|\b(?P<d6>\d{{1,2}})\.(?P<m6>\d{{1,2}})\.(?P<y6>\d{{4}})\b"
        rf"|\b(?P<m3>{_MONTH})\.? (?P<d3>\d{{1,2}})(?:st|nd|rd|th)?\b(?!\.\d)(?:,? (?P<y3>\d{{4}})\b)?"
        rf"|\b(?P<d4>\d{{1,2}})(?:st|nd|rd|th)? (?:de |of )?(?P<m4>{_MONTH})\b(?:,? (?:de )?(?P<y4>\d{{4}})\b)?"
        rf"|\b(?P<m5>{_MONTH}),? (?P<y5>\d{{4}})\b",
        re.IGNORECASE,
    ),
    FactKind.MONEY: re.compile(
        rf"(?P<minus>{_MINUS})?(?P<sign>[$€£¥]|\b(?:USD|MXN|EUR)) ?(?P<less>[-\u2212])?(?P<before>{_NUMBER})"
        rf"(?:(?P<scale>[KMB])\b)?"
        rf"|(?P<negative>{_MINUS})?(?P<after>{_NUMBER}) ?(?P<unit>dollar|euro|peso|USD|MXN|EUR)s?\b",
        re.IGNORECASE,
    ),
    FactKind.PERCENT: re.compile(
        rf"(?P<number>(?:{_MINUS})?{_NUMBER}) ?(?:%|per[ -]?cent\b|por ciento\b)", re.IGNORECASE
    ),
    FactKind.DURATION: re.compile(
        rf"(?P<number>{_NUMBER})\)?[\s-]*(?:(?:calendar|business|working|consecutive|full|plan)[\s-])?"
        rf"(?P<unit>{_UNIT})",
        re.IGNORECASE,
    ),
    FactKind.NUMBER: re.compile(rf"(?P<number>(?:{_MINUS})?{_NUMBER})"),
}
MAX_DIGITS = 24
_CAPITALIZED = re.compile(r"(?<![\w'\u2019])[^\W\d_][\w&]*")
# Figures and amounts that are words.
_CLAIM = re.compile(
    r"\b(?:free|unlimited|limitless|waived|guaranteed|gratis|gratuit[ao]s?|ilimitad[ao]s?"
    r"|half|twice|double|triple|dozens?|mitad|doble|docenas?)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?:\A|[.!?:;]\s+|\n)[\W_]*\Z")
_WORDS = re.compile(r"[^\W\d_]+")


# Words that may begin any sentence. Another one that no passage has may be a name.
_OPENERS = """
a an the this that these those there it its you your they their he she his her we our if when where while for from in
on at by to of with without within before after during until under over up each every any all both no not yes only
most some one two and or but so as also however otherwise unless because since
el la los las lo un una su sus se si sí no en de del al por para con sin y o pero cuando que es son esta este
"""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of a text. ``words`` are all of its words, in lower case."""

    stated: frozenset[Fact]
    words: frozenset[str]

    @classmethod
    def read(cls, text: str) -> "Facts":
        rest, stated = spell_figures(text), set[Fact]()
        for kind, pattern in _PATTERNS.items():
            stated.update(fact for match in pattern.finditer(rest) for fact in _PARSERS[kind](match))
            rest = pattern.sub(lambda match: " " * len(match[0]), rest)
        stated.update(Fact(FactKind.NAME, name) for name in _names(text))
        stated.update(Fact(FactKind.CLAIM, claim.lower()) for claim in _CLAIM.findall(text))
        return cls(frozenset(stated), frozenset(word.lower() for word in _WORDS.findall(text)))

    def support(self, fact: Fact) -> bool:
        """Tell whether these facts state ``fact``, of another text."""
        if fact in self.stated:
            return True
        match fact.kind:
            case FactKind.NAME:
                return not self.words.isdisjoint(_inflections(fact.text))
            case FactKind.DATE:
                return any(self._is_date(each, fact) for each in self.stated if each.kind == FactKind.DATE)
            case FactKind.MONEY:
                return any(Fact(FactKind.MONEY, fact.text, unit) in self.stated for unit in self._currencies(fact.unit))
            case FactKind.DURATION:  # the cell of a table, below a head that has the unit
                is_bare = Fact(FactKind.NUMBER, fact.text) in self.stated
                return is_bare and any(_time_unit(word) == fact.unit for word in self.words)
            case FactKind.NUMBER:
                return any(each.kind == FactKind.DURATION and each.text == fact.text for each in self.stated)
        return False

    def _currencies(self, unit: str) -> tuple[str, ...]:
        """Return other signs of a currency: $ is of dollars, and of pesos where the text speaks of these."""
        if unit == "MXN":
            return () if self.words.isdisjoint(_PESOS) else ("$",)
        return _SAME_CURRENCY.get(unit, ())

    def _is_date(self, own: Fact, other: Fact) -> bool:
        """Compare dates as far as ``other`` goes; a year may stand elsewhere in the text."""
        own_year, own_month, own_day = own.text.split("-")
        year, month, day = other.text.split("-")
        same_year = year in ("", own_year) or (not own_year and Fact(FactKind.NUMBER, year) in self.stated)
        return month == own_month and day in ("", own_day) and same_year


def spell_figures(text: str) -> str:
    """Return the text with its number words as figures; a lone "one" is none."""
    return _NUMBER_WORDS.sub(lambda match: match[0] if match[0].lower() == "one" else _figure(match[0]), text)


def _figure(words: str) -> str:
    total = current = 0
    for word in re.split(r"[\s-]+", words.lower()):
        if word in _SMALL:
            current += _SMALL[word]
        elif word in _SCALES:
            current = max(current, 1) * _SCALES[word]
            if word != "hundred":
                total, current = total + current, 0
    return str(total + current)


def normalize_number(text: str) -> str:
    """Return 1500 for 1,500.00: without separators of thousands and without zeros at the end of a fraction."""
    if len(text) > MAX_DIGITS:
        return text
    plain = re.sub(r",(?=\d{3}(?!\d))", "", text).replace(",", ".").replace("\u2212", "-")
    try:
        number = Decimal(plain)
    except InvalidOperation:  # 1.2.3, the number of a section
        return text
    return f"{number.normalize():f}"


def _time_unit(word: str) -> str:
    return _UNITS.get(word.lower().removesuffix("s"), "")


def _numbers(kind: FactKind, text: str) -> Iterator[Fact]:
    yield Fact(kind, normalize_number(text))


def _money(match: re.Match[str]) -> Iterator[Fact]:
    amount, scale = normalize_number(match["before"] or match["after"]), (match["scale"] or "").lower()
    if scale and re.fullmatch(r"\d+(?:\.\d+)?", amount):
        amount = f"{(Decimal(amount) * _LETTERS[scale]).normalize():f}"
    is_negative = match["minus"] or match["less"] or match["negative"]
    yield Fact(
        FactKind.MONEY, f"-{amount}" if is_negative else amount, _CURRENCIES[(match["sign"] or match["unit"]).lower()]
    )


def _contact(match: re.Match[str]) -> Iterator[Fact]:
    yield Fact(FactKind.CONTACT, match["address"].lower() if match["address"] else re.sub(r"\D", "", match["phone"]))


def _dates(match: re.Match[str]) -> Iterator[Fact]:
    """Yield ``year-month-day``, with nothing in place of what is not said, and the year as a number."""
    parts = {name[0]: text for name, text in match.groupdict().items() if text}
    month = parts["m"].lower()
    numbers = [str(_MONTHS.get(month, month)), parts.get("d", "")]
    month, day = (number.lstrip("0") for number in numbers)
    year = parts.get("y", "")
    year = f"20{year}" if len(year) == 2 else year
    yield Fact(FactKind.DATE, f"{year}-{month}-{day}")
    if year:
        yield Fact(FactKind.NUMBER, year)


def _durations(match: re.Match[str]) -> Iterator[Fact]:
    yield Fact(FactKind.DURATION, normalize_number(match["number"]), _time_unit(match["unit"]))


_PARSERS: dict[FactKind, Callable[[re.Match[str]], Iterator[Fact]]] = {
    FactKind.CONTACT: _contact,
    FactKind.DATE: _dates,
    FactKind.MONEY: _money,
    FactKind.PERCENT: lambda match: _numbers(FactKind.PERCENT, match["number"]),
    FactKind.DURATION: _durations,
    FactKind.NUMBER: lambda match: _numbers(FactKind.NUMBER, match["number"]),
}


def _names(text: str) -> Iterator[str]:
    """Yield the capitalized words, in lower case, without the months and without ordinary openers of a sentence.

    In a script without capitals every word may be a name.
    """
    for match in _CAPITALIZED.finditer(text):
        word = match[0].lower()
        is_ordinary = word in _OPENERS.split() and _SENTENCE_END.search(text[max(0, match.start() - 8) : match.start()])
        if not match[0][0].islower() and word not in _MONTHS and not is_ordinary:
            yield word


def _inflections(word: str) -> set[str]:
    return {word, f"{word}s", f"{word}es", word.removesuffix("s"), word.removesuffix("es")}
