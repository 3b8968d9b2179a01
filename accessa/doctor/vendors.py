"""Checks of vendors by the smallest possible call: LlamaParse, OpenAI, Titan, a remote embedder, JWKS. PDF and OCR."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jwt
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction

from accessa.checks.active_models import check_embedding_models
from accessa.checks.statutes import uses_titan
from accessa.doctor.http_probe import NoResponse, send_request
from accessa.doctor.runner import Finding, Level, error, note, skipped, system_check_findings, warning
from documents import parsers
from documents.parsers import ocr
from embeddings import embedders
from embeddings.embedders import DIMENSIONS
from embeddings.embedders.http_base import parse_json, validate_vectors
from embeddings.embedders.openai import OpenAI
from embeddings.embedders.titan import Titan
from jobs.outcomes import Permanent, Retryable, Wait
from vendors import calls
from vendors.call_failures import InvalidResponse
from vendors.calls import VendorRefused
from vendors.error_codes import VENDOR_AWAY, VENDOR_QUOTA_EXHAUSTED, VENDOR_RATE_LIMITED, VENDOR_REFUSES_KEY
from vendors.models import Breaker, RateLimit

PDF = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 100]/Contents 4 0 R"
    b"/Resources<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>endobj\n"
    b"4 0 obj<</Length 46>>\nstream\nBT /F1 18 Tf 20 50 Td (The doctor is in) Tj ET\nendstream endobj\n"
    b"trailer<</Root 1 0 R>>\n%%EOF\n"
)
WORD = "doctor"
KEY_REMEDY = "Make a new key with the vendor, and set {} for API and workers."
TOP_UP = "Top it up; the jobs that wait go on by themselves."
NOT_OPENAI = "Correct OPENAI_BASE_URL: its server is not OpenAI."
OPENAI_REMEDIES = {
    VENDOR_REFUSES_KEY: ("OpenAI refuses its key.", KEY_REMEDY.format("OPENAI_API_KEY")),
    VENDOR_QUOTA_EXHAUSTED: ("OpenAI's account has no credit left.", TOP_UP),
    VENDOR_RATE_LIMITED: ("OpenAI has had too many calls.", "Lower OPENAI_REQUESTS_PER_MINUTE, or wait."),
    VENDOR_AWAY: ("OpenAI has failed again and again; calls are held back.", "Wait, or look at its status page."),
    "VENDOR_UNAVAILABLE": ("OpenAI has a fault of its own.", "Wait, or look at its status page."),
    "VENDOR_UNREACHABLE": ("OpenAI does not answer.", "Allow this machine to reach it, or correct OPENAI_BASE_URL."),
}
TITAN_RIGHTS = "Let the role or the key do bedrock:InvokeModel, and let the account use the model in TITAN_REGION."
TITAN_REACH = "Allow this machine to reach Bedrock, or correct TITAN_REGION and TITAN_ENDPOINT_URL."
TITAN_REMEDIES = {
    VENDOR_REFUSES_KEY: ("Bedrock refuses the key, or there is none.", TITAN_RIGHTS),
    VENDOR_QUOTA_EXHAUSTED: ("The account's quota for the model is used up.", "Raise it in AWS' Service Quotas."),
    VENDOR_RATE_LIMITED: (
        "Bedrock has had too many calls.",
        "Lower TITAN_REQUESTS_PER_MINUTE, or raise the account's quota.",
    ),
    VENDOR_AWAY: ("Bedrock has failed again and again; calls are held back.", "Wait, or look at AWS' health page."),
    "VENDOR_UNAVAILABLE": ("Bedrock has a fault of its own.", "Wait, or look at AWS' health page."),
    "VENDOR_UNREACHABLE": ("Bedrock does not answer.", TITAN_REACH),
}
REINSTALL = "Install again: pip install -r requirements/base.txt (for minilm: requirements/optional.txt)."
CHILD = "Raise PDF_CHILD_MEMORY_MB, look at the system's limits, or install again: pip install -r requirements/base.txt"


def check_llamaparse() -> Iterator[Finding]:
    """List one parse: that costs nothing, and needs the key (https://developers.llamaindex.ai/llamaparse)."""
    if settings.PARSER != "llamaparse":
        yield skipped(f"PARSER={settings.PARSER}")
        return
    url = f"{settings.LLAMAPARSE_BASE_URL.rstrip('/')}/api/v2/parse?page_size=1"
    try:
        response = send_request("GET", url, headers={"authorization": f"Bearer {settings.LLAMAPARSE_API_KEY}"})
    except NoResponse as failure:
        yield _no_response("LlamaParse", failure, "LLAMAPARSE_BASE_URL")
        return
    if response.status == 200 and not isinstance(response.json.get("items"), list):
        yield error("The server at LLAMAPARSE_BASE_URL is not LlamaParse.", "Correct LLAMAPARSE_BASE_URL.")
    elif response.status != 200:
        yield _explain_status("LlamaParse", response.status, "LLAMAPARSE_API_KEY", "LLAMAPARSE_BASE_URL")


def _explain_status(vendor: str, status: int, key: str, url: str) -> Finding:
    if status in (401, 403):
        return error(f"{vendor} refuses its key ({status}).", KEY_REMEDY.format(key))
    if status == 402:
        return error(f"{vendor}'s account has no credit left (402).", TOP_UP)
    if status == 429:
        return error(f"{vendor} has had too many calls (429).", "Lower our rate, or raise the account's limits.")
    if status >= 500:
        remedy = "Wait: jobs wait too. Look at the vendor's status page."
        return error(f"{vendor} has a fault of its own ({status}).", remedy)
    return error(f"{vendor} answers {status}.", f"Correct {url}.")


def _no_response(vendor: str, failure: NoResponse, url: str) -> Finding:
    return error(f"{vendor} does not answer: {failure}.", f"Allow this machine to reach it, or correct {url}.")


def check_embedder() -> Iterator[Finding]:
    checks = {"openai": _check_openai, "remote": _check_remote}
    try:
        if settings.EMBEDDER == "titan":
            findings = [skipped("EMBEDDER=titan has a check of its own")]
        else:
            findings = list(checks.get(settings.EMBEDDER, _check_local)())
    except ImproperlyConfigured as failure:
        findings = [error(str(failure), "Set what it names, or EMBEDDER=local.")]
    yield from findings
    if not any(finding.level is Level.ERROR for finding in findings):
        yield from system_check_findings(check_embedding_models(app_configs=None, databases=["default"]))


class _OpenAIProbe(OpenAI):
    def embed_word(self) -> dict[str, Any]:
        return parse_json(self.post([WORD])[0])


def _check_openai() -> Iterator[Finding]:
    """Buy one token. It belongs to no document, so no tenant is charged."""
    probe = _OpenAIProbe()
    vendor = probe.vendor
    was_known = RateLimit.objects.filter(pk=vendor.key).exists()
    try:
        body = _call_guarded(probe)
    except VendorRefused as refusal:
        yield _explain_status("OpenAI", refusal.status, "OPENAI_API_KEY", "OPENAI_BASE_URL")
        return
    except (Permanent, Retryable, Wait) as failure:
        reason = str(failure.reason if isinstance(failure, Wait) else failure.code)
        yield error(*OPENAI_REMEDIES.get(reason, (f"OpenAI cannot be used: {reason}.", NOT_OPENAI)))
        return
    finally:
        if not was_known:  # a key that no job has used
            RateLimit.objects.filter(pk__startswith=vendor.key).delete()
            Breaker.objects.filter(pk=vendor.circuit).delete()
    # A wrong response is no fault of the vendor, so the circuit breaker does not count it.
    if not str(body.get("model", "")).startswith(probe.model):
        yield error(f"Another model than {probe.model} answers.", NOT_OPENAI)
        return
    try:
        rows = body.get("data")
        validate_vectors([row.get("embedding") for row in rows] if isinstance(rows, list) else None, 1)
    except (InvalidResponse, AttributeError):
        yield error(f"The vector of {probe.model} is not {DIMENSIONS} wide.", NOT_OPENAI)


def _call_guarded(probe: _OpenAIProbe) -> dict[str, Any]:
    """Call as ``calls.guarded_call`` does, but in transactions: inside one it writes no row about the call."""
    calls.acquire(probe.vendor, tokens=1)
    try:
        body = probe.embed_word()
    except Exception as failure:
        with transaction.atomic():
            outcome = calls.record_failure(probe.vendor, failure)
        raise outcome from failure
    with transaction.atomic():
        calls.record_success(probe.vendor)
    return body


def _check_local() -> Iterator[Finding]:
    embedder = embedders.get_embedder(settings.EMBEDDER)
    try:
        vectors = embedder.embed([WORD])
    except (InvalidResponse, OSError) as failure:
        yield error(f"The model of EMBEDDER={settings.EMBEDDER} does not work: {type(failure).__name__}.", REINSTALL)
        return
    if vectors.shape != (1, DIMENSIONS):
        yield error(f"The vectors of {embedder.model} are not {DIMENSIONS} wide.", "Choose another EMBEDDER.")
    yield note(f"({embedder.model})")


def _check_remote() -> Iterator[Finding]:
    url = f"{settings.BOOTS_BRAIN_URL.rstrip('/')}/internal/embed"
    headers = {"authorization": f"Bearer {settings.BRAIN_API_SECRET}", "content-type": "application/json"}
    try:
        response = send_request("POST", url, headers=headers, body=b'{"texts": ["doctor"]}')
    except NoResponse as failure:
        yield _no_response("The other deployment", failure, "BOOTS_BRAIN_URL")
        return
    is_embedder = isinstance(response.json.get("model"), str) and response.json.get("dim") == DIMENSIONS
    if response.status in (401, 403):
        yield error("The other deployment refuses the secret.", "Set one BRAIN_API_SECRET for both deployments.")
    elif response.status != 200 or not is_embedder:
        yield error(f"The other deployment answers {response.status}, and no vector.", "Correct BOOTS_BRAIN_URL.")


def check_titan() -> Iterator[Finding]:
    """Embed a word through the guard of all calls. It belongs to no document, so no tenant is charged."""
    if not uses_titan():
        yield skipped("neither EMBEDDER nor STATUTES_EMBEDDER is titan")
        return
    titan = Titan()
    try:
        with calls.guarded_call(titan.vendor, "embed", tokens=1):
            titan.call([WORD])
    except ImproperlyConfigured as failure:
        yield error(str(failure), "Set what it names.")
    except VendorRefused as refusal:
        yield error(f"Bedrock refuses the model ({refusal.status}).", f"Correct TITAN_MODEL. {TITAN_RIGHTS}")
    except (Wait, Retryable) as failure:
        reason = str(failure.reason if isinstance(failure, Wait) else failure.code)
        yield error(*TITAN_REMEDIES.get(reason, (f"Bedrock cannot be used: {reason}.", TITAN_REACH)))
    else:
        yield note(f"({titan.model})")


@contextmanager
def _sample_pdf() -> Iterator[Path]:
    with tempfile.NamedTemporaryFile(suffix=".pdf") as file:
        file.write(PDF)
        file.flush()
        yield Path(file.name)


def check_pdf() -> Iterator[Finding]:
    """Parse a page in the sandboxed child, which opens each document whatever the parser."""
    with _sample_pdf() as path:
        try:
            pages = parsers.parse_pdf(path, pages=parsers.inspect_pdf(path).pages)
        except (Permanent, Retryable) as failure:
            yield error(f"A small PDF cannot be parsed: {failure.code}.", CHILD)
            return
    if "doctor is in" not in " ".join(pages):
        yield error("A small PDF is parsed to another text.", CHILD)


def check_ocr() -> Iterator[Finding]:
    with _sample_pdf() as path:
        try:
            ocr.recognize_pages(path, [0])
        except ImproperlyConfigured as failure:
            remedy = "Install what it names, if documents are to be read by OCR here; others do not need it."
            yield warning(str(failure), remedy)
        except (Permanent, Retryable) as failure:
            yield error(f"OCR does not work: {failure.code}.", CHILD)


def check_jwks() -> Iterator[Finding]:
    if not settings.SUPABASE_JWKS_URL:
        yield skipped("SUPABASE_JWKS_URL is not set")
        return
    try:
        response = send_request("GET", settings.SUPABASE_JWKS_URL)
        keys = jwt.PyJWKSet.from_dict(response.json).keys if response.status == 200 else []
    except NoResponse as failure:
        yield _no_response("The server of SUPABASE_JWKS_URL", failure, "SUPABASE_JWKS_URL")
        return
    except jwt.PyJWTError:
        keys = []
    if not keys:
        yield error(
            f"SUPABASE_JWKS_URL answers {response.status} and no keys: no tenant can sign in by token.",
            "Set it to https://<project>.supabase.co/auth/v1/.well-known/jwks.json, of a project with signing keys.",
        )
