"""Checks of the public addresses: PUBLIC_URL, the vendor's webhook, CORS of the API and of the bucket."""

import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast
from urllib.parse import urlsplit
from uuid import uuid4

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.files.storage import storages

from accessa.checks.rules import is_allowed, is_local
from accessa.demo.api_client import upload_headers
from accessa.doctor.file_store import FREE_DISK, forge_signature, is_api_url
from accessa.doctor.findings import Finding, error, note, skipped, warning
from accessa.doctor.http_probe import NoResponse, Response, send_request
from accessa.server.address import Address, published_url
from documents.storage.buckets import MIME, Bucket
from vendors.webhook_secrets import webhook_secrets
from webhooks.urls import urlpatterns as webhook_routes

DEFAULT_URL = Address("127.0.0.1", 8000).url  # PUBLIC_URL's default
START = "Start the API (manage.py serve), or correct PUBLIC_URL. Behind a proxy, look whether it forwards to the API."
WEBHOOK_PATH = "/" + str(webhook_routes[0].pattern)
UNREADY = {
    "UNAVAILABLE": ("does not reach its database", "Give it the DATABASE_URL that you use here."),
    "NOT_MIGRATED": ("its database lacks migrations", "Run: manage.py migrate, with the DATABASE_URL of the API."),
    "STORAGE_NOT_CONFIGURED": (
        "cannot use its file store",
        "Give it a STORAGE_ROOT that it can write, or the bucket's settings; storage-raw below says more.",
    ),
    "INSUFFICIENT_STORAGE": ("the disk of its files is full", FREE_DISK),
    "STOPPING": ("is about to end", "Run doctor again when the next one is up."),
}


@contextmanager
def public_url_of_serve() -> Iterator[None]:
    """Use the address of the running `serve`, where no PUBLIC_URL was chosen."""
    before = settings.PUBLIC_URL
    if not os.environ.get("PUBLIC_URL") and before == DEFAULT_URL:
        settings.PUBLIC_URL = published_url(settings.VAR) or before
    try:
        yield
    finally:
        settings.PUBLIC_URL = before


def check_api() -> Iterator[Finding]:
    try:
        response = send_request("GET", f"{settings.PUBLIC_URL}/readyz")
    except NoResponse as failure:
        yield error(f"PUBLIC_URL is not answered: {failure}.", START)
        return
    if response.status == 400:
        remedy = "Add its host to ALLOWED_HOSTS, or let the proxy send a Host that is there."
        yield error("The API refuses the host of PUBLIC_URL.", remedy)
    elif response.status in (503, 507) and response.code in UNREADY:
        lack, remedy = UNREADY[response.code]
        yield error(f"The API answers, but {lack}.", remedy)
    elif response.status != 200 or not response.json:  # a 503 without our codes is a proxy's
        yield error(f"PUBLIC_URL answers {response.status}, and it is not this API.", START)
    else:
        yield from _check_signed_urls()
        yield note(f"({settings.PUBLIC_URL})")


def _check_signed_urls() -> Iterator[Finding]:
    bucket = cast(Bucket, storages["raw"])
    url = Bucket.sign_download(bucket, f"doctor/{uuid4()}", filename="doctor.pdf")
    signed, forged = send_request("GET", url), send_request("GET", forge_signature(url))
    if signed.code == "URL_NOT_VALID":
        yield error(
            "The API at PUBLIC_URL is a deployment with another SECRET_KEY.",
            "Give API, workers and this shell one SECRET_KEY.",
        )
    elif signed.status == 503:
        yield error("The API does not reach its file store.", "Give it the storage settings that you use here.")
    elif signed.status != 404:
        yield error(f"The API at PUBLIC_URL answers {signed.status} to a signed URL.", START)
    if forged.status not in (403, 404) or (forged.status == 404 and forged.code == "NOT_FOUND"):
        yield error("The API at PUBLIC_URL takes an altered signature.", "It is not this program. " + START)


def check_webhook() -> Iterator[Finding]:
    url = settings.LLAMAPARSE_CALLBACK_URL
    if settings.PARSER != "llamaparse":
        yield skipped("no parsing vendor is used")
        return
    if not url:
        yield warning(
            "The parsing vendor has no address to call back: each parse is found later, by polling.",
            f"Set PUBLIC_URL, or LLAMAPARSE_CALLBACK_URL, to a public https address of this API ({WEBHOOK_PATH}).",
        )
        return
    if not url.startswith("https:") and not is_local(url):
        yield error("The callback address is not https; LlamaCloud calls no other.", "Set it to an https address.")
    if urlsplit(url).hostname == urlsplit(settings.PUBLIC_URL).hostname and not is_allowed(url):
        yield error("The host of the callback address is not in ALLOWED_HOSTS.", "Add it there, for the API.")
    yield from _check_signatures(url)


