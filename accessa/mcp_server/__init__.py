"""MCP server: search, documents and answers of a tenant as tools and resources for AI assistants."""
