"""Examples of requests and answers, taken from the running API by ``python -m testing.openapi_examples``."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("examples.json")


@lru_cache(maxsize=1)
def examples() -> dict[str, Any]:
    """Return them by operation: ``request`` and ``answers``, by status."""
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found
