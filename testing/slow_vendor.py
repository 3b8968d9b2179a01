"""An embedding vendor that is slow enough for something to happen while a query is embedded."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, ClassVar

from embeddings.embedders.http_base import EmbedResponse, HttpEmbedder
from testing.embedders import InstantEmbedder
from vendors.vendor_account import Vendor


class SlowVendor(HttpEmbedder):
    """A vendor's model. While it embeds, something happens, once."""

    model, vendor, is_billed = "slow", Vendor("slow", "key", requests_per_minute=0), False
    meanwhile: ClassVar[list[Callable[[], None]]] = []

    def cents(self, tokens: int) -> Decimal:
        return Decimal(0)

    def call(self, texts: Sequence[str], *, slot: Any = None) -> EmbedResponse:
        while self.meanwhile:
            self.meanwhile.pop()()
        return EmbedResponse(InstantEmbedder().embed(texts))
