"""Mails about accounts: password reset, a changed password, invitation to sign up. Requests of the first and last."""

import hashlib
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth.tokens import default_token_generator
from django.db import connection, transaction
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import get_language

from accounts import invitations, rate_limit, totp
from accounts.errors import ApiError
from accounts.models import AccountDeletion, Invitation, User
from accounts.sign_in import client_address, client_network
from outbox.mails.templates import Mail, link, render
from outbox.models import Message

RESET, CHANGED = "account.password_reset", "account.password_changed"
INVITED, ALREADY = "account.invitation", "account.already_exists"
DELETED = "account.deleted"
OIDC_CONNECTED = "account.oidc_connected"
TOTP_CHANGED = "account.totp_changed"
# One statement whether or not there is such an account: the time of the response must not reveal it. The commit does
# not wait for the disk, which only a row that was written would need.
REQUEST = """
    WITH receiver AS (SELECT set_config('synchronous_commit', 'off', true)),
    invited AS (
        INSERT INTO invitations (id, email, expires_at)
        SELECT gen_random_uuid(), %(email)s, clock_timestamp() + %(valid)s FROM receiver
        WHERE %(invite)s AND NOT EXISTS (SELECT FROM users WHERE email = %(email)s)
        RETURNING id
    )
    INSERT INTO outbox (id, user_id, kind, target_id, payload)
    SELECT gen_random_uuid(), r.id, 'mail', r.id, jsonb_build_object('type', r.type, 'language', %(language)s::text)
    FROM receiver, (
        SELECT id, %(to_user)s AS type FROM users WHERE email = %(email)s AND is_active AND password NOT LIKE '!%%'
        UNION ALL SELECT id, %(to_stranger)s FROM invited) r"""


def enqueue_mail(user_id: UUID, type: str) -> None:
    """Write a mail for a user or an invited address to the outbox, in the caller's transaction."""
    Message.objects.create(user_id=user_id, kind="mail", target_id=user_id, payload={"type": type})


def request_password_reset(email: str, request: HttpRequest) -> None:
    """Send a link to the account of an address, if there is one. Raises ``ApiError("TRIED_TOO_OFTEN")``."""
    _request(email, request, to_user=RESET, to_stranger="", invite=False)


def request_sign_up(email: str, request: HttpRequest) -> None:
    """Send an invitation to an address, or a mail that it has an account. Raises ``ApiError("TRIED_TOO_OFTEN")``."""
    _request(email, request, to_user=ALREADY, to_stranger=INVITED, invite=True)


def _request(email: str, request: HttpRequest, *, to_user: str, to_stranger: str, invite: bool) -> None:
    email = email.strip().lower()
    client = client_network(client_address(request))
    rate_limit.check_rate(rate_limit.MAIL_REQUESTS, hashlib.sha256(client.encode()).hexdigest())
    with suppress(ApiError):  # an address that had enough of them gets no more, and the page does not tell
        rate_limit.check_rate(rate_limit.MAILS_TO_ADDRESS, hashlib.sha256(email.encode()).hexdigest())
        params: dict[str, Any] = {"email": email, "to_user": to_user, "to_stranger": to_stranger, "invite": invite,
                  "valid": invitations.VALID, "language": get_language() or settings.LANGUAGE_CODE}  # fmt: skip
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(REQUEST, params)


def invite(email: str) -> Invitation:
    """Invite an address, whatever ``SIGN_UP`` says. Raises ``ApiError("ACCOUNT_EXISTS")``."""
    with transaction.atomic():
        invitation = invitations.create_invitation(email)
        enqueue_mail(invitation.pk, INVITED)
    return invitation


def password_reset(message: Message) -> Mail | None:
    user = _active_user(message)
    if user is None or not user.has_usable_password():
        return None
    url = link("portal:password-reset-link", user.pk, default_token_generator.make_token(user))
    return render(
        user.email, "password_reset", _language(message, user), url=url, minutes=settings.PASSWORD_RESET_TIMEOUT // 60
    )


def password_changed(message: Message) -> Mail | None:
    user = _active_user(message)
    if user is None:
        return None
    return render(user.email, "password_changed", _language(message, user), url=link("portal:password-reset"))


def totp_changed(message: Message) -> Mail | None:
    user = _active_user(message)
    if user is None:
        return None
    url = link("portal:password-reset")
    return render(user.email, "totp_changed", _language(message, user), url=url, is_on=totp.is_on(user))


def oidc_connected(message: Message) -> Mail | None:
    user = _active_user(message)
    if user is None:
        return None
    language, url = _language(message, user), link("portal:account")
    return render(user.email, "oidc_connected", language, url=url, provider=settings.OIDC_NAME)


def already_exists(message: Message) -> Mail | None:
    user = _active_user(message)
    if user is None:
        return None
    return render(user.email, "already_exists", _language(message, user), url=link("portal:password-reset"))


def invitation(message: Message) -> Mail | None:
    invited = Invitation.objects.filter(pk=message.target_id, expires_at__gt=Now()).first()
    if invited is None:
        return None
    days = max(1, (invited.expires_at - timezone.now() + timedelta(hours=1)).days)
    url = link("portal:invitation", invitations.sign(invited))
    return render(invited.email, "invitation", _language(message), url=url, days=days)


def deleted(message: Message) -> Mail | None:
    deletion = AccountDeletion.objects.filter(pk=message.target_id).first()
    if deletion is None or deletion.email is None:
        return None
    return render(deletion.email, "account_deleted", deletion.language, url=link("portal:deletion", deletion.pk))


def _language(message: Message, user: User | None = None) -> str:
    """Return the user's language, else that of the page on which the mail was asked for."""
    return str((user.language if user else "") or message.payload.get("language", ""))


def _active_user(message: Message) -> User | None:
    return User.objects.filter(pk=message.target_id, is_active=True).first()
