"""Whose the laws are: a tenant that nobody is. Its documents are read by all, through the search of statutes alone."""

from __future__ import annotations

from uuid import UUID

SYSTEM_TENANT_ID = UUID("4c415753-0000-4000-8000-000000000000")
