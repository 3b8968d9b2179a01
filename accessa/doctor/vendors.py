"""Those who are paid, and the engines here: asked once for as little as there is."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction

from accessa.checks import check_embedding_models
from accessa.doctor.database import told
from accessa.doctor.http import Said, Silent, ask
from accessa.doctor.runner import Finding, Level, doubtful, not_needed, note, wrong
from documents import parsers
from documents.parsers import ocr as reader
from embeddings import embedders
from embeddings.embedders import DIMENSIONS, Embedder
from embeddings.embedders.http_base import NO_SLOT, parse_json, validate_vectors
from embeddings.embedders.openai import OpenAI
from jobs.outcomes import Permanent, Postponed, Retryable
from vendors import guard
from vendors.guard import InvalidResponse, VendorRefused
from vendors.models import Breaker, RateLimit

PDF = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 100]/Contents 4 0 R"
    b"/Resources<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>endobj\n"
    b"4 0 obj<</Length 46>>\nstream\nBT /F1 18 Tf 20 50 Td (The doctor is in) Tj ET\nendstream endobj\n"
    b"trailer<</Root 1 0 R>>\n%%EOF\n"
)
WORDS = "doctor"
KEY_REMEDY = "Make a new key with the vendor, and set {} for API and workers."


def llamaparse() -> Iterator[Finding]:
    """A list of one parse costs nothing, and wants the key (https://developers.llamaindex.ai/llamaparse)."""
    if settings.PARSER != "llamaparse":
        yield not_needed(f"PARSER={settings.PARSER}")
        return
    headers = {"authorization": f"Bearer {settings.LLAMAPARSE_API_KEY}"}
    try:
        answer = ask("GET", f"{settings.LLAMAPARSE_BASE_URL.rstrip('/')}/api/v2/parse?page_size=1", headers=headers)
    except Silent as silent:
        yield _unreachable("LlamaParse", str(silent), "LLAMAPARSE_BASE_URL")
        return
    if answer.status == 200 and not isinstance(answer.told.get("items"), list):
        yield wrong("What answers at LLAMAPARSE_BASE_URL is not LlamaParse.", "Correct LLAMAPARSE_BASE_URL.")
    elif answer.status != 200:
        yield _answered("LlamaParse", answer.status, "LLAMAPARSE_API_KEY", "LLAMAPARSE_BASE_URL")


def _answered(vendor: str, status: int, key: str, url: str) -> Finding:
    if status in (401, 403):
        return wrong(f"{vendor} refuses its key ({status}).", KEY_REMEDY.format(key))
    if status == 402:
        return wrong(
            f"{vendor}'s account has no credit left (402).", "Top it up; the jobs that wait go on by themselves."
        )
    if status == 429:
        return wrong(f"{vendor} has had too many calls (429).", "Lower our rate, or raise the account's limits.")
    if status >= 500:
        return wrong(
            f"{vendor} has a fault of its own ({status}).", "Wait: jobs wait too. Look at the vendor's status page."
        )
    return wrong(f"{vendor} answers {status}.", f"Correct {url}.")


def _unreachable(vendor: str, why: str, url: str) -> Finding:
    return wrong(f"{vendor} does not answer: {why}.", f"Let this machine out to it, or correct {url}.")


# Embedding


class _OneToken(OpenAI):
    """The same call; the model's name is read as well."""

    def ask(self) -> dict[str, Any]:
        return parse_json(self._asked([WORDS], NO_SLOT)[0])


def embedder() -> Iterator[Finding]:
    """Embed a word, then look whether all tenants' models can be asked."""
    found = list(_embedded())
    yield from found
    if not any(finding.level is Level.ERROR for finding in found):
        yield from (told(message) for message in check_embedding_models(app_configs=None, databases=["default"]))


def _embedded() -> Iterator[Finding]:
    """One token, through the gate of all calls. It is nobody's document, so no tenant's bill shows it."""
    try:
        if settings.EMBEDDER == "openai":
            yield from _bought()
        elif settings.EMBEDDER == "remote":
            yield from _brain()
        elif settings.EMBEDDER == "titan":
            yield not_needed("EMBEDDER=titan has a check of its own")
        else:
            yield from _made()
    except ImproperlyConfigured as error:
        yield wrong(str(error), "Set what it names, or EMBEDDER=local.")


def _bought() -> Iterator[Finding]:
    model = _OneToken()
    vendor = model.vendor
    was_known = RateLimit.objects.filter(pk=vendor.key).exists()
    try:
        body = _through_the_gate(model)
    except (Permanent, Retryable, Postponed) as error:
        yield _failed(error)
        return
    finally:
        if not was_known:  # a key that no job has used
            RateLimit.objects.filter(pk__startswith=vendor.key).delete()
            Breaker.objects.filter(pk=vendor.circuit).delete()
    if problem := _problem(body, model.model):
        yield wrong(problem, "Correct OPENAI_BASE_URL: what answers there is not OpenAI's text-embedding-3-small.")


def _through_the_gate(model: _OneToken) -> dict[str, Any]:
    """Ask as ``gate.calling`` does, but in transactions: inside one the gate writes no row about the call."""
    guard.acquire(model.vendor, tokens=1)
    try:
        body = model.ask()
    except Exception as error:
        with transaction.atomic():
            outcome = guard.record_failure(model.vendor, error)
        raise outcome from error
    with transaction.atomic():
        guard.record_success(model.vendor)
    return body


def _problem(body: dict[str, Any], model: str) -> str:
    """Return what is wrong with an answer that came; the vendor itself is well, so the breaker is not told."""
    if not str(body.get("model", "")).startswith(model):
        return f"Another model than {model} answers."
    try:
        data = body.get("data")
        validate_vectors([row.get("embedding") for row in data] if isinstance(data, list) else None, 1)
    except (InvalidResponse, AttributeError):
        return f"The vector of {model} is not {DIMENSIONS} wide."
    return ""


def _failed(error: Exception) -> Finding:
    if isinstance(error, VendorRefused):
        return _answered("OpenAI", error.status, "OPENAI_API_KEY", "OPENAI_BASE_URL")
    reason = error.wait.reason if isinstance(error, Postponed) else getattr(error, "code", "VENDOR_ANSWER_INVALID")
    remedies = {
        guard.KEY: ("OpenAI refuses its key.", KEY_REMEDY.format("OPENAI_API_KEY")),
        guard.QUOTA: ("OpenAI's account has no credit left.", "Top it up; the jobs that wait go on by themselves."),
        guard.LIMITED: ("OpenAI has had too many calls.", "Lower OPENAI_REQUESTS_PER_MINUTE, or wait."),
        guard.AWAY: ("OpenAI has failed again and again; calls are held back.", "Wait, or look at its status page."),
        "VENDOR_UNAVAILABLE": ("OpenAI has a fault of its own.", "Wait, or look at its status page."),
        "VENDOR_UNREACHABLE": ("OpenAI does not answer.", "Let this machine out to it, or correct OPENAI_BASE_URL."),
    }
    other = (f"OpenAI cannot be used: {reason}.", "Correct OPENAI_BASE_URL: what answers there is not OpenAI.")
    return wrong(*remedies.get(reason or "", other))


def _made() -> Iterator[Finding]:
    found: Embedder = embedders.get_embedder(settings.EMBEDDER)
    try:
        vectors = found.embed([WORDS])
    except (InvalidResponse, OSError) as error:
        yield wrong(f"The model of EMBEDDER={settings.EMBEDDER} does not work: {type(error).__name__}.", REINSTALL)
        return
    if vectors.shape != (1, DIMENSIONS):
        yield wrong(f"The vectors of {found.model} are not {DIMENSIONS} wide.", "Choose another EMBEDDER.")
    yield note(f"({found.model})")


REINSTALL = "Install again: pip install -r requirements/base.txt (for minilm: requirements/optional.txt)."


def _brain() -> Iterator[Finding]:
    """Another deployment's model (spec 002 §1)."""
    url = f"{settings.BOOTS_BRAIN_URL.rstrip('/')}/internal/embed"
    headers = {"authorization": f"Bearer {settings.BRAIN_API_SECRET}", "content-type": "application/json"}
    try:
        answer = ask("POST", url, headers=headers, body=b'{"texts": ["doctor"]}')
    except Silent as silent:
        yield _unreachable("The other deployment", str(silent), "BOOTS_BRAIN_URL")
        return
    if answer.status in (401, 403):
        yield wrong("The other deployment refuses the secret.", "Set one BRAIN_API_SECRET for both deployments.")
    elif answer.status != 200 or not _is_a_brain(answer):
        yield wrong(f"The other deployment answers {answer.status}, and no vector.", "Correct BOOTS_BRAIN_URL.")


def _is_a_brain(answer: Said) -> bool:
    return isinstance(answer.told.get("model"), str) and answer.told.get("dim") == DIMENSIONS


# Reading PDFs here


def pdf() -> Iterator[Finding]:
    """Open and parse a page in the capped child, as each document is opened whoever parses it."""
    with tempfile.NamedTemporaryFile(suffix=".pdf") as file:
        file.write(PDF)
        file.flush()
        try:
            pages = parsers.parse_pdf(Path(file.name), pages=parsers.inspect_pdf(Path(file.name)).pages)
        except (Permanent, Retryable) as failure:
            yield wrong(f"A small PDF cannot be parsed: {failure.code}.", CHILD)
            return
    if "doctor is in" not in " ".join(pages):
        yield wrong("A small PDF is parsed to another text.", CHILD)


CHILD = "Raise PDF_CHILD_MEMORY_MB, look at the system's limits, or install again: pip install -r requirements/base.txt"


def ocr() -> Iterator[Finding]:
    with tempfile.NamedTemporaryFile(suffix=".pdf") as file:
        file.write(PDF)
        file.flush()
        try:
            reader.recognize_pages(Path(file.name), [0])
        except ImproperlyConfigured as error:
            remedy = "Install what it names, if documents are to be read by OCR here; others do not need it."
            yield doubtful(str(error), remedy)
        except (Permanent, Retryable) as failure:
            yield wrong(f"OCR does not work: {failure.code}.", CHILD)


# Whom tenants' tokens are from


def signers() -> Iterator[Finding]:
    """Fetch the keys that tokens are checked with."""
    if not settings.SUPABASE_JWKS_URL:
        yield not_needed("SUPABASE_JWKS_URL is not set")
        return
    try:
        answer = ask("GET", settings.SUPABASE_JWKS_URL)
        keys = jwt.PyJWKSet.from_dict(answer.told).keys if answer.status == 200 else []
    except Silent as silent:
        yield _unreachable("What signs tenants' tokens", str(silent), "SUPABASE_JWKS_URL")
        return
    except jwt.PyJWTError:
        keys = []
    if not keys:
        yield wrong(
            f"SUPABASE_JWKS_URL answers {answer.status} and no keys: no tenant can sign in by token.",
            "Set it to https://<project>.supabase.co/auth/v1/.well-known/jwks.json, of a project with signing keys.",
        )
