"""Admin of accounts: audit log, users and groups, API tokens."""

from accounts.audit.admin import entries, tokens, users

__all__ = ["entries", "tokens", "users"]
