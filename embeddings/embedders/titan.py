"""Amazon's Titan text embeddings, by Bedrock: one text a call, so that several calls are in the air together."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, NamedTuple

import numpy
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from embeddings import tokenizer as tokens
from embeddings.embedders.http_base import NO_SLOT, EmbedResponse, HttpEmbedder, parse_json, validate_vectors
from embeddings.embedders.model_files import replace_surrogates
from embeddings.embedders.vector_format import DIMENSIONS
from vendors import aws, call_metrics
from vendors.guard import InvalidResponse
from vendors.ledger import CENT_FRACTION
from vendors.vendor import Vendor

LONGEST_TEXT, MOST_CHARACTERS = 8_192, 50_000
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_ROLE_ARN", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")


class _Model(NamedTuple):
    """``name`` is the one that vectors are filed under: padded ones say so."""

    name: str
    width: int
    asks: dict[str, Any]


MODELS = {
    "amazon.titan-embed-text-v1": _Model("amazon.titan-embed-text-v1", DIMENSIONS, {}),
    "amazon.titan-embed-text-v2:0": _Model(
        "amazon.titan-embed-text-v2-1024-padded",
        1024,
        {"dimensions": 1024, "normalize": True, "embeddingTypes": ["float"]},
    ),
}


class Titan(HttpEmbedder):
    """https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-titan-embed-text.html"""

    batch_size = 1

    @property
    def model(self) -> str:
        return _model().name

    @property
    def vendor(self) -> Vendor:
        """Return the account's quota for the model in the region: requests are counted there, tokens are not.

        Raises ``ImproperlyConfigured`` where nothing says that this deployment may ask Bedrock.
        """
        if not is_configured():
            raise ImproperlyConfigured("EMBEDDER=titan needs keys of AWS, or the machine's role.")
        account = f"{settings.TITAN_ENDPOINT_URL or ''} {settings.TITAN_REGION} {settings.TITAN_MODEL}"
        return Vendor("titan", account, requests_per_minute=settings.TITAN_REQUESTS_PER_MINUTE)

    def cents(self, tokens: int) -> Decimal:
        price = Decimal(str(settings.TITAN_CENTS_PER_MILLION_TOKENS))
        return (tokens * price / 1_000_000).quantize(CENT_FRACTION, ROUND_HALF_UP)

    def call(self, texts: Sequence[str], *, air: AbstractContextManager[object] = NO_SLOT) -> EmbedResponse:
        """As all models; more than one text are as many calls, of which the last failure is the failure of all."""
        with air, call_metrics.record_call(self.vendor, "embed"):
            answers = [parse_json(self._asked(text)) for text in texts]
        rows = [_padded(answer.get("embedding"), _model().width) for answer in answers]
        charged = [_charged(answer) for answer in answers]
        vectors = validate_vectors(rows, len(texts)) if rows else numpy.zeros((0, DIMENSIONS), dtype=numpy.float32)
        return EmbedResponse(vectors, None if None in charged else sum(each or 0 for each in charged))

    def _asked(self, text: str) -> bytes:
        client = aws.create_client(
            "bedrock-runtime",
            region=settings.TITAN_REGION,
            endpoint=settings.TITAN_ENDPOINT_URL,
            seconds=settings.VENDOR_TIMEOUT_SECONDS,
        )
        answer = client.invoke_model(
            modelId=settings.TITAN_MODEL,
            body=json.dumps({"inputText": _sendable(text), **_model().asks}),
            contentType="application/json",
            accept="application/json",
        )
        content: bytes = answer["body"].read()
        return content


def is_configured() -> bool:
    """Tell whether Titan is asked for, or the environment has keys for it; a role alone is not looked for."""
    named = "titan" in (settings.EMBEDDER, settings.STATUTES_EMBEDDER) or bool(settings.TITAN_ENDPOINT_URL)
    return named or any(os.environ.get(name) for name in CREDENTIALS)


def _model() -> _Model:
    if settings.TITAN_MODEL not in MODELS:
        raise ImproperlyConfigured(f"TITAN_MODEL must be one of {', '.join(MODELS)}.")
    return MODELS[settings.TITAN_MODEL]


def _sendable(text: str) -> str:
    """Return ``text`` as the vendor takes it: not empty, not too long."""
    return tokens.truncate(replace_surrogates(text), LONGEST_TEXT)[:MOST_CHARACTERS] or " "


def _padded(row: object, width: int) -> list[Any]:
    if not isinstance(row, list) or len(row) != width:
        raise InvalidResponse(f"A vector is not {width} wide.")
    return [*row, *[0.0] * (DIMENSIONS - width)]


def _charged(body: dict[str, Any]) -> int | None:
    charged = body.get("inputTextTokenCount")
    return charged if type(charged) is int and charged >= 0 else None
