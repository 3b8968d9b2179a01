"""Additions to the OpenAPI schema that drf-spectacular generates."""
