"""Arguments and errors of MCP tools: arguments fitted to a tool's schema, HTTP statuses read from its error's prose."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable

from integrations.error_codes import TOOL_FAILED
from integrations.providers.interface import CapabilityMissing, Params
from integrations.transports import responses
from jobs.outcomes import Retryable

WRAPPER = "params"  # the argument in which Intuit's server expects all arguments of a tool
INSIGHTS = "chatInsights"  # HubSpot's argument about the conversation, though there is none

# Tools report HTTP errors underneath in their own prose: only the status is read.
_STATUS = re.compile(
    r"(?:status(?:[ _-]?code)?|HTTP(?:/\d(?:\.\d)?)?|error)\W{0,4}(40[134]|429|5\d\d)\b", re.IGNORECASE
)
GONE = "Requested entity was not found"  # in the responses of all of Google's APIs
# HTTP statuses of HubSpot's categories and Google's states.
_STATUSES = {
    **dict.fromkeys(("EXPIRED_AUTHENTICATION", "INVALID_AUTHENTICATION", "UNAUTHENTICATED", "authError"), 401),
    **dict.fromkeys(("RATE_LIMITS", "RATE_LIMIT", "RESOURCE_EXHAUSTED", "rateLimitExceeded", "003001"), 429),
    **dict.fromkeys(("MISSING_SCOPES", "PERMISSION_DENIED", "insufficientPermissions"), 403),
    **dict.fromkeys(("NOT_FOUND", "OBJECT_NOT_FOUND", "notFound"), 404),
}


def fit_arguments(tool: str, schema: Mapping[str, Any] | None, arguments: Params) -> dict[str, Any]:
    """Return the arguments of a call as the tool's schema expects them; those of None are left out.

    Raises ``CapabilityMissing`` with the name of the tool, or of its first argument that does not fit.
    """
    if schema is None:
        raise CapabilityMissing(tool)
    known = properties_of(schema)
    inner = known.get(WRAPPER)
    if WRAPPER not in arguments and isinstance(inner, Mapping) and properties_of(inner):
        return {WRAPPER: fit_arguments(tool, inner, arguments)}
    fitting = {name: argument for name, argument in arguments.items() if argument is not None}
    for name in fitting:
        if name not in known:
            raise CapabilityMissing(f"{tool}.{name}")
    if INSIGHTS in _required(schema):
        fitting[INSIGHTS] = _insights(known.get(INSIGHTS))
    for name in _required(schema):
        if name not in fitting:
            raise CapabilityMissing(f"{tool}.{name}")
    try:
        # A registry of its own: the default one fetches the schema's references.
        error = next(Draft202012Validator(schema, registry=Registry()).iter_errors(fitting), None)
    except (SchemaError, Unresolvable, ValueError, TypeError, RecursionError):
        raise CapabilityMissing(tool) from None
    if error is not None:
        raise CapabilityMissing(".".join([tool, *(str(name) for name in list(error.absolute_path)[:1])])) from None
    return fitting


def tool_error(text: str) -> Exception:
    """Return the exception for an error that a tool reports in prose, without the prose."""
    code, head = responses.error_code(text), text[:2_000]
    status = _STATUSES.get(code or "") or next((int(status) for status in _STATUS.findall(head)), None)
    status = 404 if status is None and GONE in head else status
    if status is None:
        return Retryable(TOOL_FAILED)
    return responses.ProviderError(status, {}, code)


def properties_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _required(schema: Mapping[str, Any]) -> Sequence[str]:
    names = schema.get("required")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _insights(schema: Any) -> Any:
    """Return the least value that the schema accepts: a sentence of ours where it wants a string."""
    if not isinstance(schema, Mapping):
        return "Synchronize records."
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    if schema.get("type") == "object" or "properties" in schema:
        return {name: _insights(properties_of(schema).get(name)) for name in _required(schema)}
    empty = {"array": [], "boolean": False, "integer": 0, "number": 0}
    return empty.get(str(schema.get("type")), "Synchronize records.")
