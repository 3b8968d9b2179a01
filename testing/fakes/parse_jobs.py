"""Files and parse jobs of a fake LlamaParse account."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

CREDITS = {"fast": 1, "cost_effective": 3, "agentic": 10, "agentic_plus": 45}  # a page
FINAL_STATUSES = ("COMPLETED", "FAILED", "CANCELLED")
NOT_OPTIONS = {"file_id", "user_metadata", "webhook_configurations", "webhook_configuration_ids", "disable_cache"}


def now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Source:
    """An uploaded file."""

    name: str
    content: bytes
    external_file_id: str | None
    purpose: str
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    created_at: datetime = field(default_factory=now)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def to_json(self, project: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "project_id": project,
            "external_file_id": self.external_file_id,
            "file_type": PurePath(self.name).suffix.lstrip(".") or None,
            "last_modified_at": self.created_at.isoformat(),
            "purpose": self.purpose,
        }


@dataclass
class Job:
    """``pages``: the text of every page of the file; ``numbers``: which of them were asked for, from 1."""

    source: Source
    options: dict[str, Any]
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    status: str = "PENDING"
    created_at: datetime = field(default_factory=now)
    updated_at: datetime | None = None
    error_response: str | None = None
    pages: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    failed: set[int] = field(default_factory=set)
    credits: int = 0

    @classmethod
    def from_options(cls, file: Callable[[str], Source], options: dict[str, Any]) -> Job:
        return cls(file(options["file_id"]), options)

    @property
    def tier(self) -> str:
        return str(self.options["tier"])

    @property
    def version(self) -> str:
        return str(self.options["version"])

    @property
    def metadata(self) -> dict[str, str]:
        return self.options.get("user_metadata") or {}

    @property
    def seed(self) -> str:
        """What decides whether its callbacks are lost: the same in each run where the product's ids are."""
        return self.metadata.get("parse_id") or self.source.sha256

    @property
    def cache_key(self) -> str:
        options = {name: value for name, value in self.options.items() if name not in NOT_OPTIONS}
        return f"{self.source.sha256}:{json.dumps(options, sort_keys=True)}"

    def move(self, status: str) -> None:
        self.status, self.updated_at = status, now()

    def markdown(self) -> list[str]:
        """Return what was read, a text for each page that was asked for; a failed one has none."""
        return ["" if number in self.failed else self.pages[number - 1] for number in self.numbers]

    def to_json(self, project: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "project_id": project,
            "status": self.status,
            "created_at": self.created_at.isoformat(),
            "updated_at": self.updated_at and self.updated_at.isoformat(),
            "error_message": self.error_response if self.status == "FAILED" else None,
            "name": self.source.name,
            "tier": self.tier,
            "usage": {"credits": self.credits if self.status in FINAL_STATUSES else None},
            "user_metadata": self.metadata,
        }

    def results(self, expand: set[str]) -> dict[str, Any]:
        """Return what `expand` names of a completed job; everything else is null."""
        makers = {"markdown": self._markdown, "text": self._text, "metadata": self._metadata}
        done = self.status == "COMPLETED"
        fields: dict[str, Any] = {name: make() if done and name in expand else None for name, make in makers.items()}
        fields["markdown_full"] = "\n\n".join(self.markdown()) if done and "markdown_full" in expand else None
        fields["text_full"] = "\n\n".join(self.markdown()) if done and "text_full" in expand else None
        fields["job_metadata"] = {"pages": len(self.numbers)} if done and "job_metadata" in expand else None
        return fields

    def _markdown(self) -> dict[str, Any]:
        return {"pages": [self._page(number) for number in self.numbers]}

    def _page(self, number: int) -> dict[str, Any]:
        if number in self.failed:
            return {"page_number": number, "success": False, "error": "The page could not be parsed."}
        text = self.pages[number - 1]
        return {"page_number": number, "success": True, "markdown": text, "header": None, "footer": None}

    def _text(self) -> dict[str, Any]:
        return {"pages": [{"page_number": number, "text": self.pages[number - 1]} for number in self.numbers]}

    def _metadata(self) -> dict[str, Any]:
        pages = [{"page_number": n, "confidence": 0.97, "printed_page_number": str(n)} for n in self.numbers]
        return {"pages": pages, "document": {}}
