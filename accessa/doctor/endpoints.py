"""The API as others reach it: its address, the callbacks' address, and what browsers of other origins may do."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Iterator
from typing import cast
from urllib.parse import urlsplit
from uuid import uuid4

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.files.storage import storages

from accessa.checks.conflicts import is_allowed, is_local
from accessa.demo.client import upload_headers
from accessa.doctor.http import Said, Silent, ask
from accessa.doctor.runner import Finding, doubtful, not_needed, note, wrong
from accessa.doctor.storage import altered, is_ours
from documents.storage import Bucket, SignedUrlMixin
from documents.validation import MIME
from vendors.webhook_secrets import webhook_secrets
from webhooks.urls import urlpatterns as callback_routes

START = "Start the API (manage.py serve), or correct PUBLIC_URL. Behind a proxy, look whether it forwards to the API."
CALLBACK_PATH = "/" + str(callback_routes[0].pattern)
ANOTHER = "a deployment with another SECRET_KEY"


# The API


def api() -> Iterator[Finding]:
    try:
        answer = ask("GET", f"{settings.PUBLIC_URL}/readyz")
    except Silent as silent:
        yield wrong(f"PUBLIC_URL is not answered: {silent}.", START)
        return
    if answer.status == 400:
        remedy = "Add its host to ALLOWED_HOSTS, or let the proxy send a Host that is there."
        yield wrong("The API refuses the host of PUBLIC_URL.", remedy)
    elif answer.status == 503:
        yield _unready(answer.code)
    elif answer.status != 200 or not answer.told:
        yield wrong(f"PUBLIC_URL answers {answer.status}, and it is not this API.", START)
    else:
        yield from _ours()
        yield note(f"({settings.PUBLIC_URL})")


LACKS = {
    "UNAVAILABLE": ("does not reach its database", "Give it the DATABASE_URL that you use here."),
    "NOT_MIGRATED": ("its database lacks migrations", "Run: manage.py migrate, with the DATABASE_URL of the API."),
    "STORAGE_NOT_CONFIGURED": (
        "cannot use its file store",
        "Give it a STORAGE_ROOT that it can write, or the bucket's settings; storage-raw below says more.",
    ),
    "STOPPING": ("is about to end", "Ask again when the next one is up."),
}


def _unready(code: str) -> Finding:
    """Name what the API says that it lacks; a 503 without our codes is a proxy's, or another's."""
    if code not in LACKS:
        return wrong("PUBLIC_URL answers 503, and it is not this API.", START)
    lack, remedy = LACKS[code]
    return wrong(f"The API answers, but {lack}.", remedy)


def _ours() -> Iterator[Finding]:
    """A URL that we sign must be good there; for an object that does not exist, so that nothing is given out."""
    bucket = cast(SignedUrlMixin, storages["raw"])
    url = SignedUrlMixin.sign_download(bucket, f"doctor/{uuid4()}", filename="doctor.pdf")
    good, bad = ask("GET", url), ask("GET", altered(url))
    if good.code == "URL_NOT_VALID":
        yield wrong(f"The API at PUBLIC_URL is {ANOTHER}.", "Give API, workers and this shell one SECRET_KEY.")
    elif good.status == 503:
        yield wrong("The API does not reach its file store.", "Give it the storage settings that you use here.")
    elif good.status != 404:
        yield wrong(f"The API at PUBLIC_URL answers {good.status} to a signed URL.", START)
    if bad.status not in (403, 404) or (bad.status == 404 and bad.code == "NOT_FOUND"):
        yield wrong("The API at PUBLIC_URL takes an altered signature.", "It is not this program. " + START)


# Callbacks


def callback() -> Iterator[Finding]:
    url = settings.LLAMAPARSE_CALLBACK_URL
    if settings.PARSER != "llamaparse":
        yield not_needed("no parsing vendor is used")
        return
    if not url:
        yield doubtful(
            "The parsing vendor has no address to call back: each parse is found later, by polling.",
            f"Set PUBLIC_URL, or LLAMAPARSE_CALLBACK_URL, to a public https address of this API ({CALLBACK_PATH}).",
        )
        return
    yield from _address(url)
    yield from _round_trip(url)


def _address(url: str) -> Iterator[Finding]:
    if not url.startswith("https:") and not is_local(url):
        yield wrong("The callback address is not https; LlamaCloud calls no other.", "Set it to an https address.")
    if urlsplit(url).hostname == urlsplit(settings.PUBLIC_URL).hostname and not is_allowed(url):
        yield wrong("The host of the callback address is not in ALLOWED_HOSTS.", "Add it there, for the API.")


def _round_trip(url: str) -> Iterator[Finding]:
    """Sign a callback about a job that does not exist: whoever trusts the signature says so, and does nothing."""
    try:
        known = webhook_secrets()
    except ImproperlyConfigured as error:
        yield wrong(str(error), "Make one with: echo whsec_$(openssl rand -base64 32)")
        return
    for number, secret in enumerate(known, start=1):
        try:
            answer = _call(url, secret)
        except Silent as silent:
            yield wrong(f"The callback address is not answered: {silent}.", "Correct LLAMAPARSE_CALLBACK_URL. " + START)
            return
        found = _understood(answer, number, len(known))
        if found:
            yield found
            if answer.code not in ("INVALID_SIGNATURE", "CALLBACK_UNKNOWN_JOB"):
                return
    if _call(url, "whsec_" + secrets.token_urlsafe(32)).code != "INVALID_SIGNATURE":
        yield wrong("The callback address takes a forged signature.", "Stop it: anybody can forge parses there.")


def _call(url: str, secret: str) -> Said:
    event = {
        "event_id": str(uuid4()), "event_type": "parse.success", "timestamp": time.time(),
        "data": {"id": f"doctor-{uuid4()}", "job_id": f"doctor-{uuid4()}"},
    }  # fmt: skip
    body = json.dumps(event).encode()
    signature = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return ask("POST", url, headers={"content-type": "application/json", "lc-signature": signature}, body=body)


def _understood(answer: Said, number: int, of: int) -> Finding | None:
    if answer.status == 404 and answer.code == "CALLBACK_UNKNOWN_JOB":
        return None
    if answer.status == 401 and answer.code == "INVALID_SIGNATURE":
        which = f"secret {number} of {of}" if of > 1 else "the secret"
        return wrong(
            f"The callback address does not know {which}: it is another deployment's, or runs with other secrets.",
            "Give it these LLAMAPARSE_WEBHOOK_SECRETS (or this SECRET_KEY), or correct LLAMAPARSE_CALLBACK_URL.",
        )
    if answer.status == 400:
        return wrong("The callback address refuses its host.", "Add it to ALLOWED_HOSTS of that API.")
    return wrong(
        f"The callback address answers {answer.status}, and not as this API does.",
        f"It must end in {CALLBACK_PATH}, without a redirect, a login page or a firewall before it.",
    )


# Browsers of other origins


def cors_of_api() -> Iterator[Finding]:
    if not settings.CORS_ALLOWED_ORIGINS:
        yield not_needed("CORS_ALLOWED_ORIGINS is empty: no other origin calls")
        return
    remedy = "Set CORS_ALLOWED_ORIGINS for the API too, scheme://host, and look whether a proxy answers OPTIONS."
    for origin in settings.CORS_ALLOWED_ORIGINS:
        problem = _preflight(f"{settings.PUBLIC_URL}/upload", origin, "POST", "authorization,content-type")
        if problem:
            yield wrong(f"A browser at {origin} may not call the API: {problem}.", remedy)
    if not _preflight(f"{settings.PUBLIC_URL}/upload", "https://doctor.invalid", "POST", "authorization"):
        yield wrong(
            "Browsers of any origin may call the API.", "Name the origins in CORS_ALLOWED_ORIGINS; no proxy may add *."
        )


def cors_of_bucket() -> Iterator[Finding]:
    bucket = cast(Bucket, storages["raw"])
    sha256 = hashlib.sha256(b"x").hexdigest()
    url = bucket.sign_upload(f"doctor/{uuid4()}", length=1, mime=MIME, sha256=sha256)
    if is_ours(url):
        yield not_needed("uploads go to the API itself")
        return
    sent = sorted(upload_headers(url, sha256))
    origins = [settings.PUBLIC_URL, *settings.CORS_ALLOWED_ORIGINS]
    for origin in origins:
        problem = _preflight(url, origin, "PUT", ",".join(sent))
        if problem:
            yield wrong(
                f"A browser at {origin} may not upload to the bucket for raw files: {problem}.",
                f"Give the bucket a CORS rule: PUT, this origin, and what uploads send: {', '.join(sent)}.",
            )


def _preflight(url: str, origin: str, method: str, headers: str) -> str:
    """Ask as a browser does before it sends; return what it would stumble over, or nothing."""
    asked = {"origin": origin, "access-control-request-method": method, "access-control-request-headers": headers}
    try:
        answer = ask("OPTIONS", url, headers=asked)
    except Silent as silent:
        return str(silent)
    allowed = answer.headers.get("access-control-allow-origin", "")
    if not 200 <= answer.status < 300 or allowed not in ("*", origin):
        return f"its preflight is answered {answer.status} without Access-Control-Allow-Origin for it"
    methods = _listed(answer, "methods")
    if methods and not methods & {"*", method.lower()}:
        return f"{method} is not allowed"
    missing = set(headers.split(",")) - _listed(answer, "headers")
    if missing and "*" not in _listed(answer, "headers"):
        return f"the header {sorted(missing)[0]} is not allowed"
    return ""


def _listed(answer: Said, what: str) -> set[str]:
    return {each.strip().lower() for each in answer.headers.get(f"access-control-allow-{what}", "").split(",") if each}
