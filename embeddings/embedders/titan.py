"""Amazon Titan text embeddings on Bedrock: one text a call, several calls in flight."""

import json
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, NamedTuple

import numpy
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from embeddings import tokenizer
from embeddings.embedders.http_base import NO_SLOT, EmbedResponse, HttpEmbedder, parse_json, validate_vectors
from embeddings.embedders.registry import DIMENSIONS, replace_surrogates
from vendors import aws_client, calls
from vendors.call_failures import InvalidResponse
from vendors.ledger import CENT_FRACTION
from vendors.vendor_account import Vendor

MAX_TOKENS, MAX_CHARACTERS = 8_192, 50_000
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_ROLE_ARN", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")


class _Model(NamedTuple):
    name: str  # in the embed_model column; padded vectors have another name than the vendor's
    width: int
    options: dict[str, Any]


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
        """The account's quota for the model in the region, which counts requests and not tokens.

        Raises ``ImproperlyConfigured`` without credentials or a role.
        """
        if not is_configured():
            raise ImproperlyConfigured("EMBEDDER=titan needs keys of AWS, or the machine's role.")
        account = f"{settings.TITAN_ENDPOINT_URL or ''} {settings.TITAN_REGION} {settings.TITAN_MODEL}"
        return Vendor("titan", account, requests_per_minute=settings.TITAN_REQUESTS_PER_MINUTE)

    def cents(self, tokens: int) -> Decimal:
        price = Decimal(str(settings.TITAN_CENTS_PER_MILLION_TOKENS))
        return (tokens * price / 1_000_000).quantize(CENT_FRACTION, ROUND_HALF_UP)

    def call(self, texts: Sequence[str], *, slot: AbstractContextManager[object] = NO_SLOT) -> EmbedResponse:
        with slot, calls.record_call(self.vendor, "embed"):
            bodies = [parse_json(self._invoke(text)) for text in texts]
        rows = [_pad(body.get("embedding"), _model().width) for body in bodies]
        counts: list[Any] = [body.get("inputTextTokenCount") for body in bodies]
        tokens = sum(counts) if all(type(count) is int and count >= 0 for count in counts) else None
        vectors = validate_vectors(rows, len(texts)) if rows else numpy.zeros((0, DIMENSIONS), dtype=numpy.float32)
        return EmbedResponse(vectors, tokens)

    def _invoke(self, text: str) -> bytes:
        # neither empty nor too long
        text = tokenizer.truncate(replace_surrogates(text), MAX_TOKENS)[:MAX_CHARACTERS] or " "
        client = aws_client.create_client(
            "bedrock-runtime",
            region=settings.TITAN_REGION,
            endpoint=settings.TITAN_ENDPOINT_URL,
            seconds=settings.VENDOR_TIMEOUT_SECONDS,
        )
        response = client.invoke_model(
            modelId=settings.TITAN_MODEL,
            body=json.dumps({"inputText": text, **_model().options}),
            contentType="application/json",
            accept="application/json",
        )
        content: bytes = response["body"].read()
        return content


def is_configured() -> bool:
    """Tell whether settings name Titan or the environment has credentials; a machine's role is not looked up."""
    named = "titan" in (settings.EMBEDDER, settings.STATUTES_EMBEDDER) or bool(settings.TITAN_ENDPOINT_URL)
    return named or any(os.environ.get(name) for name in CREDENTIALS)


def _model() -> _Model:
    if settings.TITAN_MODEL not in MODELS:
        raise ImproperlyConfigured(f"TITAN_MODEL must be one of {', '.join(MODELS)}.")
    return MODELS[settings.TITAN_MODEL]


def _pad(row: object, width: int) -> list[Any]:
    if not isinstance(row, list) or len(row) != width:
        raise InvalidResponse(f"A vector is not {width} wide.")
    return [*row, *[0.0] * (DIMENSIONS - width)]
