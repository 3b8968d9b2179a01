"""Fake OAuth of HubSpot, Google and Intuit: consent page, token and revocation endpoints in each vendor's format."""

import base64
import hashlib
import json
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import RLock
from typing import Any
from urllib.parse import parse_qsl, urlencode

from testing.fakes.http_messages import ErrorResponse, Request, Response, json_response
from testing.fakes.server import Server, sleep

CLIENT_ID, CLIENT_SECRET = "client-of-accessa", "secret-of-the-client"
VENDORS = {"hubspot": "hubspot", "google_drive": "google", "gmail": "google", "quickbooks": "intuit"}
ROTATING = {"intuit"}
PROSE = "missing or invalid token of ana@example.org"  # what a provider may say, and nobody may keep
MARK = "TOKENMARK"  # in every token, so that a test finds one wherever it got to


@dataclass
class Grant:
    """What a person has allowed. ``spent`` counts down how often a token that was rotated away still works."""

    vendor: str
    account: str
    scopes: list[str]
    refresh: str
    spent: dict[str, int] = field(default_factory=dict)
    dead: bool = False


@dataclass(frozen=True)
class Consent:
    """A code that was given out, and what must be shown to have it exchanged."""

    grant: Grant
    redirect_uri: str
    challenge: str


class OAuthServer(Server):
    """All three vendors under one address. ``asked`` counts by "google:refresh_token", "intuit:revoke" and the like.

    ``rotate``: a refresh brings another refresh token (None: as the vendor does); the one before works ``grace`` times
    more. ``declines``: the person says no. ``allows``: the scopes that are given whatever was asked for.
    """

    name = "oauth"
    settings = ("delay", "expires_in", "rotate", "grace", "declines", "token_chars")

    def __init__(self, *, expires_in: int = 1800, rotate: bool | None = None, grace: int = 0, **how: Any) -> None:
        super().__init__(**how)
        self.expires_in, self.rotate, self.grace = expires_in, rotate, grace
        self.declines, self.token_chars, self.person = False, 300, "1001"
        self.allows: list[str] | None = None
        self.asked: Counter[str] = Counter()
        self._guard = RLock()
        self._codes: dict[str, Consent] = {}
        self._grants: dict[str, Grant] = {}
        self._access: dict[str, tuple[Grant, float]] = {}

    def settings_for(self, provider: str) -> dict[str, str]:
        """Return what replaces the addresses and the client in ``settings.CONNECTORS[provider]``."""
        base = f"{self.url}/{VENDORS[provider]}"
        urls = {
            "authorize_url": f"{base}/authorize",
            "token_url": f"{base}/token",
            "revoke_url": f"{base}/token/revoke",
        }
        return {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET, **urls}

    def issue_tokens(self, provider: str, *, account: str = "1001", scopes: str = "") -> tuple[str, str]:
        """Return an access and a refresh token, as if a person had consented."""
        with self._guard:
            grant = Grant(VENDORS[provider], account, scopes.split(), self._token("refresh"))
            self._grants[grant.refresh] = grant
            return self._new_access(grant), grant.refresh

    def revoke_refresh_token(self, refresh: str) -> None:
        """Do what a person does who removes the app in their account."""
        self._grants[refresh].dead = True

    def accepts(self, access: str) -> bool:
        """Tell whether a vendor's API would take this access token now."""
        grant, until = self._access.get(access, (None, 0.0))
        return grant is not None and not grant.dead and time.time() < until

    def respond(self, request: Request) -> Response:
        vendor, _, step = request.path.removeprefix("/").partition("/")
        sleep(self.delay)
        with self._guard:
            if step == "authorize":
                return self._consent(vendor, dict(parse_qsl(request.query)))
            form = self._form(request)
            self._check_client(vendor, request, form)
            if step == "token":
                self.asked[f"{vendor}:{form.get('grant_type')}"] += 1
                return self._give(vendor, form)
            self.asked[f"{vendor}:{step.rpartition('/')[2]}"] += 1
            return self._introspect(form) if step == "token/introspect" else self._revoke(form)

    def error_response(self, status: int, code: str | None = None) -> Response:
        return json_response({"error": code or "server_error", "error_description": PROSE}, status)

    def _consent(self, vendor: str, params: Mapping[str, str]) -> Response:
        back = {"state": params.get("state", "")}
        if self.declines:
            back["error"] = "access_denied"
        else:
            scopes = params.get("scope", "").split() if self.allows is None else self.allows
            grant = Grant(vendor, self.person, scopes, self._token("refresh"))
            code = self._token("code")
            self._codes[code] = Consent(grant, params["redirect_uri"], params.get("code_challenge", ""))
            back |= {"code": code} | ({"realmId": self.person} if vendor == "intuit" else {})
        return Response(302, b"", {"Location": f"{params['redirect_uri']}?{urlencode(back)}"})

    def _form(self, request: Request) -> dict[str, str]:
        if "json" in (request.headers.get("Content-Type") or ""):
            form: dict[str, str] = json.loads(request.body)
            return form
        return dict(parse_qsl(request.body.decode()))

    def _check_client(self, vendor: str, request: Request, form: Mapping[str, str]) -> None:
        client = (form.get("client_id"), form.get("client_secret"))
        if vendor == "intuit":
            scheme, _, value = (request.headers.get("Authorization") or "").partition(" ")
            client = tuple(base64.b64decode(value).decode().split(":", 1)) if scheme == "Basic" else ("", "")  # type: ignore[assignment]
        if client != (CLIENT_ID, CLIENT_SECRET):
            hubspot = json_response({"status": "BAD_CLIENT_ID", "message": PROSE, "correlationId": "c"}, 400)
            raise ErrorResponse(hubspot if vendor == "hubspot" else self.error_response(401, "invalid_client"))

    def _give(self, vendor: str, form: Mapping[str, str]) -> Response:
        if form.get("grant_type") == "authorization_code":
            return self._tokens(self._exchanged(vendor, form), first=True)
        grant = self._grants.get(form.get("refresh_token", ""))
        if grant is None or grant.dead or grant.vendor != vendor or not self._is_current(grant, form["refresh_token"]):
            raise ErrorResponse(self._dead(vendor))
        rotates = vendor in ROTATING if self.rotate is None else self.rotate
        if rotates:
            grant.spent[grant.refresh] = self.grace
            grant.refresh = self._token("refresh")
            self._grants[grant.refresh] = grant
        return self._tokens(grant, first=False)

    def _is_current(self, grant: Grant, refresh: str) -> bool:
        if refresh == grant.refresh:
            return True
        grant.spent[refresh] -= 1
        return grant.spent[refresh] >= 0

    def _exchanged(self, vendor: str, form: Mapping[str, str]) -> Grant:
        consent = self._codes.pop(form.get("code", ""), None)
        if consent is None or consent.grant.vendor != vendor or consent.redirect_uri != form.get("redirect_uri"):
            raise ErrorResponse(self._dead(vendor, "BAD_AUTH_CODE"))
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if consent.challenge and base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != consent.challenge:
            raise ErrorResponse(self._dead(vendor, "BAD_AUTH_CODE"))
        self._grants[consent.grant.refresh] = consent.grant
        return consent.grant

    def _dead(self, vendor: str, hubspot: str = "BAD_REFRESH_TOKEN") -> Response:
        if vendor == "hubspot":
            return json_response({"status": hubspot, "message": PROSE, "correlationId": secrets.token_hex(8)}, 400)
        return self.error_response(400, "invalid_grant")

    def _tokens(self, grant: Grant, *, first: bool) -> Response:
        body: dict[str, Any] = {"access_token": self._new_access(grant), "expires_in": self.expires_in}
        refresh = {"refresh_token": grant.refresh}
        if grant.vendor == "hubspot":
            body |= refresh | {"token_type": "bearer", "hub_id": int(grant.account), "scopes": grant.scopes}
        elif grant.vendor == "google":
            moved = first or grant.spent
            body |= {"token_type": "Bearer", "scope": " ".join(grant.scopes)} | (refresh if moved else {})
            body |= {"id_token": _id_token(grant.account)} if first and "openid" in grant.scopes else {}
        else:
            body |= refresh | {"token_type": "bearer", "x_refresh_token_expires_in": 8_726_400}
        return json_response(body)

    def _introspect(self, form: Mapping[str, str]) -> Response:
        grant, _ = self._access.get(form.get("token", ""), (None, 0.0))
        return json_response({"active": True, "hub_id": int(grant.account)} if grant else {"active": False})

    def _revoke(self, form: Mapping[str, str]) -> Response:
        grant = self._grants.get(form.get("token", ""))
        if grant is None or grant.dead:
            return self.error_response(400, "invalid_token")
        grant.dead = True
        return json_response({})

    def _new_access(self, grant: Grant) -> str:
        access = self._token("access")
        self._access[access] = (grant, time.time() + self.expires_in)
        return access

    def _token(self, kind: str) -> str:
        return f"{kind}-{MARK}-{secrets.token_hex(16)}".ljust(self.token_chars if kind != "code" else 0, "x")


def _id_token(subject: str) -> str:
    claims = json.dumps({"iss": "https://accounts.google.com", "sub": subject}).encode()
    return f"e30.{base64.urlsafe_b64encode(claims).rstrip(b'=').decode()}.c2ln"
