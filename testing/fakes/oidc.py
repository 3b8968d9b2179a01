"""Fake OpenID Connect provider: discovery, consent, token endpoint and published keys."""

import base64
import hashlib
import json
import secrets
import time
from typing import Any
from urllib.parse import parse_qsl, urlencode

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

from testing.fakes.http_messages import Request, Response, json_response
from testing.fakes.server import Server

CLIENT_ID, CLIENT_SECRET, KEY_ID = "accessa-client", "a secret of the client", "key-1"
REFUSED = json_response({"error": "invalid_grant"}, 400)


class OidcServer(Server):
    """``claims`` replace those of the next id tokens, None removes one; ``signing_key`` signs them."""

    name = "oidc"

    def __init__(self, **server: Any) -> None:
        super().__init__(**server)
        self.signing_key = self.published_key = generate_private_key(SECP256R1())
        self.claims: dict[str, Any] = {}
        self.declines = False
        self._codes: dict[str, dict[str, str]] = {}

    def respond(self, request: Request) -> Response:
        return {
            "GET /.well-known/openid-configuration": self._discovery,
            "GET /authorize": self._authorize,
            "POST /token": self._token,
            "GET /jwks": self._jwks,
        }[request.route](request)

    def _discovery(self, request: Request) -> Response:
        urls = {
            f"{name}_endpoint": f"{self.url}/{path}"
            for name, path in (("authorization", "authorize"), ("token", "token"))
        }
        return json_response({"issuer": self.url, "jwks_uri": f"{self.url}/jwks", **urls})

    def _authorize(self, request: Request) -> Response:
        asked = dict(parse_qsl(request.query))
        code = secrets.token_urlsafe(16)
        self._codes[code] = asked
        answer = {"error": "access_denied"} if self.declines else {"code": code}
        location = f"{asked['redirect_uri']}?{urlencode(answer | {'state': asked['state']})}"
        return Response(302, headers={"Location": location})

    def _token(self, request: Request) -> Response:
        form = dict(parse_qsl(request.body.decode()))
        asked = self._codes.pop(form.get("code", ""), None)
        basic = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if asked is None or request.headers.get("Authorization") != f"Basic {basic}":
            return REFUSED
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (asked["code_challenge"], asked["redirect_uri"]) != (challenge, form["redirect_uri"]):
            return REFUSED
        now = int(time.time())
        claims = {"iss": self.url, "aud": CLIENT_ID, "sub": "1001", "iat": now, "exp": now + 300,
                  "nonce": asked["nonce"], "email": "new@example.org", "email_verified": True}  # fmt: skip
        claims = {name: value for name, value in (claims | self.claims).items() if value is not None}
        token = jwt.encode(claims, self.signing_key, "ES256", headers={"kid": KEY_ID})
        return json_response({"access_token": "unused", "token_type": "Bearer", "id_token": token})

    def _jwks(self, request: Request) -> Response:
        jwk = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.published_key.public_key()))
        return json_response({"keys": [jwk | {"kid": KEY_ID, "use": "sig", "alg": "ES256"}]})
