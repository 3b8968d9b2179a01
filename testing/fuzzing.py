"""Fuzzing of the whole API from its own schema, with valid and invalid requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import UUID
from zlib import crc32

import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from hypothesis import strategies as st
from schemathesis import Case
from schemathesis.checks import CHECKS

from accounts.authentication import TENANT_HEADER
from documents.storage.buckets import MIME

if TYPE_CHECKING:
    from schemathesis.schemas import BaseSchema

SECRET = "a secret of two deployments"
# What no test of one request at a time can know: a positive case may be refused (there is no such document), and an
# invalid page_size is answered with the usual one, on purpose.
NOT_ASKED = ("positive_data_acceptance", "use_after_free", "ensure_resource_availability", "object_level_authorization")
LENIENT = ("GET", "DELETE")  # what is wrong in a query is passed over; in a body it is refused

schemathesis.openapi.media_type(MIME, st.binary(max_size=64))


@dataclass(frozen=True)
class World:
    """Who asks, and things that are really there: half of the cases are about them."""

    tenant: str
    tenant_id: str
    service: str
    document_id: str
    job_id: str
    signed_url: str
    tag_id: str
    seen: dict[str, dict[int, int]] = field(default_factory=dict)

    def ask(self, case: Case[Any]) -> None:
        """Send one case and check the answer in every way that schemathesis knows; count its status."""
        self._point(case)
        response = case.call(headers=self._headers(case))
        counted = self.seen.setdefault(operation_id(case), {})
        counted[response.status_code] = counted.get(response.status_code, 0) + 1
        case.validate_response(response, excluded_checks=_excluded(case), headers=self._headers(case))

    def _headers(self, case: Case[Any]) -> dict[str, str]:
        name = operation_id(case)
        if name == "internal_embed":
            return {"Authorization": f"Bearer {SECRET}"}
        if any("bearer" in scheme for scheme in case.operation.definition.raw.get("security", [])):
            is_service = name == "advance_job" or TENANT_HEADER in (case.headers or {})
            return {"Authorization": f"Bearer {self.service if is_service else self.tenant}"}
        return {}

    def _point(self, case: Case[Any]) -> None:
        """Let every other case be about what exists."""
        path_params = case.path_parameters or {}
        if crc32(repr(path_params).encode()) % 2:  # hash() differs from process to process
            return
        if operation_id(case) in ("put_bytes", "get_bytes"):
            url = urlsplit(self.signed_url)
            _, _, bucket, name = unquote(url.path).split("/", 3)
            case.path_parameters.update(bucket=bucket, name=name)
            case.query.update(token=parse_qs(url.query)["token"][0])
        if TENANT_HEADER in (case.headers or {}):
            case.headers[TENANT_HEADER] = self.tenant_id
        real_ids = {"document_id": self.document_id, "job_id": self.job_id, "tag_id": self.tag_id}
        for name, real in real_ids.items():
            is_negative = case.method == "PATCH" and not _is_uuid(path_params.get(name))  # {} is a valid body of those
            if name in path_params and not is_negative and operation_id(case) not in ("delete_document", "delete_tag"):
                case.path_parameters[name] = real


def _is_uuid(value: object) -> bool:
    try:
        return str(UUID(str(value))) == str(value).lower()
    except ValueError:
        return False


@contextmanager
def shared_connection() -> Iterator[None]:
    """Let requests run in the test's own transaction: a server begins and ends each by closing what is stale."""
    signals = (request_started, request_finished)
    for signal in signals:
        signal.disconnect(close_old_connections)
    yield
    for signal in signals:
        signal.connect(close_old_connections)


def operation_id(case: Case[Any]) -> str:
    return str(case.operation.definition.raw["operationId"])


def _excluded(case: Case[Any]) -> list[Any]:
    names = [*NOT_ASKED, *(["negative_data_rejection"] if case.method in LENIENT else [])]
    return CHECKS.get_by_names(names)


def schema(cases: int) -> BaseSchema:
    """Return the API's schema, as it is served, ready to ask ``cases`` times an operation; the same cases each time."""
    loaded = schemathesis.openapi.from_wsgi("/schema", get_wsgi_application())
    generation = loaded.config.generation
    generation.max_examples, generation.deterministic, generation.no_shrink = cases, True, True
    refusing = loaded.config.checks.negative_data_rejection
    refusing.expected_statuses = [*refusing.expected_statuses, "411", "413"]
    return loaded
