"""Sign-in by an OpenID Connect provider: authorization code flow with PKCE, and identities that belong to users.

https://openid.net/specs/openid-connect-core-1_0.html#CodeFlowAuth
"""

import base64
import hashlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hmac import compare_digest
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import httpx
import jwt
from django.conf import settings
from django.contrib.sessions.backends.base import SessionBase
from django.db import IntegrityError, transaction
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from accounts.common_error_codes import unavailable
from accounts.errors import ApiError, ErrorCode
from accounts.models import Invitation, User, UserIdentity

OIDC_EXPIRED = ErrorCode(
    "OIDC_EXPIRED", _("This sign-in took too long, or was begun in another browser. Begin it again.")
)
OIDC_REFUSED = ErrorCode(
    "OIDC_REFUSED", _("The sign-in was not confirmed by the service that you chose. Begin it again."), status=403
)
OIDC_EMAIL_UNVERIFIED = ErrorCode(
    "OIDC_EMAIL_UNVERIFIED", _("The service that you chose has not verified your e-mail address."), status=403
)
OIDC_NOT_CONNECTED = ErrorCode(
    "OIDC_NOT_CONNECTED",
    _("This address has an account already. Sign in with its password, then connect the service on its page."),
    status=409,
)
OIDC_IN_USE = ErrorCode("OIDC_IN_USE", _("This sign-in is connected to another account."), status=409)
SIGN_UP_CLOSED = ErrorCode(
    "SIGN_UP_CLOSED", _("You have no account here, and only an invitation opens one."), status=403
)

PENDING = "oidc"  # the key in a session: what the callback is checked with
PENDING_SECONDS = 600
TIMEOUT_SECONDS = 5.0
LEEWAY_SECONDS = 60.0
ALGORITHMS = ["RS256", "PS256", "ES256", "EdDSA"]  # signatures by a published key only: never "none" or HMAC


@dataclass(frozen=True, slots=True)
class SignedIn:
    """What the provider has confirmed. ``connect``: the user to whom the identity shall belong."""

    issuer: str
    subject: str
    email: str
    is_email_verified: bool
    next_page: str
    connect: UUID | None


def is_configured() -> bool:
    return bool(settings.OIDC_ISSUER)


