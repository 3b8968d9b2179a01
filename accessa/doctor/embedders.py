"""Checks of the embedders by one word: OpenAI, Titan, the remote embedder of another deployment, local models."""

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction

from accessa.checks.active_models import check_embedding_models
from accessa.checks.statutes import uses_titan
from accessa.doctor.findings import Finding, Level, error, note, skipped, system_check_findings
from accessa.doctor.http_probe import NoResponse, send_request
from accessa.doctor.vendor_findings import KEY_REMEDY, TOP_UP, explain_no_response, explain_status
from embeddings.embedders import registry
from embeddings.embedders.http_base import parse_json, validate_vectors
from embeddings.embedders.openai import OpenAI
from embeddings.embedders.registry import DIMENSIONS
from embeddings.embedders.titan import Titan
from jobs.outcomes import Permanent, Retryable, Wait
from vendors import calls
from vendors.call_failures import InvalidResponse
from vendors.calls import VendorRefused
from vendors.error_codes import VENDOR_AWAY, VENDOR_QUOTA_EXHAUSTED, VENDOR_RATE_LIMITED, VENDOR_REFUSES_KEY
from vendors.models import Breaker, RateLimit

WORD = "doctor"
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
REINSTALL = "Install again: pip install -r requirements/base.txt."


def check_embedder() -> Iterator[Finding]:
    checks = {"openai": _check_openai, "remote": _check_remote}
    try:
        if settings.EMBEDDER == "titan":
            findings = [skipped("EMBEDDER=titan has a check of its own")]
        else:
            findings = list(checks.get(settings.EMBEDDER, _check_local)())
        if settings.EMBEDDER != "remote" and settings.BOOTS_BRAIN_URL and settings.BRAIN_API_SECRET:
            findings += _check_remote()  # of connectors' records
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
        yield explain_status("OpenAI", refusal.status, "OPENAI_API_KEY", "OPENAI_BASE_URL")
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
    embedder = registry.get_embedder(settings.EMBEDDER)
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
        yield explain_no_response("The other deployment", failure, "BOOTS_BRAIN_URL")
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
