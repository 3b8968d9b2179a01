"""Fake OpenAI: embeddings with limits, errors and a ledger; answers of the Responses API."""

import hashlib
import json
import time
import uuid
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import Any

import numpy

from embeddings import tokenizer
from embeddings.embedders.registry import DIMENSIONS, Vectors, unit
from testing.fakes.http_messages import ErrorResponse, Request, Response, json_response
from testing.fakes.openai_responses import ResponsesModel, is_responses_call
from testing.fakes.server import Server, sleep

MODEL = "text-embedding-3-small"
KEY = "sk-stand-in"
MOST_TEXTS = 2048
MOST_TOKENS = 300_000
LONGEST_TEXT = 8191
PARTS = 16  # of a vector, each chosen by one byte of the text's hash
TYPES = {400: "invalid_request_error", 401: "invalid_request_error", 429: "requests", 500: "server_error"}
CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}


@dataclass
class Bucket:
    """What a key may spend a minute, refilled all the time; 0 means as much as it likes."""

    per_minute: float
    left: float = field(init=False)
    at: float = field(init=False)

    def __post_init__(self) -> None:
        self.left, self.at = self.per_minute, time.monotonic()

    def seconds_until(self, amount: float) -> float:
        """Return the seconds until ``amount`` can be taken."""
        now = time.monotonic()
        self.left = min(self.per_minute, self.left + (now - self.at) * self.per_minute / 60)
        self.at = now
        return max(0.0, amount - self.left) * 60 / self.per_minute if self.per_minute else 0.0

    def headers(self, what: str) -> dict[str, str]:
        if not self.per_minute:
            return {}
        full = (self.per_minute - self.left) * 60 / self.per_minute
        return {
            f"x-ratelimit-limit-{what}": str(int(self.per_minute)),
            f"x-ratelimit-remaining-{what}": str(max(0, int(self.left))),
            f"x-ratelimit-reset-{what}": duration(full),
        }


def duration(seconds: float) -> str:
    """As Go writes it: 12ms, 1.5s, 6m0s."""
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))}ms"
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes)}m{rest:.3g}s" if minutes else f"{rest:.3g}s"


