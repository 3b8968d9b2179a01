"""Adapter from a provider's REST requests to the tools of its MCP server: the same records over either transport.

Arguments are checked against the tools' schemas before each call, so that a change at the provider is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable

from integrations.error_codes import TOOL_FAILED
from integrations.models import ConnectedSource
from integrations.providers import CapabilityMissing
from integrations.transports.responses import Params, ProviderError, error_code
from jobs.outcomes import Retryable

if TYPE_CHECKING:  # the SDK takes a second to import: only where it is used
    from integrations.transports.mcp import McpTools

T = TypeVar("T")
# Method and path of a request, and the name of the adapter's method that gets the path's groups and all params.
Route = tuple[str, str, str]

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


class McpRestAdapter:
    """A ``Transport`` over MCP tools. A provider's subclass names its ``ROUTES`` and the ``TOOLS`` it uses."""

    ROUTES: ClassVar[Sequence[Route]] = ()
    TOOLS: ClassVar[Sequence[str]] = ()

    def __init__(self, source: ConnectedSource, tools: McpTools) -> None:
        self.source, self._tools = source, tools

    def json(
        self, method: str, path: str, *, operation: str, params: Params | None = None, body: Params | None = None
    ) -> dict[str, Any]:
        for route_method, pattern, name in self.ROUTES:
            if route_method == method and (route := re.fullmatch(pattern, path)):
                respond: Callable[..., dict[str, Any]] = getattr(self, name)
                return respond(operation, {**(params or {}), **(body or {})}, *route.groups())
        raise CapabilityMissing(f"{method} {operation}")

    def stream(self, path: str, *, operation: str, params: Params | None = None, most: int) -> Iterator[bytes]:
        raise CapabilityMissing(operation)

    def close(self) -> None:
        self._tools.close()

    def call(
        self,
        tool: str,
        arguments: Params,
        operation: str,
        read: Callable[[dict[str, Any]], T],
        *,
        most: int | None = None,
    ) -> T:
        """Call a tool if it has these arguments; a missing tool or argument is kept in ``source.capabilities``."""
        capabilities: dict[str, Any] = {"tools": [name for name in self.TOOLS if self.has(name)]}
        try:
            fitting = fit_arguments(tool, self._tools.names().get(tool), arguments)
            response = self._tools.call(tool, fitting, operation=operation, most=most, read=read)
        except CapabilityMissing as missing:
            self._save_capabilities({**capabilities, "missing": missing.capability})
            raise
        self._save_capabilities(capabilities)
        return response

    def has(self, tool: str) -> bool:
        return tool in self._tools.names()

    def takes(self, tool: str, argument: str) -> bool:
        """Return whether a tool has an argument of that name."""
        known = _properties(self._tools.names().get(tool) or {})
        inner = known.get(WRAPPER)
        return argument in known or (isinstance(inner, Mapping) and argument in _properties(inner))

    def _save_capabilities(self, capabilities: dict[str, Any]) -> None:
        if self.source.capabilities != capabilities:
            self.source.capabilities = capabilities
            ConnectedSource.objects.filter(pk=self.source.pk).update(capabilities=capabilities)


def fit_arguments(tool: str, schema: Mapping[str, Any] | None, arguments: Params) -> dict[str, Any]:
    """Return the arguments of a call as the tool's schema expects them; those of None are left out.

    Raises ``CapabilityMissing`` with the name of the tool, or of its first argument that does not fit.
    """
    if schema is None:
        raise CapabilityMissing(tool)
    known = _properties(schema)
    inner = known.get(WRAPPER)
    if WRAPPER not in arguments and isinstance(inner, Mapping) and _properties(inner):
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
    code, head = error_code(text), text[:2_000]
    status = _STATUSES.get(code or "") or next((int(status) for status in _STATUS.findall(head)), None)
    status = 404 if status is None and GONE in head else status
    if status is None:
        return Retryable(TOOL_FAILED, "A tool of the provider's server failed.")
    return ProviderError(status, {}, code)


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
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
        return {name: _insights(_properties(schema).get(name)) for name in _required(schema)}
    empty = {"array": [], "boolean": False, "integer": 0, "number": 0}
    return empty.get(str(schema.get("type")), "Synchronize records.")
