"""Authentication: JWTs by secret and by published key, API tokens, sessions. Failures reveal nothing."""

import base64
import json
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.db import connection
from django.test import Client
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from accounts import api_tokens, supabase_jwt
from accounts.models import ApiToken, User
from testing.personas import Person

NOBODYS = "00000000-0000-4000-8000-000000000000"
SECRET = "a-secret-of-the-project-that-is-long-enough-for-HS512-and-more-than-64-bytes"
REFUSED = b'{"code":"INVALID_TOKEN","detail":"The token is not valid."}'
ABSENT = b'{"code":"NOT_AUTHENTICATED","detail":"Send a bearer token."}'
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
PUBLIC_PEM = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def secret(settings: Any) -> None:
    settings.SUPABASE_JWT_SECRET = SECRET


def claims(**changed: Any) -> dict[str, Any]:
    """Good claims with some changed; None leaves a claim out."""
    good = {"sub": str(uuid4()), "aud": "authenticated", "exp": int(time.time()) + 3600, "role": "authenticated"}
    return {name: value for name, value in (good | changed).items() if value is not None}


def sign_jwt(**changed: Any) -> str:
    return jwt.encode(claims(**changed), SECRET, algorithm="HS256")


def call(bearer: str | None, path: str = "/documents", method: str = "get") -> Any:
    headers = {"authorization": bearer} if bearer is not None else {}
    return getattr(Client(raise_request_exception=False), method)(path, headers=headers)


def forge_jwt(header: dict[str, Any], payload: object, signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(payload).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


# JWT with the project's secret


def test_a_supabase_token_admits_an_unknown_user() -> None:
    assert call(f"Bearer {sign_jwt()}").status_code == 200


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_is_case_insensitive(scheme: str) -> None:
    assert call(f"{scheme} {sign_jwt()}").status_code == 200


def test_an_audience_among_several_is_enough() -> None:
    assert call(f"Bearer {sign_jwt(aud=['other', 'authenticated'])}").status_code == 200


BAD_CLAIMS: dict[str, dict[str, Any]] = {
    "expired": {"exp": int(time.time()) - 1},
    "no expiry": {"exp": None},
    "an expiry that is no number": {"exp": "soon"},
    "wrong audience": {"aud": "anon"},
    "no audience": {"aud": None},
    "no subject": {"sub": None},
    "empty subject": {"sub": ""},
    "a subject that is no uuid": {"sub": "ana"},
    "a subject that is a number": {"sub": 7},
    "a subject that is a list": {"sub": ["6c8a1e6e-1f0b-4aa8-9f0a-1a7c2e6f2b42"]},
    "a subject with NUL": {"sub": "6c8a1e6e-1f0b-4aa8-9f0a-1a7c2e6f2b4\0"},
    "not yet valid": {"nbf": int(time.time()) + 86_400},
    "issued in the future": {"iat": int(time.time()) + 86_400},
}
FORGED = {
    "another secret": jwt.encode(claims(), "another-secret-that-is-long-enough-as-well", algorithm="HS256"),
    "an empty secret": forge_jwt({"alg": "HS256"}, claims()),
    "another algorithm of the family": jwt.encode(claims(), SECRET, algorithm="HS512"),
    "algorithm none": jwt.encode(claims(), None, algorithm="none"),  # type: ignore[arg-type]
    "algorithm None, spelled otherwise": forge_jwt({"alg": "nOnE", "typ": "JWT"}, claims()),
    "no algorithm": forge_jwt({"typ": "JWT"}, claims()),
    "an algorithm that is a list": forge_jwt({"alg": ["HS256"]}, claims(), b"x"),
    "an RSA signature without JWKS": jwt.encode(claims(), RSA_KEY, algorithm="RS256"),
    "a payload that is a list": forge_jwt({"alg": "HS256"}, [1], b"x"),
    "no signature": jwt.encode(claims(), SECRET, algorithm="HS256").rpartition(".")[0] + ".",
    "a cut signature": jwt.encode(claims(), SECRET, algorithm="HS256")[:-4],
    "two parts": "abc.def",
    "garbage": "garbage",
    "five parts": "a.b.c.d.e",
    "dots": "..",
    "base64 that is no JSON": "AAAA.AAAA.AAAA",
    "very long": "A" * 4000,
    "an unknown API token": api_tokens.PREFIX + "A" * 43,
    "an API token's prefix alone": api_tokens.PREFIX,
}


@pytest.mark.parametrize("name", BAD_CLAIMS)
def test_a_well_signed_token_with_wrong_claims_is_refused(name: str) -> None:
    answer = call(f"Bearer {sign_jwt(**BAD_CLAIMS[name])}")

    assert (answer.status_code, answer.content) == (401, REFUSED)


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_or_garbled_token_is_refused_with_the_same_bytes(name: str) -> None:
    answer = call(f"Bearer {FORGED[name]}")

    assert (answer.status_code, answer.content) == (401, REFUSED)
    assert answer["WWW-Authenticate"] == 'Bearer realm="accessa"'


@pytest.mark.parametrize("header", ["Bearer", "Bearer ", "Bearer a b", "Bearer \xe9\xe8"])
def test_a_malformed_header_is_refused_the_same_way(header: str) -> None:
    answer = call(header)

    assert (answer.status_code, answer.content) == (401, REFUSED)


@pytest.mark.parametrize("header", [None, "", "Basic YW5hOmFuYQ==", "Token x"])
def test_a_request_without_a_token_is_rejected(header: str | None) -> None:
    answer = call(header)

    assert (answer.status_code, answer.content) == (401, ABSENT)
    assert "Bearer" in answer["WWW-Authenticate"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("post", "/upload"), ("get", "/documents"), ("get", f"/documents/{NOBODYS}"),
        ("delete", f"/documents/{NOBODYS}"),
        ("get", f"/documents/{NOBODYS}/original"), ("get", f"/documents/{NOBODYS}/parsed"),
        ("get", f"/documents/{NOBODYS}/chunks"), ("post", "/search"), ("get", "/jobs"), ("get", f"/job/{NOBODYS}"),
        ("get", f"/jobs/{NOBODYS}"), ("post", f"/jobs/{NOBODYS}/retry"), ("post", f"/jobs/{NOBODYS}/advance"),
    ],
)  # fmt: skip
def test_every_path_requires_authentication(method: str, path: str) -> None:
    assert call(None, path, method).content == ABSENT
    assert call("Bearer garbage", path, method).content == REFUSED


