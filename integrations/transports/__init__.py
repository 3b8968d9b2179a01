"""How a provider is asked: its REST API, its MCP server, or answers that were recorded. Knows no provider's records."""
