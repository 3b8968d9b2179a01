"""The system tenant that owns statutes. No user can sign in as it; every tenant can search its documents."""

from uuid import UUID

SYSTEM_TENANT_ID = UUID("4c415753-0000-4000-8000-000000000000")