def test_a_valid_token_of_a_deactivated_user_is_rejected(ana: Person) -> None:
    token = sign_jwt(sub=str(ana.id))
    assert call(f"Bearer {token}").status_code == 200

    User.objects.filter(pk=ana.id).update(is_active=False)

    assert call(f"Bearer {token}").content == REFUSED
    assert call(f"Bearer {ana.token}").content == REFUSED


def test_without_a_secret_no_jwt_gets_in(settings: Any) -> None:
    settings.SUPABASE_JWT_SECRET = ""

    assert call(f"Bearer {jwt.encode(claims(), 'x' * 32, algorithm='HS256')}").content == REFUSED
    assert call(f"Bearer {forge_jwt({'alg': 'HS256'}, claims())}").content == REFUSED


# API tokens


def test_a_token_is_stored_as_a_digest_only(ana: Person) -> None:
    row = ApiToken.objects.values_list("digest", "name").get()

    assert ana.token not in row
    assert api_tokens.token_digest(ana.token) == row[0]


@pytest.mark.parametrize(
    "change",
    [
        {"revoked_at": datetime(2020, 1, 1, tzinfo=UTC)},
        {"revoked_at": datetime.now(UTC)},
        {"expires_at": datetime.now(UTC) - timedelta(seconds=1)},
        {"digest": "x"},
    ],
)
def test_an_expired_or_revoked_token_is_rejected(change: dict[str, Any], ana: Person) -> None:
    assert ana.get("/documents").status_code == 200

    ApiToken.objects.filter(user_id=ana.id).update(**change)

    assert ana.get("/documents").content == REFUSED


def test_a_token_that_expires_later_is_good(ana: Person) -> None:
    ApiToken.objects.update(expires_at=datetime.now(UTC) + timedelta(seconds=60))

    assert ana.get("/documents").status_code == 200


# JWKS, from a real server


class Keys(BaseHTTPRequestHandler):
    answer: tuple[int, bytes] = (200, b"{}")
    delay = 0.0
    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        time.sleep(self.delay)
        status, body = self.answer
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


def publish_key() -> bytes:
    rsa_key = json.loads(RSAAlgorithm.to_jwk(RSA_KEY.public_key())) | {"kid": "rsa", "use": "sig", "alg": "RS256"}
    ec_key = json.loads(ECAlgorithm.to_jwk(EC_KEY.public_key())) | {"kid": "ec", "use": "sig", "alg": "ES256"}
    return json.dumps({"keys": [rsa_key, ec_key]}).encode()


@pytest.fixture
def jwks(settings: Any) -> Iterator[type[Keys]]:
    Keys.answer, Keys.delay, Keys.asked = (200, publish_key()), 0.0, 0
    supabase_jwt._jwks.cache_clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Keys)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    settings.SUPABASE_JWKS_URL = f"http://127.0.0.1:{server.server_port}/.well-known/jwks.json"
    yield Keys
    server.shutdown()
    server.server_close()
    thread.join()
    supabase_jwt._jwks.cache_clear()


def sign_with_key(key: Any, kid: str | None = "rsa", algorithm: str = "RS256", **changed: Any) -> str:
    return jwt.encode(claims(**changed), key, algorithm=algorithm, headers={"kid": kid} if kid else {})


