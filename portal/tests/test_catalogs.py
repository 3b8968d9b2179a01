"""Message catalogs: complete, exact, compiled; every text of the tenants' templates, mails and script is marked."""

import ast
import re
from html.parser import HTMLParser
from pathlib import Path
from string import Formatter
from typing import Any

import pytest
from django.conf import settings

from testing import message_catalogs

ROOT = Path(settings.BASE_DIR)
HOW = "Run `make messages`, then translate the sentences that it prints."
PLACEHOLDERS = re.compile(r"%\(\w+\)s|%s|<[^>]*>|https?:\S+")
SHOWN_ATTRIBUTES = ("alt", "aria-label", "placeholder", "title", "content", "value")
# The brand, units, the languages' own names, and what is no text.
UNTRANSLATED = re.compile(
    r"Accessa|UTC|\bms\b|English|Español|width=device-width, initial-scale=1|light dark|noindex|\{.*\}|^[a-z0-9_-]+$"
)
BLOCK = re.compile(r"{% blocktranslate.*?{% endblocktranslate %}|{%.*?%}|{{.*?}}", re.S)


@pytest.mark.parametrize("domain", message_catalogs.DOMAINS)
def test_each_sentence_has_its_translation_and_no_other_is_kept(domain: str) -> None:
    written, collected = message_catalogs.read(domain), message_catalogs.collect(domain)

    assert {(m.id, m.context) for m in written} == {(m.id, m.context) for m in collected}, HOW
    unfinished = [m.id for m in written if m.id and (m.fuzzy or not all(message_catalogs.strings(m)))]
    assert unfinished == []


@pytest.mark.parametrize("domain", message_catalogs.DOMAINS)
def test_translations_keep_placeholders_and_markup(domain: str) -> None:
    different = [
        (message.id, text)
        for message in message_catalogs.read(domain)
        for text in message_catalogs.strings(message)
        if message.id and _parts(text) != _parts(message.id if isinstance(message.id, str) else message.id[-1])
    ]

    assert different == []


def _parts(text: str) -> list[str]:
    fields = [field for _, field, _, _ in Formatter().parse(text) if field is not None]
    return sorted([*PLACEHOLDERS.findall(text), *fields])


@pytest.mark.parametrize("domain", message_catalogs.DOMAINS)
def test_the_compiled_catalog_agrees_with_its_source(domain: str) -> None:
    compiled = (message_catalogs.folder() / f"{domain}.mo").read_bytes()

    assert compiled == message_catalogs.compile_mo(message_catalogs.read(domain)), HOW


def test_quotes_of_a_translation_cannot_end_an_attribute() -> None:
    """Translations are trusted in attributes as the templates' own text is."""
    in_attributes = {
        found
        for path in (ROOT / "templates" / "portal").rglob("*.html")
        for found in re.findall(r"=\"{% translate '([^']+)' %}\"", path.read_text())
    }
    catalog = message_catalogs.read("django")

    assert [text for text in in_attributes if '"' in str(catalog[text].string)] == []
    assert in_attributes


class LiteralText(HTMLParser):
    """Collect what a reader would see of a template whose tags are taken out."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(BLOCK.sub("", source))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name in SHOWN_ATTRIBUTES and value]

    def handle_data(self, data: str) -> None:
        self.found.append(data)

    @property
    def untranslated(self) -> list[str]:
        left = [UNTRANSLATED.sub("", text.strip()) for text in self.found]
        return [text for text in left if re.search(r"[^\W\d_]", text)]


@pytest.mark.parametrize(
    "source",
    ["<p>Hello</p>", '<a aria-label="Hello {{ name }}">', "{% if a %}Hello{% endif %}", '<input placeholder="Hello">'],
)
def test_unmarked_text_is_found(source: str) -> None:
    assert LiteralText(source).untranslated


def test_every_text_of_the_templates_is_marked() -> None:
    paths = [path for folder in message_catalogs.TEMPLATES for path in (ROOT / "templates" / folder).rglob("*.*")]
    unmarked = {path.name: LiteralText(path.read_text()).untranslated for path in paths}

    assert {name: texts for name, texts in unmarked.items() if texts} == {}
    assert len(paths) > 40


def _literals(path: Path) -> list[str]:
    """Return the sentences that a view shows as they are: messages, labels, help texts, errors of forms."""
    found: list[Any] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called.startswith("messages.") or called.endswith("ValidationError"):
            found += node.args
        found += [keyword.value for keyword in node.keywords if keyword.arg in ("label", "help_text")]
    return [ast.unparse(each) for each in found if isinstance(each, (ast.Constant, ast.JoinedStr))]


def test_every_sentence_of_the_views_is_marked() -> None:
    paths = [path for path in (ROOT / "portal").rglob("*.py") if "tests" not in path.parts]

    assert {path.name: _literals(path) for path in paths if _literals(path)} == {}


def test_every_sentence_of_the_script_is_marked() -> None:
    script = (ROOT / "portal/static/portal/portal.js").read_text()
    code = re.sub(r"n?gettext\([^()]*\)|//[^\n]*", "", script)
    sentences = re.findall(r"[\"`]((?:[A-Z][a-z]+|[^\"`\n]*[a-z]{2,} [a-z]{2,})[^\"`\n]*[.:…])[\"`]", code)

    assert sentences == []
