"""What staff see of access: the audit log, users and their groups, API tokens."""

from accounts.audit.admin import entries, tokens, users

__all__ = ["entries", "tokens", "users"]
