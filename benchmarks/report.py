"""Result line that a benchmark prints, progress output and percentiles."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Result:
    """``ok`` tells whether every goal was met, those in ``details`` included."""

    name: str
    value: float
    unit: str
    against: str
    ratio: float
    goal: float | str
    ok: bool
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        fields = {name: getattr(self, name) for name in ("name", "value", "unit", "against", "ratio", "goal", "ok")}
        return json.dumps(_rounded(fields | self.details))


def print_progress(*words: object) -> None:
    """Tell whoever watches how far it is."""
    print(*words, file=sys.stderr, flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that ``share`` of the values do not exceed (nearest rank)."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return round(value, 3) if isinstance(value, float) else value
