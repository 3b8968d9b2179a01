"""What a document will cost, told before its first paid call."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from django.conf import settings

from vendors import ledger


@dataclass(frozen=True, slots=True)
class Prediction:
    tokens: int
    cents: Decimal


def predict(pages: int, *, is_parse_bought: bool) -> Prediction:
    """Predict by the number of pages: the parse is priced by page, and a page is taken for ``TOKENS_PER_PAGE``."""
    tokens = pages * settings.TOKENS_PER_PAGE
    cents = ledger.parse_price(pages) if is_parse_bought else Decimal(0)
    if settings.EMBEDDER == "openai":
        cents += ledger.embedding_price(tokens)
    return Prediction(tokens, cents)
