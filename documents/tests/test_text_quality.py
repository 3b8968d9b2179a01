"""Pages of garbage are told from pages of text, whatever the language."""

import base64
import gettext
import hashlib
import inspect
import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import django
import pytest

from documents.parsers import pdf_parser, text_quality
from testing.pdfs import SavePdf, text_pdf
from testing.personas import Person

TRANSLATIONS = Path(django.__file__).parent / "contrib/admin/locale"  # not what SURPRISE was learnt from
LATIN = (
    "af", "az", "ca", "cs", "cy", "da", "de", "es", "et", "eu", "fi", "fr", "ga", "hr", "hu", "id", "is", "it", "lt",
    "lv", "nb", "nl", "pl", "pt", "ro", "sk", "sl", "sq", "sv", "sw", "tr", "vi",
)  # fmt: skip
OTHERS = (
    "ar", "bg", "bn", "el", "fa", "he", "hi", "hy", "ja", "ka", "kk", "km", "ko", "ml", "mn", "ru", "sr", "ta", "th",
    "uk", "ur", "zh_Hans", "zh_Hant",
)  # fmt: skip
PAGE = 1_500
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def language(code: str) -> str:
    """Return a page of messages in a language."""
    with (TRANSLATIONS / code / "LC_MESSAGES/django.mo").open("rb") as file:
        catalog = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    messages = [text for key, text in catalog.items() if key and isinstance(text, str)]
    return re.sub(r"%\(\w+\)s|%s|\{\w+\}|<[^>]*>", "Ana", "\n".join(messages))[:PAGE]


@pytest.mark.parametrize("code", LATIN + OTHERS)
def test_every_language_is_readable(code: str) -> None:
    text = language(code)

    assert text_quality.is_readable(text)
    assert all(text_quality.is_readable(text[start : start + 250]) for start in range(0, len(text), 250))


PROSE = language("es")

rng = random.Random(1)
CODES = [f"{rng.choice('ABCEGHJKLQS')}{rng.randrange(10_000):04}" for _ in range(300)]
HASHES = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(30)]
GRID = "| | Gold | Silver |\n|---|---|---|\n"
NATURAL = {
    "codes": " ".join(CODES),
    "codes with descriptions": "\n".join(f"{code} Injection, {5 * place} mg" for place, code in enumerate(CODES)),
    "hashes": "\n".join(HASHES),
    "base64": "\n".join(re.findall(".{64}", base64.b64encode(rng.randbytes(2_000)).decode())),
    "figures": "\n".join(
        f"| {rng.random():.2f} | ${rng.randrange(10**6):,} | {rng.randrange(100)} % |" for _ in range(90)
    ),
    "source": inspect.getsource(text_quality),
    "acronyms": "HMO PPO EPO POS HDHP HSA FSA HRA COB EOB PCP OON INN MOOP SBC SPD PBM DME SNF ESRD COBRA ERISA CHIP "
    * 3,
    "contents": "\n".join(f"{number}. Exclusions {'.' * 60} {number}" for number in range(30)),
    "spaced contents": "\n".join(f"{number}. Exclusions {'. ' * 40} {number}" for number in range(30)),
    "form": "Name: ____________ Date: __ / __ / ____\n( ) Yes ( ) No\n" * 10,
    "answers": " ".join(rng.choice("ABCD") for _ in range(300)),
    "ticks": GRID + "| Dental | \uf0fc | \uf0fb |\n" * 20,
    "links": "\n".join(f"https://www.example.com/plans/2026/benefits-{number}.html" for number in range(40)),
    "capitals": "THE PLAN PAYS THE HOSPITAL AFTER THE DEDUCTIBLE. PRIOR AUTHORIZATION IS REQUIRED. " * 5,
    "genes": "".join(rng.choice("ACGT") for _ in range(800)),
    "formulas": "β = Σ xᵢ + ∂f/∂x ≤ ∫ g(t) dt ; σ² = E[(X - μ)²] ; λ ∈ Λ ; θ ≈ Δφ / Ψω ; " * 8,
    "compounds": "Die Lebensversicherungsgesellschaft zahlt, was die Kraftfahrzeughaftpflichtversicherung nicht zahlt. "
    * 9,
    "identifiers": "getElementById setInnerText eGFR mRNA kWh maxOutOfPocket planYearStart pH iPhone PhD " * 6,
    "taglines": "\n".join(language(code)[200:290] for code in (*OTHERS, "vi", "es", "pl", "fr")),
    "short": "\uf0b7 \uf0b7 \uf0b7",
    "blank": "",
}


@pytest.mark.parametrize("name", NATURAL)
def test_what_is_no_prose_is_readable(name: str) -> None:
    assert text_quality.is_readable(NATURAL[name])
    parts = "\n\n".join([NATURAL[name].replace("\n", "\n\n"), PROSE])
    assert text_quality.remove_unreadable([parts]).pages == [parts]