def start(session: SessionBase, *, redirect_uri: str, next_page: str, connect: UUID | None) -> str:
    """Return the provider's address to which the browser is sent. Raises ``ApiError("UNAVAILABLE")``."""
    pending = {"state": secrets.token_urlsafe(32), "nonce": secrets.token_urlsafe(32),
               "verifier": secrets.token_urlsafe(48)}  # fmt: skip
    challenge = base64.urlsafe_b64encode(hashlib.sha256(pending["verifier"].encode()).digest()).rstrip(b"=").decode()
    params = {
        "response_type": "code",
        "scope": "openid email",
        "client_id": settings.OIDC_CLIENT_ID,
        "redirect_uri": redirect_uri,
        "state": pending["state"],
        "nonce": pending["nonce"],
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    url = f"{_provider()['authorization_endpoint']}?{urlencode(params)}"
    session[PENDING] = pending | {
        "next": next_page,
        "connect": str(connect or ""),
        "until": time.time() + PENDING_SECONDS,
    }
    return url


def complete(session: SessionBase, params: Mapping[str, str], *, redirect_uri: str) -> SignedIn:
    """Exchange the code of a callback, once. Raises ``ApiError``: OIDC_EXPIRED, OIDC_REFUSED, UNAVAILABLE."""
    pending = session.pop(PENDING, None)
    if not pending or time.time() > pending["until"]:
        raise ApiError(OIDC_EXPIRED)
    if not compare_digest(params.get("state", "").encode(), pending["state"].encode()):
        raise ApiError(OIDC_EXPIRED)
    if "code" not in params:
        raise ApiError(OIDC_REFUSED)
    claims = _claims(_id_token(params["code"], pending["verifier"], redirect_uri))
    if not compare_digest(str(claims.get("nonce", "")).encode(), pending["nonce"].encode()):
        raise ApiError(OIDC_REFUSED)
    return SignedIn(
        issuer=claims["iss"],
        subject=claims["sub"],
        email=str(claims.get("email", "")).strip().lower(),
        is_email_verified=claims.get("email_verified") is True,
        next_page=pending["next"],
        connect=UUID(pending["connect"]) if pending["connect"] else None,
    )


def find_or_create_user(signed_in: SignedIn) -> User:
    """Return the user to whom an identity belongs, or a new one as ``SIGN_UP`` allows.

    An account with the same address is not taken over: its owner connects the identity. Raises ``ApiError``.
    """
    identity = UserIdentity.objects.filter(issuer=signed_in.issuer, subject=signed_in.subject).first()
    if identity is not None:
        if not identity.user.is_active:
            raise ApiError(OIDC_REFUSED)
        return identity.user
    if not signed_in.email or not signed_in.is_email_verified:
        raise ApiError(OIDC_EMAIL_UNVERIFIED)
    if User.objects.filter(email=signed_in.email).exists():
        raise ApiError(OIDC_NOT_CONNECTED)
    try:
        with transaction.atomic():
            user = _create_user(signed_in.email)
            UserIdentity.objects.create(user=user, issuer=signed_in.issuer, subject=signed_in.subject)
    except IntegrityError as error:  # a request at the same moment
        raise ApiError(OIDC_NOT_CONNECTED) from error
    return user


def _create_user(email: str) -> User:
    invitation = Invitation.objects.filter(email=email, expires_at__gt=Now()).order_by("created_at").first()
    if settings.SIGN_UP == "closed" or (settings.SIGN_UP == "invitation" and invitation is None):
        raise ApiError(SIGN_UP_CLOSED)
    Invitation.objects.filter(email=email).delete()
    columns: dict[str, Any] = {"id": invitation.pk} if invitation else {}
    return User.objects.create_user(email, email, **columns)


def connect_identity(user: User, signed_in: SignedIn) -> None:
    """Let an identity sign in as a user. Raises ``ApiError("OIDC_IN_USE")``."""
    owner, _is_new = UserIdentity.objects.get_or_create(
        issuer=signed_in.issuer, subject=signed_in.subject, defaults={"user": user}
    )
    if owner.user_id != user.pk:
        raise ApiError(OIDC_IN_USE)


def _id_token(code: str, verifier: str, redirect_uri: str) -> str:
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri, "code_verifier": verifier}
    try:
        response = httpx.post(
            _provider()["token_endpoint"], data=form, timeout=TIMEOUT_SECONDS,
            auth=(settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET),
        )  # fmt: skip
    except httpx.HTTPError as error:
        raise unavailable() from error
    if response.is_server_error:
        raise unavailable()
    try:
        return str(response.raise_for_status().json()["id_token"])
    except (httpx.HTTPStatusError, ValueError, KeyError, TypeError) as error:
        raise ApiError(OIDC_REFUSED) from error


def _claims(id_token: str) -> dict[str, Any]:
    """Verify an id token as §3.1.3.7 asks, but for the nonce."""
    try:
        key = _keys(_provider()["jwks_uri"]).get_signing_key_from_jwt(id_token)
        claims: dict[str, Any] = jwt.decode(
            id_token, key.key, ALGORITHMS, audience=settings.OIDC_CLIENT_ID, issuer=settings.OIDC_ISSUER,
            leeway=LEEWAY_SECONDS, options={"require": ["exp", "iat", "sub", "aud", "iss"]},
        )  # fmt: skip
    except jwt.PyJWKClientConnectionError as error:
        raise unavailable() from error
    except (jwt.PyJWTError, ValueError) as error:
        raise ApiError(OIDC_REFUSED) from error
    if claims.get("azp", settings.OIDC_CLIENT_ID) != settings.OIDC_CLIENT_ID:
        raise ApiError(OIDC_REFUSED)
    return claims


def _provider() -> dict[str, str]:
    return _discover(settings.OIDC_ISSUER)


@lru_cache(maxsize=4)
def _discover(issuer: str) -> dict[str, str]:
    """Return the provider's addresses; an error is not remembered."""
    try:
        response = httpx.get(f"{issuer.rstrip('/')}/.well-known/openid-configuration", timeout=TIMEOUT_SECONDS)
        configuration = response.raise_for_status().json()
        addresses = {
            name: str(configuration[name]) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")
        }
        is_issuer = configuration["issuer"] == issuer
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise unavailable() from error
    if not is_issuer:
        raise unavailable()
    return addresses


@lru_cache(maxsize=4)
def _keys(url: str) -> jwt.PyJWKClient:
    return jwt.PyJWKClient(url, cache_keys=True, lifespan=600, timeout=TIMEOUT_SECONDS)
