"""What a client is told of the records that count for it, however many they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from integrations.models import SourceDocument


@dataclass(frozen=True, slots=True)
class Rollup:
    """Which facts of a client's children are needed: ``rollups`` has the database find them, and no more.

    ``newest`` sorts as text as its times do; of equals the longer id is the newer, then the greater, as numbers grow.
    """

    document_type: str
    newest: str
    most: int  # children that are shown, the newest
    first: str | None = None  # a fact: those for which it is true are counted, and shown before all others
    total: str | None = None  # an amount, summed over all


@dataclass(frozen=True, slots=True)
class Children:
    """``newest`` are those shown, in their order; ``count`` and ``total`` are of all that ``Rollup`` asks for."""

    newest: Sequence[SourceDocument] = ()
    count: int = 0
    total: Decimal = Decimal(0)