def substitute(text: str, alphabet: str) -> str:
    shuffled = random.Random(7).sample(alphabet, len(alphabet))
    return text.translate(str.maketrans(alphabet, "".join(shuffled)))


def misread(written: str, read: str) -> Callable[[str], str]:
    return lambda text: re.sub("[\x00-\x1f\x7f-\x9f]", "", text.encode(written, "ignore").decode(read, "ignore"))


GARBAGE: dict[str, tuple[Callable[[str], str], str]] = {
    "glyph numbers for letters": (
        lambda text: "".join(chr(max(32, ord(letter) - 29)) for letter in text), "de es fi pl",
    ),
    "letters substituted": (lambda text: substitute(text.lower(), LETTERS), "de es fi fr hu it pl"),
    "private use": (lambda text: "".join(chr(0xE000 + ord(letter) % 0x1000) for letter in text), "de ru ar ja"),
    "replacement characters": (lambda text: re.sub(r"\w\w", "\ufffd\ufffd", text), "de ja"),
    "glyph numbers for any character": (
        lambda text: "".join(chr(0x100 + ord(letter) * 7_919 % 0x2F00) for letter in text), "de ja ru",
    ),
    "GBK as Latin-1": (misread("gbk", "latin-1"), "zh_Hans"),
    "GBK as Windows-1252": (misread("gbk", "cp1252"), "zh_Hans"),
    "Big5 as Latin-1": (misread("big5", "latin-1"), "zh_Hant"),
    "Shift JIS as Windows-1252": (misread("shift_jis", "cp1252"), "ja"),
    "EUC-KR as Latin-1": (misread("euc_kr", "latin-1"), "ko"),
    "Windows-1251 as Latin-1": (misread("cp1251", "latin-1"), "ru bg"),
    "UTF-8 as Latin-1": (misread("utf-8", "latin-1"), "ru ja zh_Hans"),
    "mirrored": (lambda text: text[::-1], "de ar el he"),
    "glued": (lambda text: re.sub(r"\s", "", text), "de es fi pl fr ru he ar"),
    "split": (" ".join, "de es fi pl fr ru he ar vi"),
    "split in twos": (lambda text: " ".join(re.findall(r"\w\w?", text)), "de es fi pl"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "code"), [(kind, code) for kind in GARBAGE for code in GARBAGE[kind][1].split()])
def test_garbage_is_unreadable(kind: str, code: str) -> None:
    assert not text_quality.is_readable(GARBAGE[kind][0](language(code)))


# Documents

GOOD = PROSE.encode("cp1252", "ignore").decode("cp1252")[:800]
BAD = substitute(GOOD.lower(), LETTERS)
OTHER_PROSE = " ".join(language("nl").split())[:600]


def test_the_child_names_unreadable_pages_and_blanks_them(save_pdf: SavePdf) -> None:
    half = f"{GOOD}\n\n{OTHER_PROSE}\n\n{BAD}"

    parsed = pdf_parser.parse_pdf(save_pdf(text_pdf(GOOD, BAD, "", half)), pages=4)

    assert parsed.unreadable == [2]
    assert [bool(page) for page in parsed.markdown] == [True, False, False, True]
    assert parsed.doubtful == [4]
    assert share([GOOD, OTHER_PROSE], parsed.markdown[3]) > 0.7
    assert share(set(BAD.split()) - set(GOOD.split()), parsed.markdown[3]) < 0.3


@pytest.mark.parametrize("kind", ["glyph numbers for letters", "letters substituted", "private use"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_part_of_a_page_is_removed_and_half_of_it_is_all(kind: str, is_first: bool) -> None:
    bad = GARBAGE[kind][0](language("de"))[:500]
    good = [language("nl")[start : start + 500] for start in (0, 500, 1_000)]

    def page(*readable: str) -> str:
        return "\n\n".join([bad, *readable] if is_first else [*readable, bad])

    text = text_quality.remove_unreadable([page(*good), page(good[0][:200]), good[0]])

    assert (text.partial, text.unreadable) == ([1], [2])
    assert text.pages[1:] == ["", good[0]]
    assert share(good, text.pages[0]) > 0.7
    assert share([bad], text.pages[0]) < 0.3


def share(texts: Iterable[str], page: str) -> float:
    """Return the share of the words that are on a page."""
    words = " ".join(texts).split()
    return sum(word in page.split() for word in words) / len(words)


@pytest.mark.django_db
def test_an_unreadable_page_is_a_failed_page(ana: Person) -> None:
    uploaded = ana.ingest(text_pdf(GOOD, BAD))

    assert uploaded.job.state == "done"
    assert ana.get(f"/documents/{uploaded.document_id}").json()["failed_pages"] == [2]


@pytest.mark.django_db
def test_a_document_without_a_readable_page_ends_as_a_scan(ana: Person) -> None:
    assert ana.ingest(text_pdf(BAD, "")).failure == "NO_TEXT_LAYER"