def _check_signatures(url: str) -> Iterator[Finding]:
    """Send signed events of an unknown job: an API that trusts the signature answers with a code and does nothing."""
    try:
        keys = webhook_secrets()
    except ImproperlyConfigured as failure:
        yield error(str(failure), "Make one with: echo whsec_$(openssl rand -base64 32)")
        return
    for position, key in enumerate(keys, start=1):
        try:
            response = _send_event(url, key)
        except NoResponse as failure:
            remedy = "Correct LLAMAPARSE_CALLBACK_URL. " + START
            yield error(f"The callback address is not answered: {failure}.", remedy)
            return
        if (response.status, response.code) == (404, "CALLBACK_UNKNOWN_JOB"):
            continue
        yield _explain_webhook(response, f"secret {position} of {len(keys)}" if len(keys) > 1 else "the secret")
        if response.code not in ("INVALID_SIGNATURE", "CALLBACK_UNKNOWN_JOB"):
            return
    if _send_event(url, "whsec_" + secrets.token_urlsafe(32)).code != "INVALID_SIGNATURE":
        yield error("The callback address takes a forged signature.", "Stop it: anybody can forge parses there.")


def _send_event(url: str, key: str) -> Response:
    event = {
        "event_id": str(uuid4()), "event_type": "parse.success", "timestamp": time.time(),
        "data": {"id": f"doctor-{uuid4()}", "job_id": f"doctor-{uuid4()}"},
    }  # fmt: skip
    body = json.dumps(event).encode()
    signature = "sha256=" + hmac.new(key.encode(), body, hashlib.sha256).hexdigest()
    return send_request("POST", url, headers={"content-type": "application/json", "lc-signature": signature}, body=body)


def _explain_webhook(response: Response, which: str) -> Finding:
    if response.status == 401 and response.code == "INVALID_SIGNATURE":
        return error(
            f"The callback address does not know {which}: it is another deployment's, or runs with other secrets.",
            "Give it these LLAMAPARSE_WEBHOOK_SECRETS (or this SECRET_KEY), or correct LLAMAPARSE_CALLBACK_URL.",
        )
    if response.status == 400:
        return error("The callback address refuses its host.", "Add it to ALLOWED_HOSTS of that API.")
    return error(
        f"The callback address answers {response.status}, and not as this API does.",
        f"It must end in {WEBHOOK_PATH}, without a redirect, a login page or a firewall before it.",
    )


def check_api_cors() -> Iterator[Finding]:
    if not settings.CORS_ALLOWED_ORIGINS:
        yield skipped("CORS_ALLOWED_ORIGINS is empty: no other origin calls")
        return
    url = f"{settings.PUBLIC_URL}/upload"
    remedy = "Set CORS_ALLOWED_ORIGINS for the API too, scheme://host, and look whether a proxy answers OPTIONS."
    for origin in settings.CORS_ALLOWED_ORIGINS:
        if problem := _preflight_problem(url, origin, "POST", "authorization,content-type"):
            yield error(f"A browser at {origin} may not call the API: {problem}.", remedy)
    if not _preflight_problem(url, "https://doctor.invalid", "POST", "authorization"):
        remedy = "Name the origins in CORS_ALLOWED_ORIGINS; no proxy may add *."
        yield error("Browsers of any origin may call the API.", remedy)


def check_bucket_cors() -> Iterator[Finding]:
    sha256 = hashlib.sha256(b"x").hexdigest()
    url = cast(Bucket, storages["raw"]).sign_upload(f"doctor/{uuid4()}", length=1, mime=MIME, sha256=sha256)
    if is_api_url(url):
        yield skipped("uploads go to the API itself")
        return
    headers = sorted(upload_headers(url, sha256))
    for origin in [settings.PUBLIC_URL, *settings.CORS_ALLOWED_ORIGINS]:
        if problem := _preflight_problem(url, origin, "PUT", ",".join(headers)):
            yield error(
                f"A browser at {origin} may not upload to the bucket for raw files: {problem}.",
                f"Give the bucket a CORS rule: PUT, this origin, and the headers of uploads: {', '.join(headers)}.",
            )


def _preflight_problem(url: str, origin: str, method: str, headers: str) -> str:
    preflight = {"origin": origin, "access-control-request-method": method, "access-control-request-headers": headers}
    try:
        response = send_request("OPTIONS", url, headers=preflight)
    except NoResponse as failure:
        return str(failure)
    allowed = response.headers.get("access-control-allow-origin", "")
    if not 200 <= response.status < 300 or allowed not in ("*", origin):
        return f"its preflight is answered {response.status} without Access-Control-Allow-Origin for it"
    methods, names = (
        {name.strip().lower() for name in response.headers.get(f"access-control-allow-{kind}", "").split(",") if name}
        for kind in ("methods", "headers")
    )
    if methods and not methods & {"*", method.lower()}:
        return f"{method} is not allowed"
    missing = sorted(set(headers.split(",")) - names)
    return f"the header {missing[0]} is not allowed" if missing and "*" not in names else ""