def test_a_published_key_signs(jwks: type[Keys]) -> None:
    assert call(f"Bearer {sign_with_key(RSA_KEY)}").status_code == 200
    assert call(f"Bearer {sign_with_key(EC_KEY, 'ec', 'ES256')}").status_code == 200


def test_the_published_keys_are_cached(jwks: type[Keys]) -> None:
    for _ in range(3):
        assert call(f"Bearer {sign_with_key(RSA_KEY)}").status_code == 200

    assert jwks.asked == 1


def test_beside_published_keys_the_secret_still_signs(jwks: type[Keys]) -> None:
    assert call(f"Bearer {sign_jwt()}").status_code == 200


@pytest.mark.parametrize(
    "token",
    [
        sign_with_key(OTHER_RSA_KEY),
        sign_with_key(RSA_KEY, "unknown"),
        sign_with_key(RSA_KEY, None),
        sign_with_key(RSA_KEY, "ec"),
        sign_with_key(RSA_KEY, exp=int(time.time()) - 5),
        sign_with_key(RSA_KEY, aud="other"),
        sign_with_key(RSA_KEY, sub="x"),
        forge_jwt({"alg": "RS256", "kid": 5}, claims(), b"x"),
        forge_jwt({"alg": "EdDSA", "kid": "rsa"}, claims(), b"x"),
    ],
)
def test_a_token_that_no_published_key_signed_is_refused(token: str, jwks: type[Keys]) -> None:
    assert call(f"Bearer {token}").content == REFUSED


@pytest.mark.parametrize("with_secret", [True, False])
def test_a_public_key_used_as_an_hmac_secret_signs_nothing(with_secret: bool, jwks: type[Keys], settings: Any) -> None:
    """The classical confusion: HS256 over the public key, which everybody has."""
    settings.SUPABASE_JWT_SECRET = SECRET if with_secret else ""
    for key in (PUBLIC_PEM, publish_key()):
        head, payload, _ = forge_jwt({"alg": "HS256", "kid": "rsa"}, claims()).split(".")
        signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(
            f"{head}.{payload}".encode(), key
        )
        forged = f"{head}.{payload}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"

        assert call(f"Bearer {forged}").content == REFUSED


def test_unreachable_keys_answer_503(settings: Any) -> None:
    supabase_jwt._jwks.cache_clear()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        settings.SUPABASE_JWKS_URL = f"http://127.0.0.1:{closed.getsockname()[1]}/jwks.json"

        answer = call(f"Bearer {sign_with_key(RSA_KEY)}")

    assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
    assert int(answer["Retry-After"]) > 0


@pytest.mark.parametrize("broken", [(500, b""), (404, b"gone"), (200, b"not json"), (200, b'{"keys": []}')])
def test_an_invalid_key_set_answers_503(broken: tuple[int, bytes], jwks: type[Keys]) -> None:
    jwks.answer = broken

    answer = call(f"Bearer {sign_with_key(RSA_KEY)}")

    assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")


def test_cached_keys_survive_an_outage(jwks: type[Keys]) -> None:
    assert call(f"Bearer {sign_with_key(RSA_KEY)}").status_code == 200

    jwks.answer = (500, b"")

    assert call(f"Bearer {sign_with_key(RSA_KEY)}").status_code == 200


# Staff and the service


def test_staff_call_with_their_session(sam: Person) -> None:
    browser = Client()
    browser.force_login(sam.user)

    assert browser.get("/documents").status_code == 200


def test_a_session_that_writes_needs_the_csrf_token(sam: Person) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(sam.user)

    answer = browser.post("/search", {"query": "x"}, content_type="application/json")

    assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")


def test_a_bearer_token_takes_precedence_over_a_session(sam: Person) -> None:
    browser = Client()
    browser.force_login(sam.user)

    assert browser.get("/documents", headers={"authorization": "Bearer garbage"}).content == REFUSED


@pytest.mark.parametrize("role", ["authenticated", "SERVICE_ROLE", "anon", "", "service"])
def test_no_claim_but_the_service_role_makes_a_service(role: str) -> None:
    answer = call(f"Bearer {sign_jwt(role=role)}", f"/jobs/{uuid4()}/advance", "post")

    assert (answer.status_code, answer.json()["code"]) == (403, "INSUFFICIENT_SCOPE")


def test_the_service_role_of_supabase_is_the_service() -> None:
    assert call(f"Bearer {sign_jwt(role='service_role')}", f"/jobs/{uuid4()}/advance", "post").status_code == 404


@pytest.mark.django_db(transaction=True)
def test_the_statements_of_each_call_are_prepared_on_the_connection_of_an_api_thread(ana: Person) -> None:
    connection.close()  # a worker of another test may have set this one to prepare everything

    for _ in range(2):
        assert ana.get("/jobs").status_code == 200

    with connection.cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_prepared_statements")
        statements = [statement for (statement,) in cursor.fetchall()]
    assert any("api_tokens" in statement for statement in statements)
