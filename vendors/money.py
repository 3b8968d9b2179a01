"""What calls cost: reserved before they are made, settled when they are answered, never more than a day's budget."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID


def reserve(
    *,
    user_id: UUID,
    vendor: str,
    model: str,
    unit: str,
    quantity: int,
    cents: Decimal,
    stage: str,
    document_id: UUID | None = None,
    job_id: UUID | None = None,
) -> UUID:
    """Write the purchase that is about to be made, in the caller's transaction; return its id.

    Raises ``Postponed("BUDGET_SPENT")`` until the next day when the tenant's budget does not have ``cents`` left, and
    ``Permanent("BUDGET_TOO_SMALL")`` when no day's budget ever will.
    """
    raise NotImplementedError


def settle(purchase_id: UUID, *, quantity: int, cents: Decimal) -> None:
    """Replace the estimate with what was charged, in the caller's transaction."""
    raise NotImplementedError


def void(purchase_id: UUID) -> None:
    """Forget a purchase that the vendor certainly did not make."""
    raise NotImplementedError


def left_today(user_id: UUID) -> Decimal | None:
    """Return how many cents the tenant may still spend today; None without a budget."""
    raise NotImplementedError
