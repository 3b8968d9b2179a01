"""Settings that cannot both be meant: what `manage.py check` knows without asking anybody."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.http.request import split_domain_port, validate_host

from accessa import env, settings_connectors
from accessa.checks import connectors as connecting
from accessa.checks import ranges, statutes, supabase
from documents.parsers import registry
from embeddings import embedders
from vendors.webhook_secrets import PREFIX, standard_key

Found = Iterator[CheckMessage]


def check_settings(*, app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """An error is what can never work; a warning what is hardly meant."""
    return [message for part in PARTS for message in part()]


def is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1", "testserver", "") or host.startswith("127.")


def is_allowed(url: str) -> bool:
    domain, _ = split_domain_port(urlsplit(url).netloc)
    return bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS)


def _addresses() -> Found:
    public = settings.PUBLIC_URL
    if not re.fullmatch(r"https?://[^/\s?#]+(/[^\s?#]*)?", public):
        yield Error("PUBLIC_URL is no address.", hint="Set it to scheme://host[:port].", id="accessa.E201")
        return
    if not is_allowed(public):
        yield Warning(
            "The host of PUBLIC_URL is not in ALLOWED_HOSTS: the API refuses whoever asks for it by that name.",
            hint="Add it to ALLOWED_HOSTS.",
            id="accessa.W202",
        )
    if is_local(public):
        return
    if public.startswith("http:") and settings.SESSION_COOKIE_SECURE:
        hint = "Set PUBLIC_URL to https (or SECURE_COOKIES=false, for a network that is yours alone)."
        yield Warning(
            "Nobody can sign in: PUBLIC_URL is http, and cookies are for https.", hint=hint, id="accessa.W203"
        )
    if settings.DEBUG:
        hint = "Unset DEBUG."
        yield Warning("DEBUG is on at a public address: strangers see settings and rows.", hint=hint, id="accessa.W204")
    if settings.STORAGE == "local":
        yield Warning(
            "Files are kept on this machine's disk, and PUBLIC_URL is not this machine.",
            hint="Set up a bucket (S3_ACCESS_KEY_ID …), unless there will only ever be this one machine.",
            id="accessa.W205",
        )


def _storage() -> Found:
    pair = (bool(settings.S3_ACCESS_KEY_ID), bool(settings.S3_SECRET_ACCESS_KEY))
    if settings.STORAGE == "local" and any(pair):
        hint = "Unset STORAGE, or unset the keys."
        yield Warning(
            "There are keys of an S3, and STORAGE=local keeps files on this disk.", hint=hint, id="accessa.W206"
        )
    if settings.STORAGE != "s3":
        return
    if settings.S3_ENDPOINT_URL and not re.match(r"https?://[^/\s?#]", settings.S3_ENDPOINT_URL):
        yield Error("S3_ENDPOINT_URL is no address.", hint="Set it to scheme://host[:port].", id="accessa.E235")
    if pair[0] != pair[1]:
        hint = "Set both S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY."
        yield Error("Only half of the S3's key is set.", hint=hint, id="accessa.E207")
    if settings.S3_RAW_BUCKET == settings.S3_PARSED_BUCKET:
        hint = "Give S3_RAW_BUCKET and S3_PARSED_BUCKET a bucket each."
        yield Error("Raw and parsed files have one bucket.", hint=hint, id="accessa.E208")
    if settings.S3_SERVER_SIDE_ENCRYPTION not in ("", "AES256", "aws:kms", "aws:kms:dsse"):
        hint = "Set it to AES256 or aws:kms."
        yield Error("S3_SERVER_SIDE_ENCRYPTION is none that S3 knows.", hint=hint, id="accessa.E209")
    if settings.S3_KMS_KEY_ID and not settings.S3_SERVER_SIDE_ENCRYPTION.startswith("aws:kms"):
        hint = "Set S3_SERVER_SIDE_ENCRYPTION=aws:kms."
        yield Error("S3_KMS_KEY_ID has no effect without aws:kms.", hint=hint, id="accessa.E210")


NEEDS = {"openai": ("OPENAI_API_KEY",), "remote": ("BOOTS_BRAIN_URL", "BRAIN_API_SECRET")}


def _vendors() -> Found:
    try:
        registry.configured_parser(ocr=False)
    except ImproperlyConfigured as error:
        yield Error(str(error), hint="Correct PARSER.", id="accessa.E211")
    if settings.PARSER == "llamaparse" and not settings.LLAMAPARSE_API_KEY:
        hint = "Set LLAMAPARSE_API_KEY, or PARSER=local."
        yield Error("PARSER=llamaparse has no key.", hint=hint, id="accessa.E212")
    if settings.LLAMAPARSE_API_KEY and settings.PARSER == "local":
        hint = "Unset PARSER to use it, or unset the key."
        yield Warning("LLAMAPARSE_API_KEY is set, and PARSER=local ignores it.", hint=hint, id="accessa.W213")
    missing = [name for name in NEEDS.get(settings.EMBEDDER, ()) if not getattr(settings, name)]
    if missing:
        hint = f"Set {' and '.join(missing)}, or EMBEDDER=local."
        yield Error(f"EMBEDDER={settings.EMBEDDER} needs {' and '.join(missing)}.", hint=hint, id="accessa.E214")
    if settings.EMBEDDER not in embedders.EMBEDDERS and "." not in settings.EMBEDDER:
        hint = f"Use one of {', '.join(sorted(embedders.EMBEDDERS))}, or the dotted path of a class."
        yield Error(f"There is no embedder {settings.EMBEDDER!r}.", hint=hint, id="accessa.E214")
    yield from _titan()
    if settings.OPENAI_API_KEY and settings.EMBEDDER == "local":
        hint = "Unset EMBEDDER to use it, or unset the key."
        yield Warning("OPENAI_API_KEY is set, and EMBEDDER=local ignores it.", hint=hint, id="accessa.W215")
    if (
        settings.BOOTS_BRAIN_URL
        and settings.BOOTS_BRAIN_URL.rstrip("/") == settings.PUBLIC_URL
        and settings.EMBEDDER == "remote"
    ):
        hint = "Set BOOTS_BRAIN_URL to the deployment that embeds for this one."
        yield Error("EMBEDDER=remote asks this very deployment.", hint=hint, id="accessa.E216")
    yield from _callbacks()


def _titan() -> Found:
    if "titan" not in (settings.EMBEDDER, settings.STATUTES_EMBEDDER):
        return
    try:
        _ = embedders.get_embedder("titan").model
    except ImproperlyConfigured as error:
        yield Error(str(error), hint="Correct TITAN_MODEL.", id="accessa.E250")


def _callbacks() -> Found:
    for number, secret in enumerate(settings.LLAMAPARSE_WEBHOOK_SECRETS, start=1):
        if secret.startswith(PREFIX) and standard_key(secret) is None:
            yield Error(
                f"Secret number {number} of LLAMAPARSE_WEBHOOK_SECRETS begins with {PREFIX} and is no base64.",
                hint="Make one with: echo whsec_$(openssl rand -base64 32)",
                id="accessa.E217",
            )
    url = settings.LLAMAPARSE_CALLBACK_URL
    if (
        url
        and urlsplit(url).path != "/webhooks/llamaparse"
        and urlsplit(url).hostname == urlsplit(settings.PUBLIC_URL).hostname
    ):
        hint = f"Set it to {settings.PUBLIC_URL}/webhooks/llamaparse, or unset it."
        yield Error("LLAMAPARSE_CALLBACK_URL is no address of this API's callbacks.", hint=hint, id="accessa.E218")


KEYS = (
    "LLAMAPARSE_API_KEY", "OPENAI_API_KEY", "S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY", "SUPABASE_ANON_KEY",
    "SUPABASE_SERVICE_ROLE", "SUPABASE_JWT_SECRET", "BRAIN_API_SECRET", "SECRET_KEY",
)  # fmt: skip
OTHERS = {"OPENAI_API_KEY": ("llx-", "sb_", "eyJ"), "LLAMAPARSE_API_KEY": ("sk-", "sb_", "eyJ")}


def _keys() -> Found:
    """What was pasted badly, and what was pasted into the wrong place."""
    for name in KEYS:
        key = getattr(settings, name)
        if (
            key != key.strip()
            or key[:1] in ("'", '"')
            or "\n" in key
            or re.fullmatch(r"<.*>|change-?me|xxx+|\.{3}|…", key)
        ):
            hint = "Paste it again, without quotes or blanks."
            yield Error(f"{name} has blanks or quotes around it, or is a placeholder.", hint=hint, id="accessa.E219")
        if key.startswith(OTHERS.get(name, ("\0",))):
            yield Error(f"{name} holds the key of another vendor.", hint="Exchange them.", id="accessa.E220")


# Who may call, and what nobody reads


def _origins() -> Found:
    for origin in settings.CORS_ALLOWED_ORIGINS:
        if origin.startswith("http:") and not is_local(origin) and settings.PUBLIC_URL.startswith("https:"):
            hint = "Name it with https://."
            yield Warning(
                f"The origin {origin} is not https: whoever is in between can use it.", hint=hint, id="accessa.W232"
            )


def _environment() -> Found:
    for name, meant in env.find_unread_variables(os.environ, also=settings_connectors.variables()):
        yield Warning(f"Nothing reads {name}.", hint=f"Did you mean {meant}?", id="accessa.W233")


PARTS = (
    _addresses, _storage, _vendors, _keys, supabase.check_supabase, connecting.check_connectors,
    statutes.check_statutes, ranges.check_ranges, _origins, _environment,
)  # fmt: skip
