"""Message catalogs of tenants' pages and mails: their sentences are collected, the .po files updated, .mo compiled.

``make messages`` after a change of a sentence; new ones stand empty in ``locale/es`` then. It needs
no gettext tools. The catalogs hold what tenants read: of error codes the sentences for tenants and the details of
requests, not the sentences for staff, which are English.
"""

import ast
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any, cast
from unittest import mock

import django
from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_file
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from django.conf import settings
from django.template import engines
from django.template.base import NodeList
from django.templatetags.i18n import BlockTranslateNode, TranslateNode
from django.utils import translation

from accounts import rate_limit
from accounts.errors import Context, error_codes

LANGUAGE = "es"
DOMAINS = ("django", "djangojs")
TEMPLATES = ("portal", "mails")
SCRIPTS = ("portal/static/portal/portal.js",)
LABELS = ("accounts/models.py", "documents/models.py")
WITH_SENTENCES = ("portal", "documents", "outbox", "search", "embeddings")  # whose services' sentences pages show
STAFF_CODES_ON_PAGES = ("FORM_EXPIRED",)
WITHOUT = ("error_codes.py",)  # collected from the registry
FUNCTIONS = {"_": 1, "gettext": 1, "translate": 1, "ngettext": 2}  # and how many of their arguments are sentences
HEADER = "# Spanish (Latin America, usted) of tenants' pages and mails. See testing/message_catalogs.py."


def folder() -> Path:
    return Path(settings.LOCALE_PATHS[0]) / LANGUAGE / "LC_MESSAGES"


def collect(domain: str) -> Catalog:
    """Return the sentences of a domain as a catalog without translations."""
    catalog = Catalog(locale=LANGUAGE, domain=domain, fuzzy=False)
    found = _script_messages() if domain == "djangojs" else _page_messages()
    for context, message in sorted(set(found), key=lambda each: (each[1], each[0] or "")):
        catalog.add(message if len(message) > 1 else message[0], context=context)
    return catalog


Message = tuple[str | None, tuple[str, ...]]  # context; singular, plural


def _page_messages() -> Iterator[Message]:
    yield from template_messages()
    yield from error_messages()
    for path in [*map(Path, LABELS), *_python_files()]:
        yield from python_messages(Path(settings.BASE_DIR) / path)


def _python_files() -> Iterator[Path]:
    for package in WITH_SENTENCES:
        for path in sorted((Path(settings.BASE_DIR) / package).rglob("*.py")):
            if "tests" not in path.parts and path.name not in WITHOUT and "utils.translation" in path.read_text():
                yield path.relative_to(settings.BASE_DIR)


def python_messages(path: Path) -> Iterator[Message]:
    """Read the syntax tree: Babel's tokens hide what stands in an f-string."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
            yield None, tuple(ast.literal_eval(sentence) for sentence in node.args[: FUNCTIONS[node.func.id]])


def _script_messages() -> Iterator[Message]:
    keywords: dict[str, Any] = {"gettext": None, "ngettext": (1, 2)}
    options = {"parse_template_string": True}
    for script in SCRIPTS:
        path = Path(settings.BASE_DIR) / script
        for _, message, _, _ in extract_from_file("javascript", path, keywords=keywords, options=options):
            yield None, (message,) if isinstance(message, str) else message


def error_messages() -> Iterator[Message]:
    """Record what is translated while every sentence of the registry that a tenant may read is formatted."""
    import_module(settings.ROOT_URLCONF)  # which imports all modules that declare codes
    codes = [code for context in Context for code in error_codes(context).values()]
    sentences = [code.tenant_message for code in codes if code.tenant_message]
    requests = error_codes(Context.REQUEST).values()
    sentences += [code.detail for code in requests if not code.staff_message or code in STAFF_CODES_ON_PAGES]
    sentences += [limit.detail for limit in vars(rate_limit).values() if isinstance(limit, rate_limit.Limit)]
    recorded: list[str] = []
    with mock.patch.object(translation._trans, "gettext", lambda text: recorded.append(text) or text):  # type: ignore[attr-defined, func-returns-value]
        for sentence in sentences:
            str(sentence)
    return ((None, (text,)) for text in recorded)


def page_templates() -> Iterator[tuple[str, NodeList]]:
    engine = engines["django"]
    root = Path(settings.BASE_DIR) / "templates"
    for path in sorted(path for name in TEMPLATES for path in (root / name).rglob("*.*")):
        name = str(path.relative_to(root))
        yield name, engine.get_template(name).template.nodelist  # type: ignore[attr-defined]


def template_messages() -> Iterator[Message]:
    for _, nodes in page_templates():
        for node in cast(list[Any], nodes.get_nodes_by_type(TranslateNode)):
            context = node.message_context.resolve({}) if node.message_context else None
            yield context, (str(node.filter_expression.var.literal or node.filter_expression.var),)
        for node in nodes.get_nodes_by_type(BlockTranslateNode):
            yield None, tuple(_block_texts(node))


def _block_texts(node: Any) -> Iterator[str]:
    yield node.render_token_list(node.singular)[0]
    if node.plural:
        yield node.render_token_list(node.plural)[0]


def read(domain: str) -> Catalog:
    with (folder() / f"{domain}.po").open("rb") as file:
        catalog = read_po(file, locale=LANGUAGE, domain=domain)
    catalog.creation_date = catalog.revision_date = datetime(2026, 1, 1, tzinfo=UTC)  # the same bytes every time
    return catalog


def merge(old: Catalog, collected: Catalog) -> Catalog:
    """Return the collected sentences with the old translations; those that nothing shows any more are dropped."""
    for message in collected:
        known = old.get(message.id, message.context) if message.id else None
        if known is not None:
            message.string = known.string
    collected.header_comment = HEADER
    return collected


def compile_mo(catalog: Catalog) -> bytes:
    buffer = BytesIO()
    write_mo(buffer, catalog)
    return buffer.getvalue()


def po_text(catalog: Catalog) -> bytes:
    buffer = BytesIO()
    write_po(buffer, catalog, width=118, omit_header=False, sort_output=True)
    lines = buffer.getvalue().decode().splitlines()
    dated = ('"POT-Creation-Date', '"PO-Revision-Date', '"Generated-By', '"Project-Id', '"Report-Msgid', '"Last-Tr')
    return ("\n".join(line for line in lines if not line.startswith(dated)) + "\n").encode()


def update() -> Iterable[str]:
    """Write the .po and .mo files; return the sentences that have no translation."""
    missing = []
    for domain in DOMAINS:
        catalog = merge(read(domain), collect(domain))
        (folder() / f"{domain}.po").write_bytes(po_text(catalog))
        (folder() / f"{domain}.mo").write_bytes(compile_mo(read(domain)))
        missing += [str(message.id) for message in catalog if message.id and not all(strings(message))]
    return missing


def strings(message: Any) -> tuple[str, ...]:
    return message.string if isinstance(message.string, tuple) else (message.string,)


if __name__ == "__main__":
    django.setup()
    for sentence in update():
        print(f"No translation: {sentence}")
