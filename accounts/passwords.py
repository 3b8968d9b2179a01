"""Change of one's own password, and its reset by a link that was sent by e-mail."""

from uuid import UUID

from django.contrib.auth.tokens import default_token_generator
from django.db import transaction
from django.http import HttpRequest

from accounts import api_tokens, rate_limit, sessions
from accounts.audit import log
from accounts.models import ApiToken, User, UserIdentity
from accounts.sign_in import client_address, client_network


def change_password(
    user: User, password: str, request: HttpRequest, *, keep_session: str | None, revoke_tokens: bool
) -> None:
    """Set a new password and sign out everywhere but in the session whose key is ``keep_session``.

    API tokens stay valid unless ``revoke_tokens``: the programs that hold them would stop.
    """
    with transaction.atomic():
        locked = User.objects.select_for_update().get(pk=user.pk)
        _set(locked, password, request, keep_session=keep_session, revoke_tokens=revoke_tokens)
    user.refresh_from_db()


def is_own_password(user: User, password: str) -> bool:
    """Check the password of the signed-in user. Raises ``ApiError("TRIED_TOO_OFTEN")``."""
    rate_limit.check_rate(rate_limit.PASSWORD_CHECKS, user.pk)
    if not user.check_password(password):
        return False
    rate_limit.remove_last_use(rate_limit.PASSWORD_CHECKS, user.pk)
    return True


def find_by_reset_link(user_id: UUID, token: str, *, lock: bool = False) -> User | None:
    """Return the user of a link, unless it has expired, was used or was made before another sign-in or password."""
    users = User.objects.select_for_update() if lock else User.objects
    user = users.filter(pk=user_id, is_active=True).first()
    return user if user and default_token_generator.check_token(user, token) else None


def reset_password(
    user_id: UUID, token: str, password: str, request: HttpRequest, *, revoke_tokens: bool
) -> User | None:
    """Set a new password by a link, once, and sign out everywhere; return None if the link is no longer valid."""
    with transaction.atomic():
        user = find_by_reset_link(user_id, token, lock=True)
        if user is not None:
            _set(user, password, request, keep_session=None, revoke_tokens=revoke_tokens)
    return user


def _set(user: User, password: str, request: HttpRequest, *, keep_session: str | None, revoke_tokens: bool) -> None:
    user.set_password(password)
    user.save(update_fields=["password"])
    sessions.end_sessions(user.pk, keep=keep_session)
    if revoke_tokens:
        api_tokens.revoke_tokens(ApiToken.objects.filter(user=user), by=user, reason=api_tokens.BY_OWNER)
        UserIdentity.objects.filter(user=user).delete()  # a thief may have connected their own
    if user.is_staff:
        log.record_action(
            by=user, action="users.set_password", reason="own password",
            object_type="user", object_id=user.pk, client=client_network(client_address(request)),
        )  # fmt: skip
