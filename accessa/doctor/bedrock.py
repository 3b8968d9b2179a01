"""Titan by Bedrock, asked for one word."""

from __future__ import annotations

from collections.abc import Iterator

from django.core.exceptions import ImproperlyConfigured

from accessa.checks import bedrock
from accessa.doctor.runner import Finding, not_needed, note, wrong
from embeddings.embedders.titan import Titan
from jobs.outcomes import Postponed, Retryable
from vendors import guard
from vendors.guard import VendorRefused

WORD = "doctor"
ACCESS = "Let the role or the key do bedrock:InvokeModel, and let the account use the model in TITAN_REGION."
REACH = "Let this machine out to Bedrock, or correct TITAN_REGION and TITAN_ENDPOINT_URL."
REMEDIES = {
    guard.KEY: ("Bedrock refuses the key, or there is none.", ACCESS),
    guard.QUOTA: ("The account's quota for the model is used up.", "Raise it in AWS' Service Quotas."),
    guard.LIMITED: (
        "Bedrock has had too many calls.",
        "Lower TITAN_REQUESTS_PER_MINUTE, or raise the account's quota.",
    ),
    guard.AWAY: ("Bedrock has failed again and again; calls are held back.", "Wait, or look at AWS' health page."),
    "VENDOR_UNAVAILABLE": ("Bedrock has a fault of its own.", "Wait, or look at AWS' health page."),
    "VENDOR_UNREACHABLE": ("Bedrock does not answer.", REACH),
}


def titan() -> Iterator[Finding]:
    """Embed a word, through the gate of all calls. It is nobody's document, so no tenant's bill shows it."""
    if not bedrock.is_used():
        yield not_needed("neither EMBEDDER nor STATUTES_EMBEDDER is titan")
        return
    model = Titan()
    try:
        with guard.guarded_call(model.vendor, "embed", tokens=1):
            model.call([WORD])
    except ImproperlyConfigured as error:
        yield wrong(str(error), "Set what it names.")
    except VendorRefused as refused:
        yield wrong(f"Bedrock refuses the model ({refused.status}).", f"Correct TITAN_MODEL. {ACCESS}")
    except (Postponed, Retryable) as error:
        reason = error.wait.reason if isinstance(error, Postponed) else error.code
        yield wrong(*REMEDIES.get(reason, (f"Bedrock cannot be used: {reason}.", REACH)))
    else:
        yield note(f"({model.model})")