class OpenAIServer(Server):
    """``url`` is the base URL with /v1.

    ``delay``: seconds a call takes. ``requests_per_minute``, ``tokens_per_minute``: 0 is without end.
    ``answers``: the mode of ``responses``, which answers POST /v1/responses.
    ``poison``: a call with a text that contains it is refused with 400. ``exact_tokens=False`` guesses them (faster).
    """

    name = "openai"
    settings = ("delay", "poison", "requests_per_minute", "tokens_per_minute", "key", "exact_tokens", "answers")

    def __init__(
        self,
        *,
        key: str = KEY,
        requests_per_minute: int = 0,
        tokens_per_minute: int = 0,
        poison: str = "",
        exact_tokens: bool = True,
        **server: Any,
    ) -> None:
        super().__init__(**server)
        self.key, self.poison, self.exact_tokens = key, poison, exact_tokens
        self._budget = Lock()
        self.responses = ResponsesModel()
        self.limits = {"requests": Bucket(requests_per_minute), "tokens": Bucket(tokens_per_minute)}

    @property
    def url(self) -> str:
        return f"{super().url}/v1"

    @property
    def requests_per_minute(self) -> float:
        return self.limits["requests"].per_minute

    @requests_per_minute.setter
    def requests_per_minute(self, most: float) -> None:
        self.limits["requests"] = Bucket(most)

    @property
    def tokens_per_minute(self) -> float:
        return self.limits["tokens"].per_minute

    @tokens_per_minute.setter
    def tokens_per_minute(self, most: float) -> None:
        self.limits["tokens"] = Bucket(most)

    def respond(self, request: Request) -> Response:
        if request.bearer != self.key:
            raise ErrorResponse(self.error_response(401))
        if is_responses_call(request):
            return self._answer(_asked(request))
        if request.route != "POST /v1/embeddings":
            raise ErrorResponse(_error(404, f"Invalid URL ({request.route})", "invalid_request_error"))
        params = _asked(request)
        texts = self._checked(params)
        counts = self._counted(texts)
        limits = self._admitted(sum(counts))
        digests = [hashlib.sha256(text.encode("utf-8", "replace")) for text in texts]
        self.ledger.sell([digest.hexdigest() for digest in digests], tokens=sum(counts))
        sleep(self.delay)
        body = _body(params, [digest.digest() for digest in digests], sum(counts))
        return Response(200, body, {"Content-Type": "application/json", **_identity(), **limits})

    def _answer(self, params: dict[str, Any]) -> Response:
        sleep(self.delay)
        response, tokens = self.responses.respond(params)
        self.ledger.sell([hashlib.sha256(json.dumps(params).encode()).hexdigest()], tokens=tokens)
        return response

    @property
    def answers(self) -> str:
        return self.responses.mode

    @answers.setter
    def answers(self, mode: str) -> None:
        self.responses.mode = mode

    def error_response(self, status: int, code: str | None = None) -> Response:
        code = code or CODES.get(status)
        kind = code if code == "insufficient_quota" else TYPES.get(status, "api_error")
        return _error(status, f"The fake answers {status}.", str(kind), code=code)

    def _checked(self, params: dict[str, Any]) -> list[str]:
        if params.get("model") != MODEL:
            raise ErrorResponse(
                _error(404, f"The model `{params.get('model')}` does not exist", code="model_not_found")
            )
        texts = params.get("input")
        texts = [texts] if isinstance(texts, str) else texts
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
            raise ErrorResponse(_error(400, "'$.input' is invalid. Please check the API reference.", param="input"))
        if len(texts) > MOST_TEXTS:
            most = f"Expected an array with maximum length {MOST_TEXTS}, but got an array with length {len(texts)}."
            raise ErrorResponse(_error(400, f"Invalid 'input': array too long. {most}", code="array_above_max_length"))
        if self.poison and any(self.poison in text for text in texts):
            raise ErrorResponse(_error(400, "Your input could not be read.", param="input"))
        return texts

    def _counted(self, texts: list[str]) -> list[int]:
        counts = tokenizer.count_many(texts) if self.exact_tokens else [len(text) // 4 + 1 for text in texts]
        longest, total = max(counts), sum(counts)
        if longest > LONGEST_TEXT:
            most = f"maximum context length is 8192 tokens, however you requested {longest} tokens"
            raise ErrorResponse(_error(400, f"This model's {most}. Please reduce your prompt."))
        if total > MOST_TOKENS:
            message = f"Requested {total} tokens, max {MOST_TOKENS} tokens per request"
            raise ErrorResponse(_error(400, message, "max_tokens_per_request", code="max_tokens_per_request"))
        return counts

    def _admitted(self, total: int) -> dict[str, str]:
        """Take one request and ``total`` tokens out of the minute, or refuse with 429; return the headers for both."""
        with self._budget:
            wants = {"requests": 1, "tokens": total}
            waits = {what: self.limits[what].seconds_until(amount) for what, amount in wants.items()}
            what = max(waits, key=lambda name: waits[name])
            if not waits[what]:
                for name, amount in wants.items():
                    self.limits[name].left -= amount
            headers = self.limits["requests"].headers("requests") | self.limits["tokens"].headers("tokens")
        if not waits[what]:
            return headers
        wait = max(waits[what], 0.001)
        message = f"Rate limit reached for {MODEL} on {what} per min. Please try again in {duration(wait)}."
        headers |= {"retry-after": str(int(wait) + 1), "retry-after-ms": str(int(wait * 1000) + 1)}
        raise ErrorResponse(_error(429, message, what, code="rate_limit_exceeded", headers=headers))


def _asked(request: Request) -> dict[str, Any]:
    try:
        params = json.loads(request.body)
    except ValueError:
        params = None
    if not isinstance(params, dict):
        raise ErrorResponse(_error(400, "We could not parse the JSON body of your request."))
    return params


def _identity() -> dict[str, str]:
    return {"x-request-id": f"req_{uuid.uuid4().hex}", "openai-processing-ms": "1", "openai-version": "2020-10-01"}


def _error(
    status: int,
    message: str,
    kind: str = "invalid_request_error",
    *,
    param: str | None = None,
    code: str | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    error = {"message": message, "type": kind, "param": param, "code": code}
    return json_response({"error": error}, status, {**_identity(), **(headers or {})})


def _body(params: dict[str, Any], digests: list[bytes], total: int) -> bytes:
    width = params.get("dimensions") or DIMENSIONS
    shown: Iterable[str]
    if params.get("encoding_format") == "base64":
        shown = _encoded(digests) if width == DIMENSIONS else map(_quoted, _vectors(digests, width))
    else:
        shown = (json.dumps(row.tolist()) for row in _vectors(digests, width))
    rows = ",".join(f'{{"object":"embedding","index":{at},"embedding":{row}}}' for at, row in enumerate(shown))
    usage = f'{{"prompt_tokens":{total},"total_tokens":{total}}}'
    return f'{{"object":"list","data":[{rows}],"model":"{MODEL}","usage":{usage}}}'.encode()


def text_vector(text: str) -> Vectors:
    """Return the 1536 numbers that the fake gives for ``text``."""
    row: Vectors = _vectors([hashlib.sha256(text.encode("utf-8", "replace")).digest()], DIMENSIONS)[0]
    return row


def _vectors(digests: list[bytes], width: int) -> Vectors:
    table = _table()
    rows = numpy.stack([numpy.concatenate([table[at, digest[at]] for at in range(PARTS)]) for digest in digests])
    return rows if width == DIMENSIONS else unit(rows[:, :width])[:, :width]


def _encoded(digests: list[bytes]) -> list[str]:
    pieces = _pieces()
    return [f'"{"".join([piece[byte] for piece, byte in zip(pieces, digest, strict=False)])}"' for digest in digests]


def _quoted(row: Vectors) -> str:
    return f'"{b64encode(row.astype("<f4").tobytes()).decode()}"'


@cache
def _table() -> Vectors:
    """256 choices for each part of a vector: the same text is near itself and far from all else."""
    table = numpy.random.default_rng(1536).standard_normal((PARTS, 256, DIMENSIONS // PARTS)).astype("<f4")
    scaled: Vectors = table / (numpy.linalg.norm(table, axis=2, keepdims=True) * numpy.float32(PARTS**0.5))
    return scaled


@cache
def _pieces() -> list[list[str]]:
    """Return the table in base64: 384 bytes are 512 letters, so encoded parts can be joined."""
    return [[b64encode(row.tobytes()).decode() for row in part] for part in _table()]
