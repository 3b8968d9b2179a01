"""Fake Bedrock runtime with Titan embeddings: limits, errors, ledger; verifies signatures."""

import hashlib
import json
import re
import uuid
from threading import Lock
from typing import Any
from urllib.parse import unquote

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from embeddings import tokenizer
from testing.fakes.http_messages import ErrorResponse, Request, Response, json_response
from testing.fakes.openai import Bucket, text_vector
from testing.fakes.server import Server, sleep

ACCESS_KEY, SECRET_KEY, REGION = "AKIASTANDIN", "stand-in-secret", "us-east-1"
V1, V2 = "amazon.titan-embed-text-v1", "amazon.titan-embed-text-v2:0"
MOST_TOKENS, MOST_CHARACTERS = 8192, 50_000
WIDTHS = (1024, 512, 256)
CODES = {
    400: "ValidationException", 401: "UnrecognizedClientException", 402: "ServiceQuotaExceededException",
    403: "AccessDeniedException", 404: "ResourceNotFoundException", 408: "ModelTimeoutException",
    424: "ModelErrorException", 429: "ThrottlingException", 500: "InternalServerException",
    503: "ServiceUnavailableException",
}  # fmt: skip


class BedrockServer(Server):
    """``delay``: seconds a call takes. ``requests_per_minute``: 0 is without end.

    ``poison``: a text that contains it is refused with 400. ``exact_tokens=False`` guesses them (faster).
    """

    name = "bedrock"
    settings = ("delay", "poison", "requests_per_minute", "exact_tokens")

    def __init__(
        self, *, requests_per_minute: int = 0, poison: str = "", exact_tokens: bool = True, **server: Any
    ) -> None:
        super().__init__(**server)
        self.poison, self.exact_tokens = poison, exact_tokens
        self._budget, self._left = Lock(), Bucket(requests_per_minute)
        self.flying = self.most_flying = 0

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "TITAN_ENDPOINT_URL": self.url,
            "TITAN_REGION": REGION,
        }

    @property
    def requests_per_minute(self) -> float:
        return self._left.per_minute

    @requests_per_minute.setter
    def requests_per_minute(self, most: float) -> None:
        self._left = Bucket(most)

    def respond(self, request: Request) -> Response:
        with self._budget:
            self.flying += 1
            self.most_flying = max(self.most_flying, self.flying)
        try:
            return self._answer(request)
        finally:
            with self._budget:
                self.flying -= 1

    def _answer(self, request: Request) -> Response:
        if not _is_signed(request):
            raise ErrorResponse(self.error_response(403, "InvalidSignatureException"))
        match = re.fullmatch(r"POST /model/(.+)/invoke", request.route)
        if not match:
            raise ErrorResponse(self.error_response(404, "UnknownOperationException"))
        params, width = self._asked(request, unquote(match[1]))
        count = tokenizer.count_tokens(params) if self.exact_tokens else len(params) // 4 + 1
        if count > MOST_TOKENS:
            raise ErrorResponse(
                self._invalid(f"400 Bad Request: Too many input tokens. Max input tokens: {MOST_TOKENS}")
            )
        self._admit()
        self.ledger.sell([hashlib.sha256(params.encode("utf-8", "replace")).hexdigest()], tokens=count)
        sleep(self.delay)
        row = text_vector(params).tolist()[:width]
        body: dict[str, Any] = {"embedding": row, "inputTextTokenCount": count}
        if width in WIDTHS:
            body["embeddingsByType"] = {"float": row}
        return json_response(body, 200, {"x-amzn-RequestId": str(uuid.uuid4())})

    def error_response(self, status: int, code: str | None = None) -> Response:
        return _error(status, code or CODES.get(status, "InternalServerException"), f"The fake answers {status}.")

    def _asked(self, request: Request, model: str) -> tuple[str, int]:
        try:
            params = json.loads(request.body)
        except ValueError:
            params = None
        allowed = {V1: {"inputText"}, V2: {"inputText", "dimensions", "normalize", "embeddingTypes"}}
        if model not in allowed:
            raise ErrorResponse(self._invalid("The provided model identifier is invalid."))
        if not isinstance(params, dict) or not params.keys() <= allowed[model]:
            raise ErrorResponse(self._invalid("Malformed input request, please reformat your input and try again."))
        text, width = params.get("inputText"), params.get("dimensions", WIDTHS[0]) if model == V2 else 1536
        if not isinstance(text, str) or not 0 < len(text) <= MOST_CHARACTERS:
            raise ErrorResponse(self._invalid("Malformed input request: expected minLength: 1, maxLength: 50000."))
        if width not in (*WIDTHS, 1536):
            raise ErrorResponse(self._invalid("Malformed input request: dimensions."))
        if self.poison and self.poison in text:
            raise ErrorResponse(self._invalid("This request has been blocked by our content filters."))
        return text, width

    def _admit(self) -> None:
        with self._budget:
            if self._left.seconds_until(1):
                raise ErrorResponse(_error(429, "ThrottlingException", "Too many requests, please wait."))
            self._left.left -= 1

    @staticmethod
    def _invalid(message: str) -> Response:
        return _error(400, "ValidationException", message)


def _error(status: int, code: str, message: str) -> Response:
    return json_response(
        {"message": message}, status, {"x-amzn-ErrorType": code, "x-amzn-RequestId": str(uuid.uuid4())}
    )


def _is_signed(request: Request) -> bool:
    """Compute the signature over what has arrived: a path or a header that the way here has changed shows."""
    match = re.fullmatch(
        rf"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/\d+/{REGION}/bedrock/aws4_request,"
        r" SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})",
        request.headers.get("Authorization") or "",
    )
    if not match:
        return False
    signer = SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY), "bedrock", REGION)
    headers = {name: request.headers[name] for name in match[1].split(";")}
    arrived = AWSRequest(request.method, f"http://{headers['host']}{request.target}", headers, request.body)
    arrived.context["timestamp"] = headers["x-amz-date"]
    string_to_sign = signer.string_to_sign(arrived, signer.canonical_request(arrived))
    return bool(signer.signature(string_to_sign, arrived) == match[2])
