"""What the tools of a provider's server take, and what they tell of their failures.

Arguments are checked before each call, so that a change at the provider is told by its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable

from integrations.providers import CapabilityMissing
from integrations.transports.responses import ProviderError, error_code
from jobs.outcomes import Retryable

WRAPPER = "params"  # what Intuit's server puts all arguments of a tool into
INSIGHTS = "chatInsights"  # what HubSpot's wants to know of a conversation, though there is none

# Tools tell of HTTP underneath in their own prose: of it only the status is read.
_STATUS = re.compile(
    r"(?:status(?:[ _-]?code)?|HTTP(?:/\d(?:\.\d)?)?|error)\W{0,4}(40[134]|429|5\d\d)\b", re.IGNORECASE
)
GONE = "Requested entity was not found"  # Google's own words, of all its APIs
# HubSpot's categories and Google's states, as statuses of HTTP.
_STATUSES = {
    **dict.fromkeys(("EXPIRED_AUTHENTICATION", "INVALID_AUTHENTICATION", "UNAUTHENTICATED", "authError"), 401),
    **dict.fromkeys(("RATE_LIMITS", "RATE_LIMIT", "RESOURCE_EXHAUSTED", "rateLimitExceeded", "003001"), 429),
    **dict.fromkeys(("MISSING_SCOPES", "PERMISSION_DENIED", "insufficientPermissions"), 403),
    **dict.fromkeys(("NOT_FOUND", "OBJECT_NOT_FOUND", "notFound"), 404),
}


def fit_arguments(tool: str, schema: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call as the tool's schema takes them; those wanted as None are left out.

    Raises ``CapabilityMissing`` with the name of the tool, or of its first argument that does not fit.
    """
    if schema is None:
        raise CapabilityMissing(tool)
    inner = _properties(schema).get(WRAPPER)
    if WRAPPER not in wanted and isinstance(inner, Mapping) and _properties(inner):
        return {WRAPPER: fit_arguments(tool, inner, wanted)}
    known, given = _properties(schema), {name: value for name, value in wanted.items() if value is not None}
    for name in given:
        if name not in known:
            raise CapabilityMissing(f"{tool}.{name}")
    if INSIGHTS in _required(schema):
        given[INSIGHTS] = _insights(known.get(INSIGHTS))
    for name in _required(schema):
        if name not in given:
            raise CapabilityMissing(f"{tool}.{name}")
    _check(tool, schema, given)
    return given


def has_argument(schema: Mapping[str, Any] | None, name: str) -> bool:
    """Tell whether a tool has an argument of that name."""
    known = _properties(schema or {})
    inner = known.get(WRAPPER)
    return name in known or (isinstance(inner, Mapping) and name in _properties(inner))


def tool_error(text: str) -> Exception:
    """Return what to raise for an error that a tool tells in prose, without the prose."""
    code = error_code(text)
    head = text[:2_000]
    status = _STATUSES.get(code or "") or next((int(found) for found in _STATUS.findall(head)), None)
    status = 404 if status is None and GONE in head else status
    if status is None:
        return Retryable("TOOL_FAILED", "A tool of the provider's server failed.")
    return ProviderError(status, {}, code)


def _check(tool: str, schema: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    try:
        # A registry of its own: the default one fetches what a schema refers to.
        error = next(Draft202012Validator(schema, registry=Registry()).iter_errors(given), None)
    except (SchemaError, Unresolvable, ValueError, TypeError, RecursionError):
        raise CapabilityMissing(tool) from None
    if error is not None:
        raise CapabilityMissing(".".join([tool, *(str(name) for name in list(error.absolute_path)[:1])])) from None


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, Mapping) else {}


def _required(schema: Mapping[str, Any]) -> Sequence[str]:
    found = schema.get("required")
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def _insights(schema: Any) -> Any:
    """Return the least that the schema takes: words of ours where it wants words."""
    if not isinstance(schema, Mapping):
        return "Synchronize records."
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    if schema.get("type") == "object" or "properties" in schema:
        return {name: _insights(_properties(schema).get(name)) for name in _required(schema)}
    return {"array": [], "boolean": False, "integer": 0, "number": 0}.get(
        str(schema.get("type")), "Synchronize records."
    )
