"""Report of a dry run or an import: counts by user and in all, as JSON and as a table."""

from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from django.conf import settings
from rich.table import Table

from legacy.plan import ADOPT, REINGEST, Action, Verdict

# A worker's time for a document, on the safe side; a vendor's wait is not work.
SECONDS_PER_DOCUMENT = {REINGEST: 2.0, ADOPT: 0.0}
IN_ALL = "in all"


@dataclass(slots=True)
class Totals:
    actions: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    pages: int = 0
    tokens: int = 0
    cents: Decimal = Decimal(0)
    seconds: float = 0.0

    def add(self, verdict: Verdict) -> None:
        self.actions[verdict.action] += 1
        if verdict.code:
            self.codes[verdict.code] += 1
        if verdict.action == Action.IMPORT:
            self.pages += verdict.pages
            self.tokens += verdict.tokens
            self.cents += verdict.cents
            self.seconds += SECONDS_PER_DOCUMENT[verdict.mode]

    @property
    def hours(self) -> float:
        by_tokens = 0.0
        if settings.EMBEDDER == "openai":
            by_tokens = self.tokens / settings.OPENAI_TOKENS_PER_MINUTE / 60
        return float(max(by_tokens, self.seconds / settings.WORKERS / 3600))

    def as_json(self) -> dict[str, Any]:
        counts = {action.value: self.actions[action] for action in Action}
        money = {"cents": float(self.cents), "hours": round(self.hours, 4)}
        return counts | {"codes": dict(self.codes), "pages": self.pages, "tokens": self.tokens} | money


class Report:
    def __init__(self) -> None:
        self.total = Totals()
        self.users: dict[str, Totals] = {}
        self.documents: list[dict[str, str | None]] = []

    def add(self, verdict: Verdict) -> None:
        """Count a verdict. It has ids and codes only: a report may leave the machine."""
        self.total.add(verdict)
        self.users.setdefault(str(verdict.old.user_id), Totals()).add(verdict)
        new = str(verdict.document_id) if verdict.document_id else None
        self.documents.append(
            {
                "old_id": verdict.old.old_id,
                "action": verdict.action,
                "mode": verdict.mode,
                "code": verdict.code,
                "document_id": new,
            }
        )

    @property
    def refused(self) -> int:
        return self.total.actions[Action.REFUSE]

    def as_json(self) -> dict[str, Any]:
        users = {user: totals.as_json() for user, totals in self.users.items()}
        return {"total": self.total.as_json(), "users": users, "documents": self.documents}

    def as_table(self) -> Table:
        table = Table("user", *(action.value for action in Action), "why", "pages", "tokens", "cents", "hours")
        for user, totals in [*self.users.items(), (IN_ALL, self.total)]:
            why = ", ".join(f"{code} {count}" for code, count in sorted(totals.codes.items()))
            numbers = [str(totals.actions[action]) for action in Action]
            cost = (f"{totals.pages:,}", f"{totals.tokens:,}", f"{totals.cents:.4f}", f"{totals.hours:.2f}")
            table.add_row(user, *numbers, why, *cost)
        return table
