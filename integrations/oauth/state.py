"""What a consent carries there and back: who began it, of which provider, and when. Nobody else can end it."""

from __future__ import annotations

import secrets
import time
from uuid import UUID

from django.utils.crypto import constant_time_compare, salted_hmac

STATE_SECONDS = 30 * 60  # to sign in at the provider, find the second factor, and choose the account
_SALT = "integrations.oauth.state"


def make_state(user_id: UUID, provider: str) -> str:
    said = f"{secrets.token_urlsafe(18)}.{int(time.time())}"
    return f"{said}.{_proof(user_id, provider, said)}"


def is_valid_state(state: str, *, user_id: UUID, provider: str) -> bool:
    """Tell a state that this very tenant was given for this provider, less than half an hour ago."""
    said, _, proof = state.rpartition(".")
    if not constant_time_compare(proof, _proof(user_id, provider, said)):
        return False
    return time.time() - int(said.rpartition(".")[2]) < STATE_SECONDS


def _proof(user_id: UUID, provider: str, said: str) -> str:
    return salted_hmac(_SALT, f"{user_id}:{provider}:{said}", algorithm="sha256").hexdigest()
