"""A provider's REST requests, answered out of the tools of its MCP server: the same records whichever is asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from integrations.models import ConnectedSource
from integrations.providers import CapabilityMissing
from integrations.transports.mcp_tools import fit_arguments, has_argument

if TYPE_CHECKING:  # the SDK takes a second to import: only where it is used
    from integrations.transports.mcp import McpTools

T = TypeVar("T")
Params = Mapping[str, Any]
# The method and path of a request, and the name of the method that answers it from the path's groups and all params.
Route = tuple[str, str, str]


class McpRestAdapter:
    """Stands where ``Rest`` and ``Recorded`` do. A provider's own names its ``ROUTES`` and the ``TOOLS`` it uses."""

    ROUTES: ClassVar[Sequence[Route]] = ()
    TOOLS: ClassVar[Sequence[str]] = ()

    def __init__(self, source: ConnectedSource, tools: McpTools) -> None:
        self.source, self._tools = source, tools

    def json(
        self, method: str, path: str, *, operation: str, params: Params | None = None, body: Params | None = None
    ) -> dict[str, Any]:
        asked = {**(params or {}), **(body or {})}
        for known, pattern, answer in self.ROUTES:
            if known == method and (found := re.fullmatch(pattern, path)):
                answered: Callable[..., dict[str, Any]] = getattr(self, answer)
                return answered(operation, asked, *found.groups())
        raise CapabilityMissing(f"{method} {operation}")

    def stream(self, path: str, *, operation: str, params: Params | None = None, most: int) -> Iterator[bytes]:
        raise CapabilityMissing(operation)

    def close(self) -> None:
        self._tools.close()

    def call(
        self, tool: str, wanted: Params, operation: str, read: Callable[[dict[str, Any]], T], *, most: int | None = None
    ) -> T:
        """Call a tool if it takes these arguments; which are missing is kept in the source's ``capabilities``."""
        found: dict[str, Any] = {"tools": [name for name in self.TOOLS if name in self._tools.names()]}
        try:
            arguments = fit_arguments(tool, self._tools.names().get(tool), wanted)
            answer = self._tools.call(tool, arguments, operation=operation, most=most, read=read)
        except CapabilityMissing as missing:
            self._remember({**found, "missing": missing.capability})
            raise
        self._remember(found)
        return answer

    def has(self, tool: str) -> bool:
        return tool in self._tools.names()

    def takes(self, tool: str, argument: str) -> bool:
        return has_argument(self._tools.names().get(tool), argument)

    def _remember(self, found: dict[str, Any]) -> None:
        if self.source.capabilities != found:
            self.source.capabilities = found
            ConnectedSource.objects.filter(pk=self.source.pk).update(capabilities=found)
